# Targets of images; the Makefile includes this file. Their tools go to $(CACHE)/tools, each pinned to a version.
REGCTL_VERSION := $(shell sed -n 's|.*regclient/regclient v\([^ ]*\).*|\1|p' image/go.mod)
REGISTRY_VERSION := $(shell sed -n 's|.*distribution/v3 v\([^ ]*\).*|\1|p' image/go.mod)
CYCLONEDX_VERSION := 0.5.9
REGCTL := $(CACHE)/tools/regctl-$(REGCTL_VERSION)/regctl
REGISTRY := $(CACHE)/tools/registry-$(REGISTRY_VERSION)/registry
CYCLONEDX := $(CACHE)/tools/cargo-cyclonedx-$(CYCLONEDX_VERSION)/bin/cargo-cyclonedx
# Where the images go, and what their labels say: the time, the commit and the address of the sources.
IMAGE_FOLDER ?= $(CACHE)/image
IMAGE_SOURCE ?= https://mczk.io
IMAGE_VERSION := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
IMAGE_REVISION ?= $(or $(shell git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null),unknown)
# Where `make image-push` copies the image to: a repository and a tag.
TO ?=
IMAGE_ENV = CARGO="$(CARGO)" REGCTL="$(REGCTL)" CYCLONEDX="$(CYCLONEDX)" SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" \
	VERSION="$(IMAGE_VERSION)" REVISION="$(IMAGE_REVISION)" SOURCE="$(IMAGE_SOURCE)"
# A program of image/go.mod, by its package.
GO_TOOL = $(PROGRESS) "building $(@F)" env GOWORK=off CGO_ENABLED=0 \
	go build -C image -mod=readonly -trimpath -ldflags '-s -w' -o "$@" $(1)

.PHONY: image image-push test-image

image: require-image $(REGCTL) $(CYCLONEDX) ## Images for amd64 and arm64 with SBOMs, reproducible: an OCI layout and archives
	@$(call ANNOUNCE,15)
	@$(IMAGE_ENV) image/build.sh "$(IMAGE_FOLDER)"
	@echo "built $(IMAGE_FOLDER): $$(cat "$(IMAGE_FOLDER)/digest")"

image-push: image ## Copy the images and their SBOMs into a registry: make image-push TO=registry.example.org/mczk:0.1.0
	@test -n "$(TO)" || { echo "name a repository and a tag: make $@ TO=registry.example.org/mczk:0.1.0" >&2; exit 1; }
	@"$(REGCTL)" image copy --referrers "ocidir://$(IMAGE_FOLDER)/layout:$(IMAGE_VERSION)" "$(TO)"

test-image: image $(REGISTRY) ## Build the images again elsewhere, and check their digests, content, SBOMs and a registry: 10 min
	@$(IMAGE_ENV) REGISTRY="$(REGISTRY)" REQUIRED="$(REQUIRED)" image/test.sh "$(IMAGE_FOLDER)"

$(REGCTL): image/go.mod image/go.sum
	@$(call GO_TOOL,github.com/regclient/regclient/cmd/regctl)

$(REGISTRY): image/go.mod image/go.sum
	@$(call GO_TOOL,github.com/distribution/distribution/v3/cmd/registry)

$(CYCLONEDX):
	@$(PROGRESS) "building cargo-cyclonedx" env --unset CARGO_TARGET_DIR $(CARGO) install --locked --quiet \
		--root "$(CACHE)/tools/cargo-cyclonedx-$(CYCLONEDX_VERSION)" cargo-cyclonedx@$(CYCLONEDX_VERSION)
