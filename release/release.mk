# Targets of releases; the Makefile includes this file. docs/how-to/release.md describes them.
COSIGN_VERSION := $(shell sed -n 's|.*sigstore/cosign/v3 v\([^ ]*\).*|\1|p' release/go.mod)
HELM_VERSION := $(shell sed -n 's|.*helm.sh/helm/v4 v\([^ ]*\).*|\1|p' tests/karmada/go.mod)
COSIGN := $(CACHE)/tools/cosign-$(COSIGN_VERSION)/cosign
HELM := $(CACHE)/tools/helm-$(HELM_VERSION)/helm
RELEASE_FOLDER ?= $(CACHE)/release
# The address from which users fetch the files: required for a release.
RELEASE_URL ?=
# The tag of a release: it must be the version. The dry run has none.
TAG ?=
# A private key for the signatures. Without it, the identity of the workflow signs.
COSIGN_KEY ?=
# What the provenance names as the builder.
BUILDER ?= $(IMAGE_SOURCE)/release/local
ARTIFACTHUB_ID ?= 00000000-0000-0000-0000-000000000000
# The key pair of the dry run.
DRY_RUN_KEY := $(CACHE)/release-key/dry-run
RELEASE_ENV = $(IMAGE_ENV) HELM="$(HELM)" COSIGN="$(COSIGN)" URL="$(RELEASE_URL)" BUILDER="$(BUILDER)" \
	ARTIFACTHUB_ID="$(ARTIFACTHUB_ID)"
RELEASE_TOOLS := $(REGCTL) $(CYCLONEDX) $(COSIGN) $(HELM)

.PHONY: release release-dry-run release-files release-push release-table check-version test-release

check-version: ## Check that all files name the version of Cargo.toml
	@release/version.sh $(TAG) >/dev/null

release: require-release ## Build and sign a release: make release TAG=v0.1.0 RELEASE_URL=https://...
	@test -n "$(TAG)" || { echo "name the tag: make $@ TAG=v$(IMAGE_VERSION) RELEASE_URL=https://..." >&2; exit 1; }
	@$(MAKE) --no-print-directory release-files
	@$(RELEASE_ENV) KEY="$(COSIGN_KEY)" $(PROGRESS) "signing" release/sign.sh "$(RELEASE_FOLDER)"
	@$(MAKE) --no-print-directory release-table

release-files: check-version $(RELEASE_TOOLS)
	@changes=$$(git status --porcelain) && test -z "$$changes" || { \
		echo "a release is built from a commit: commit or remove these changes" >&2; echo "$$changes" >&2; exit 1; }
	@case "$(RELEASE_URL)" in https://*) ;; *) \
		echo "RELEASE_URL is not https://: name the address of the files" >&2; exit 1 ;; esac
	@$(RELEASE_ENV) release/build.sh "$(RELEASE_FOLDER)"

release-push: $(REGCTL) $(HELM) ## Copy the images and the charts of a release: make release-push TO=registry.example.org/mczk
	@test -n "$(TO)" || { echo "name a repository: make $@ TO=registry.example.org/mczk" >&2; exit 1; }
	@REGCTL="$(REGCTL)" HELM="$(HELM)" VERSION="$(IMAGE_VERSION)" release/push.sh "$(RELEASE_FOLDER)" "$(TO)"

# The tools are fetched before; then nothing uses a network.
release-dry-run: RELEASE_URL := https://releases.example.org/mczk
release-dry-run: export COSIGN_PASSWORD :=
release-dry-run: require-release $(RELEASE_TOOLS) ## Build a release without a network, signed with a key of its own: 10 min
	@$(call ANNOUNCE,10)
	@$(CARGO) fetch --locked --quiet
	@test -f "$(DRY_RUN_KEY).key" || { mkdir -p "$(dir $(DRY_RUN_KEY))" && \
		"$(COSIGN)" generate-key-pair --output-key-prefix "$(DRY_RUN_KEY)" 2>/dev/null; }
	@CARGO_NET_OFFLINE=true $(MAKE) --no-print-directory release-files RELEASE_URL="$(RELEASE_URL)" TAG=
	@$(RELEASE_ENV) KEY="$(DRY_RUN_KEY).key" $(PROGRESS) "signing" release/sign.sh "$(RELEASE_FOLDER)"
	@$(MAKE) --no-print-directory release-table

release-table:
	@cd "$(RELEASE_FOLDER)" && for file in *; do \
		printf '%-42s %10d  %s\n' "$$file" "$$(stat --format %s "$$file")" "$$(sha256sum "$$file" | cut -d ' ' -f 1)"; done
	@echo "built $(RELEASE_FOLDER)"

test-release: RELEASE_URL := https://releases.example.org/mczk
test-release: release-dry-run ## Check the dry run as users do, and build it again elsewhere: 15 min more
	@CARGO_NET_OFFLINE=true $(RELEASE_ENV) release/test.sh "$(RELEASE_FOLDER)" "$(DRY_RUN_KEY).pub"

$(COSIGN): release/go.mod release/go.sum
	@$(PROGRESS) "building cosign" env GOWORK=off CGO_ENABLED=0 go build -C release -mod=readonly -trimpath -ldflags '-s -w' \
		-o "$@" github.com/sigstore/cosign/v3/cmd/cosign

$(HELM): tests/karmada/go.mod tests/karmada/go.sum
	@$(PROGRESS) "building helm" env GOWORK=off CGO_ENABLED=0 go build -C tests/karmada -mod=readonly -trimpath -ldflags '-s -w' \
		-o "$@" helm.sh/helm/v4/cmd/helm
