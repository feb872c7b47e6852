# What is built lies outside the tree, in one folder that may be removed at any time. Each checkout has a target folder of
# its own: Cargo names what it builds alike in all of them, and would take another one's for its own.
CACHE ?= $(if $(MCZK_CACHE),$(MCZK_CACHE),$(HOME)/.cache/mczk)
export MCZK_CACHE := $(CACHE)
export CARGO_TARGET_DIR ?= $(CACHE)/target/$(notdir $(CURDIR))-$(firstword $(shell printf %s '$(CURDIR)' | cksum))
CARGO ?= cargo
MCZK := $(CARGO) run --quiet --bin mczk --
RIG := $(CARGO) run --quiet --package rig --
# Flags for the federation: make federation RIGFLAGS='--members 2'
RIGFLAGS ?=
# Flags for the demonstration and the bench, and parts of the names of the scenarios to run: make demo DEMOFLAGS=--keep
DEMOFLAGS ?=
BENCHFLAGS ?=
SCENARIOS ?=
# Flags for the members with nodes, and parts of the names of the steps to run: make test-members MEMBERSFLAGS='--keep grow'
MEMBERSFLAGS ?=
# Variables of the environment are flags too, and must not get into what is generated.
PLAIN := unset $$(env | sed -n 's/^\(MCZK_[A-Z_]*\)=.*/\1/p'); $(MCZK) register --dry-run

.DEFAULT_GOAL := help
.PHONY: help build static programs test test-zookeeper zookeeper lint deny test-cargo test-e2e bench-transitions demo \
	demo-control-plane federation federation-down federation-status needs-root crds manifests test-nodes test-members members \
	bench-pauses soak \
	check-tools prerequisites prerequisites-nodes clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

build: ## Build the program `mczk`, optimised
	$(CARGO) build --release --bin mczk
	@echo "built $(CARGO_TARGET_DIR)/release/mczk"

# Names are resolved without the C library's modules, which a static program does not have. The target is named, though it is
# this machine's, since Cargo would else build its own helpers static too, which cannot be.
STATIC_TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
STATIC = $(CARGO_TARGET_DIR)/$(STATIC_TARGET)/release/mczk
static: ## Build the program `mczk` without shared libraries, as pods of servers need it
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --target $(STATIC_TARGET) --bin mczk
	@echo "built $(STATIC)"

programs: check-tools ## Build `mczk` and `rig` as they are worked on; eval "$(make -s programs)" puts them into PATH
	@$(CARGO) build --quiet --package mczk --package rig --bins >&2
	@echo 'export PATH="$(CARGO_TARGET_DIR)/debug:$$PATH"'

test: check-tools ## Everything: format, lints, licences, all tests, and the scenarios on a real federation
	@echo "make test: format, clippy, cargo-deny; then unit, property and webhook tests and the search over all states of the"
	@echo "rules; then mczk server with real ZooKeeper processes, 3 minutes; then the rig's own tests and every scenario of"
	@echo "tests/e2e on a real Karmada, which is built from its sources"
	@echo "the first time. About 28 minutes on 2 cores when everything is built once; the first time 12 more for the Go"
	@echo "programs and 8 for the Rust dependencies."
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-cargo
	@$(MAKE) --no-print-directory test-zookeeper
	@$(MAKE) --no-print-directory test-e2e

# Of generated cases the same ones each time; another number, others.
export PROPTEST_RNG_SEED ?= 1

test-cargo: ## The tests that need no federation of their own
	@echo "make test-cargo: generated cases by PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED)"
	$(CARGO) test --workspace --no-fail-fast

test-e2e: check-tools ## The end-to-end tests, on real federations: about 12 minutes
	@echo "make test-e2e: the rig's own tests (1 minute), then the scenarios of tests/e2e, each on a real Karmada."
	$(CARGO) test --package rig -- --ignored
	$(CARGO) build --quiet --package e2e --package rig --bins
	"$(CARGO_TARGET_DIR)/debug/scenarios" $(SCENARIOS)

test-nodes: check-tools ## The tests of federations with nodes, as root: about 4 minutes
	@echo "make test-nodes: two federations with real nodes, one after the other, in network namespaces. Needs root and what"
	@echo "make prerequisites-nodes installs. About 4 minutes; the first time 3 more for the Go programs and images."
	$(CARGO) clippy --quiet --package rig --test nodes -- -D warnings
	$(CARGO) build --quiet --package rig --bins
	$(CARGO) test --package rig --test nodes -- --ignored --nocapture --test-threads=1

# Said before anything is built.
needs-root:
	@[ "$$(id -u)" = 0 ] || { echo "Real nodes need root, for network namespaces, mounts and control groups. As root, with the" \
		"same PATH:"; echo "    sudo -E env \"PATH=\$$PATH\" make $(firstword $(MAKECMDGOALS))"; \
		echo "Without root, make demo-control-plane shows how a rollout goes over clusters without nodes."; exit 1; } >&2

# The program is the one of images: static, and optimised.
test-members: needs-root check-tools members ## Real servers in pods of real nodes, changed and broken in four stories, as root: about 25 minutes
	@echo "make test-members: federations with real nodes in network namespaces, agents and ZooKeeper servers in pods. Needs"
	@echo "root and what make prerequisites-nodes installs. About 25 minutes; the first time some more for programs and images."
	MCZK_BIN="$(STATIC)" "$(CARGO_TARGET_DIR)/debug/members" $(MEMBERSFLAGS)

members: static
	$(CARGO) build --quiet --package e2e --package rig --bins

bench-pauses: needs-root check-tools members ## How long writes pause in a rolling change and after kill -9 of the leader, five times, as root
	MCZK_BIN="$(STATIC)" "$(CARGO_TARGET_DIR)/debug/members" --story pauses $(MEMBERSFLAGS)

# Its result is in docs/soak.md.
soak: needs-root check-tools members ## What takes long: all stories on nodes, kills at 180 moments, more seeds: about an hour, as root
	@echo "make soak: every story on nodes, the rig's own tests with nodes, then generated cases by nine more seeds."
	MCZK_BIN="$(STATIC)" "$(CARGO_TARGET_DIR)/debug/members" --story changes,faults,lives,move,pauses,kills
	@$(MAKE) --no-print-directory test-nodes
	@set -e; for seed in 2 3 4 5 6 7 8 9 10; do \
		echo "PROPTEST_RNG_SEED=$$seed"; PROPTEST_RNG_SEED=$$seed $(CARGO) test --quiet --package mczk --lib --test plan_properties \
			--test server_start --test ensemble; \
	done

test-zookeeper: check-tools zookeeper ## `mczk server` with real ZooKeeper processes on loopback: some minutes
	$(CARGO) test --test server_zookeeper -- --ignored --test-threads=1

# The jars of ZooKeeper 3.9.4 as Maven's repository has them, in the layout of the official package.
ZOOKEEPER_LIB := $(CACHE)/zookeeper/3.9.4/lib

zookeeper: $(ZOOKEEPER_LIB)/.complete ## Fetch ZooKeeper, and install what it needs: Maven, a Java runtime
	@command -v java >/dev/null || $(call apt,openjdk-17-jre-headless)

$(ZOOKEEPER_LIB)/.complete: tests/zookeeper/pom.xml
	@command -v mvn >/dev/null || $(call apt,maven openjdk-17-jre-headless)
	@mkdir -p "$(ZOOKEEPER_LIB)"
	mvn -q -f tests/zookeeper/pom.xml dependency:copy-dependencies -DoutputDirectory="$(ZOOKEEPER_LIB)"
	@touch "$@"

apt = { command -v apt-get >/dev/null || { echo "install by hand: $(1)" >&2; exit 1; }; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	$$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends $(1); }

bench-transitions: check-tools ## Measure the time from one cluster's report to the next one's override
	@echo "make bench-transitions: mczk is built optimised first, which takes some minutes."
	$(CARGO) build --quiet --package e2e --package rig --bins
	$(CARGO) build --release --quiet --bin mczk
	MCZK_BIN="$(CARGO_TARGET_DIR)/release/mczk" "$(CARGO_TARGET_DIR)/debug/bench-transitions" $(BENCHFLAGS)

lint: deny ## Format, clippy and licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

deny:
	@if ! $(CARGO) deny --version >/dev/null 2>&1; then \
		echo "cargo-deny is not installed (make prerequisites installs it): licences are not checked" >&2; exit 0; fi; \
	$(CARGO) deny --log-level error check bans licenses sources || exit 1; \
	if $(CARGO) deny --log-level off fetch db; then $(CARGO) deny --log-level error check --disable-fetch advisories; \
	else echo "the list of advisories cannot be fetched: they are not checked" >&2; fi

demo: needs-root check-tools ## Real servers on real nodes of three clusters, changed and broken while a client writes, as root: about 5 minutes
	@echo "make demo: its programs are built first; the first time this takes some minutes."
	@$(MAKE) --no-print-directory --silent members
	@MCZK_BIN="$(STATIC)" "$(CARGO_TARGET_DIR)/debug/demo" $(DEMOFLAGS)

demo-control-plane: check-tools ## Watch a rollout over clusters without nodes, live, without root: about 1 minute once built
	@echo "make demo-control-plane: its programs are built first; the first time this takes some minutes."
	@$(CARGO) build --quiet --package e2e --package rig --bins
	@"$(CARGO_TARGET_DIR)/debug/demo-control-plane" $(DEMOFLAGS)

federation: check-tools ## Start a real Karmada federation on this machine
	@echo "make federation: rig is built first; the first time this takes some minutes, and Karmada 12 more." >&2
	@$(RIG) up $(RIGFLAGS)

federation-down: ## Take the federation down
	$(RIG) down

federation-status: ## Tell what of the federation runs
	$(RIG) status

crds: ## Write manifests/crds from the Rust types
	$(MCZK) crds --dir manifests/crds

manifests: crds ## Write all manifests
	@$(PLAIN) --only propagation > manifests/propagation.yaml
	@$(PLAIN) --only rbac > manifests/rbac.yaml
	@$(PLAIN) --only interpreter --service mczk-system/mczk > manifests/interpreter.yaml

check-tools: ## Tell which programs are missing, and which package has them
	@missing=; \
	need() { command -v "$$1" >/dev/null 2>&1 || { echo "$$1 is missing: $$2" >&2; missing=1; }; }; \
	need cargo "install Rust with rustup, or run make prerequisites"; \
	need cc "the package gcc (Debian, Ubuntu), or run make prerequisites"; \
	need cmake "the package cmake (Debian, Ubuntu), or run make prerequisites"; \
	need go "Go 1.25 or later: the package golang-go, or go.dev/dl"; \
	[ -z "$$missing" ]

prerequisites: ## Install what is missing: Rust by rustup, the C tools by apt, cargo-deny by cargo
	@set -e; apt() { \
		command -v apt-get >/dev/null || { echo "install by hand: $$*" >&2; return 1; }; \
		sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
		$$sudo apt-get update -qq; $$sudo apt-get install -y -qq --no-install-recommends "$$@"; }; \
	command -v cc >/dev/null || apt gcc libc6-dev; \
	command -v cmake >/dev/null || apt cmake make; \
	command -v git >/dev/null || apt git; \
	if ! command -v cargo >/dev/null; then \
		command -v rustup >/dev/null || apt rustup; rustup toolchain install stable --profile default; \
	fi; \
	command -v rustup >/dev/null && rustup component add clippy rustfmt || true; \
	command -v go >/dev/null || apt golang-go; \
	$(CARGO) deny --version >/dev/null 2>&1 || \
		{ echo "installing cargo-deny: about 5 minutes"; $(CARGO) install --locked --quiet cargo-deny; } || \
		echo "cargo-deny cannot be installed: licences will not be checked" >&2
	@$(MAKE) --no-print-directory check-tools

# What a rig with nodes calls: README.md of tests/rig says what for.
NODE_PACKAGES := containerd runc containernetworking-plugins nftables iptables iproute2 iputils-ping util-linux mount \
	busybox-static binutils maven default-jdk-headless

prerequisites-nodes: ## Install what federations with nodes need besides: by apt
	@command -v apt-get >/dev/null || { echo "install by hand: $(NODE_PACKAGES)" >&2; exit 1; }
	@sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; set -e; \
		$$sudo apt-get update -qq; $$sudo apt-get install -y -qq --no-install-recommends $(NODE_PACKAGES)

clean: ## Remove what Cargo built; the Go programs and their caches stay
	$(CARGO) clean
