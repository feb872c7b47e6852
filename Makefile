# All that is built lies outside the tree, in one folder that may be removed at any time. Each checkout has its own target
# folder: Cargo gives the same name to what it builds of two checkouts, and would confuse them.
CACHE ?= $(if $(MCZK_CACHE),$(MCZK_CACHE),$(HOME)/.cache/mczk)
export MCZK_CACHE := $(CACHE)
export CARGO_TARGET_DIR ?= $(CACHE)/target/$(notdir $(CURDIR))-$(firstword $(shell printf %s '$(CURDIR)' | cksum))
# The folders of rustup, of Go and of Debian's network programs, which the PATH of a user may lack.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin:/usr/sbin:/sbin
# Generated test cases depend on this seed alone.
export PROPTEST_RNG_SEED ?= 1

# Flags of `rig up`: make federation RIGFLAGS='--members 2'
RIGFLAGS ?=
# Flags of the demonstration: make demo DEMOFLAGS=--keep
DEMOFLAGS ?=
# Flags of a benchmark: make bench-transitions BENCHFLAGS='--transitions 500'
BENCHFLAGS ?=
# Parts of the names of scenarios: make test-e2e SCENARIOS='pause upgrade'
SCENARIOS ?=
# The seed of a chaos run, its length, a file of operations to play again, and other flags
SEED ?= 1
MINUTES ?= 5
OPERATIONS ?=
CHAOSFLAGS ?=
# Flags, and parts of the names of faults: make test-alerts-rig ALERTSFLAGS=volume
ALERTSFLAGS ?=
# Another version of Karmada, a folder of tests/karmada: make test-versions VERSION=1.17. Or another one of Kubernetes in
# member clusters, a folder of tests/kubernetes, also on nodes: make test-versions test-story KUBERNETES=1.37. For
# test-upgrades it is the one that member clusters get.
VERSION ?=
KUBERNETES ?=
# Flags, and parts of the names of steps: make test-members MEMBERSFLAGS='--keep grow'
MEMBERSFLAGS ?=
# Number of elections: make test-elections ELECTIONS=50
ELECTIONS ?= 200
# Ways to install Karmada, of karmadactl, helm and operator: make test-layouts LAYOUTS=helm
LAYOUTS ?=
# Seconds of each fuzz target, and the names of targets: make fuzz FUZZ_SECONDS=3600 FUZZ_TARGETS=question
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
# A folder of a release to install from: make test-install RELEASE=FOLDER
RELEASE ?=
# True if no check may be skipped: make deny REQUIRED=1
REQUIRED ?=
# True if the programs are built
BUILT ?=
# Go's collector runs less often in the API servers of tests: they need a third less time of the processors, and about 3 GB
# more memory for all. Other targets must fit into small machines.
test-cargo test-e2e test-rig: export GOGC ?= 400

CARGO ?= cargo
PROGRESS := tests/progress.sh
SKIPPED = REQUIRED="$(REQUIRED)" tests/skipped.sh
# One selection of packages for all: another one would have other features, and Cargo would compile everything again.
PROGRAMS := --package mczk --package rig --package e2e
# What starts pods or operators uses a copy. BUILT=1 says that all of this is there: nothing replaces a program while other
# parts of `make test` use it.
MCZK = $(CARGO_TARGET_DIR)/programs/mczk
BUILD := $(if $(BUILT),true,$(PROGRESS) "building mczk and the test programs" $(CARGO) build $(PROGRAMS) --bins && \
	mkdir -p "$(CARGO_TARGET_DIR)/programs" && cp "$(CARGO_TARGET_DIR)/debug/mczk" "$(MCZK).new" && mv "$(MCZK).new" "$(MCZK)")
# The tests of one crate, and of the API below the rules. The package of all other tests, of which --lib selects nothing, is
# there for its features: see PROGRAMS.
OF_RULES := --package mczk-api --package mczk-rules --package integration
OF_ADMIN := --package mczk-admin --package integration
SEARCHES := model ensemble volumes
ROWS := $(filter-out $(SEARCHES),$(patsubst src/rules/tests/%.rs,%,$(wildcard src/rules/tests/*.rs)) \
	$(patsubst src/rules/tests/%/main.rs,%,$(wildcard src/rules/tests/*/main.rs)))
COMPILE_TESTS := $(PROGRESS) "compiling the tests" $(CARGO) test --workspace --no-run
DEBUG := $(CARGO_TARGET_DIR)/debug
# `mczk` for pods has no shared libraries. It resolves names without the C library's modules, which a static program cannot
# load.
STATIC = $(CARGO_TARGET_DIR)/$$(rustc -vV | sed -n 's/^host: //p')/release/mczk
BUILD_STATIC = CARGO="$(CARGO)" image/program.sh native >/dev/null
# The same program as the next version: its server lists have a field that the others do not know.
NEWER = $(STATIC)-newer
BUILD_NEWER = CARGO="$(CARGO)" image/program.sh native --features newer-list >/dev/null && cp "$(STATIC)" "$(NEWER)"
# The jars of ZooKeeper, in the layout of the official package.
ZOOKEEPER_LIB := $(CACHE)/zookeeper/3.9.5/lib

# The jars of Curator.
CURATOR_LIB := $(CACHE)/curator/5.9.0/lib

# The check of the histories of registers.
LINEARIZABLE := $(CARGO_TARGET_DIR)/linearizable

# The driver of Chromium and the accessibility rules, from tests/dashboard/package-lock.json.
BROWSER_MODULES := $(CACHE)/tools/browser

# What renders the recorded demonstration, from tests/demo/package-lock.json.
PICTURE_MODULES := $(CACHE)/tools/picture
DEMO_CAST := $(CACHE)/demo.cast

.DEFAULT_GOAL := help
# Cargo and Go use all cores by themselves.
.NOTPARALLEL:
.PHONY: help demo demo-failover demo-picture demo-control-plane test compile compile-go lint lint-structure deny test-cargo test-rules test-admin test-dashboard dashboard-pictures test-alerts test-alerts-rig test-zookeeper test-firewall zookeeper \
	test-e2e test-rig fuzz test-elections test-versions test-nodes test-members test-story test-upgrades test-install test-layouts test-gitops test-linearizable gitops-states test-skew soak chaos bench bench-webhook bench-slow-clients bench-transitions bench-scale bench-pauses bench-elections bench-ensemble build static \
	programs federation federation-down federation-status crds manifests \
	requirements prerequisites prerequisites-nodes clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The first step of each target: installs what the target needs, by the table in tests/requirements.txt. A new target folder
# gets what this machine has compiled of other people's crates.
require-%:
	@tests/requirements.sh $*
	@CARGO="$(CARGO)" tests/dependencies.sh restore

# A target that compiles much prints this line first.
ANNOUNCE = echo "make $@: builds what is missing first. On 2 cores the first time takes about $(1) minutes more."

# It needs no program for other machines, so it does not wait for an optimised one. It writes $(DEMO_CAST).
demo: require-demo ## Real servers in pods of three clusters, under change and failure (root): 8 min
	@tests/demo/prepare.sh docs/pictures/demo.cast "$(DEBUG)/rig" $(CARGO) build $(PROGRAMS) --bin mczk --bin rig --bin demo
	@MCZK_BIN="$(DEBUG)/mczk" CLICOLOR_FORCE=1 tests/demo/cast.sh record "$(DEMO_CAST)" "make demo" "$(DEBUG)/demo" $(DEMOFLAGS)

demo-failover: require-demo-failover ## A cluster dies, its voters move to a spare and home again (root): 10 min
	@tests/demo/prepare.sh docs/pictures/failover.cast "$(DEBUG)/rig" $(CARGO) build $(PROGRAMS) --bin mczk --bin rig --bin members
	@MCZK_BIN="$(DEBUG)/mczk" CLICOLOR_FORCE=1 tests/demo/cast.sh record "$(CACHE)/failover.cast" "make demo-failover" \
		"$(DEBUG)/members" --story failover evacuated moved deletion

# The last runs of both, with shorter pauses, are those that the next runs play while they build.
demo-picture: require-demo-picture $(PICTURE_MODULES)/.complete ## Write docs/pictures of the last runs of make demo and demo-failover
	@for name in demo failover; do \
		[ -f "$(CACHE)/$$name.cast" ] || continue; \
		tests/demo/cast.sh shorten 2 <"$(CACHE)/$$name.cast" >docs/pictures/$$name.cast && NODE_PATH="$(PICTURE_MODULES)/node_modules" \
			node tests/demo/picture.js docs/pictures/$$name.cast docs/pictures/$$name.svg || exit; \
	done

$(PICTURE_MODULES)/.complete: tests/demo/package.json tests/demo/package-lock.json | require-demo-picture
	@mkdir -p "$(PICTURE_MODULES)"
	@cp tests/demo/package.json tests/demo/package-lock.json "$(PICTURE_MODULES)"
	@$(PROGRESS) "fetching what renders pictures" npm ci --prefix "$(PICTURE_MODULES)" --ignore-scripts --no-audit --no-fund
	@touch "$@"

demo-control-plane: require-demo-control-plane ## A rollout over three clusters without nodes: 1 min
	@$(call ANNOUNCE,16)
	@$(BUILD)
	@"$(DEBUG)/demo-control-plane" $(DEMOFLAGS)

test: require-test ## Format, lints, licences, all tests, scenarios on a real Karmada: 65 min
	@echo "make test: lints; unit and property tests and the search over all states; web page; mczk server with"
	@echo "real ZooKeeper; scenarios on a real Karmada. About 65 minutes on 2 cores; the first time 25 more, for Rust and Karmada."
	@tests/parts.sh "lint compile" "compile-go"
	@BUILT=1 SHORT=1 tests/parts.sh "test-e2e" "test-gitops test-linearizable test-rig test-zookeeper test-dashboard" "test-cargo"

# What the other parts of `make test` need, so that they do not wait for each other.
compile: require-test
	@$(BUILD)
	@$(COMPILE_TESTS)
	@CARGO="$(CARGO)" tests/dependencies.sh keep

compile-go: require-test
	@$(PROGRESS) "compiling the packages of Karmada and Kubernetes" tests/rig/packages.sh

lint: require-lint deny lint-prose check-version ## Format, clippy, licences and prose
	@$(CARGO) fmt --all --check
	@CARGO="$(CARGO)" tests/features/check.sh normal,build $(PROGRAMS)
	@CARGO="$(CARGO)" tests/features/check.sh normal,build,dev $(OF_RULES)
	@CARGO="$(CARGO)" tests/features/check.sh normal,build,dev $(OF_ADMIN)
	@$(MAKE) --no-print-directory lint-structure
	@$(PROGRESS) "clippy" $(CARGO) clippy --workspace --all-targets -- -D warnings

# Its target folder is its own: other features would make Cargo compile the dependencies of mczk again.
lint-structure: require-lint ## Check imports, type names and the visibility of items
	@CARGO_TARGET_DIR="$(CACHE)/target/structure" $(PROGRESS) -o "structure" $(CARGO) run --quiet --manifest-path tests/structure/Cargo.toml

# A release needs all checks: the workflow calls `make deny REQUIRED=1`. CI needs the program. Elsewhere, what cannot be
# checked is counted.
deny: require-deny
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
		$(SKIPPED) "cargo-deny is not installed" advisories bans licences sources && test -z "$(CI)"; exit; }; \
	$(CARGO) deny --log-level error check bans licenses sources || exit 1; \
	if $(PROGRESS) "fetching the advisories" $(CARGO) deny --log-level off fetch db; then \
		$(CARGO) deny --log-level error check --disable-fetch advisories; \
	else $(SKIPPED) "the advisories cannot be fetched" advisories; fi

test-cargo: require-test-cargo ## Unit, property and API server tests, the search over all states
	@echo "make test-cargo: generated test cases have the seed PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED)"
	@$(BUILD)
	@$(COMPILE_TESTS)
	@MCZK_BIN="$(MCZK)" $(PROGRESS) -o "tests" $(CARGO) test --workspace --no-fail-fast

# The searches over all states take minutes: `make test-cargo` has them.
test-rules: require-test-cargo ## The tests of src/api and src/rules, without the searches: 1 min
	@$(PROGRESS) -o "tests of the rules" $(CARGO) test $(OF_RULES) --no-fail-fast --lib $(addprefix --test ,$(ROWS))

test-admin: require-test-cargo ## The tests of src/admin: 1 min
	@$(PROGRESS) -o "tests of the commands" $(CARGO) test $(OF_ADMIN) --no-fail-fast --lib

test-zookeeper: require-test-zookeeper zookeeper $(LINEARIZABLE) ## `mczk server` with real ZooKeeper processes, and power losses: 7 min
	@$(PROGRESS) -o "power losses at every operation" $(CARGO) test --workspace --lib -- --ignored power_loss
	@$(PROGRESS) -o "mczk server with ZooKeeper" $(CARGO) test --workspace --test server_zookeeper -- --ignored --skip firewall --test-threads=3
	@$(PROGRESS) -o "registers with ZooKeeper" env MCZK_TEST_ZOOKEEPER_LIB="$(ZOOKEEPER_LIB)" \
		MCZK_TEST_LINEARIZABLE="$(LINEARIZABLE)" $(CARGO) test --workspace --lib -- --ignored registers_of

# They share one kernel's parameters, so one runs after the other.
test-firewall: require-test-firewall zookeeper ## Elections behind a firewall that forgets idle connections (root): 3 min
	@$(BUILD)
	@MCZK_BIN="$(MCZK)" $(PROGRESS) -o "elections behind a firewall" unshare --net $(CARGO) test --workspace --test server_zookeeper firewall -- \
		--ignored --test-threads=1 --nocapture

test-dashboard: require-test-dashboard $(BROWSER_MODULES)/.complete ## The web page in headless Chromium, with axe: 3 min
	@$(PROGRESS) -o "the dashboard in Chromium" env MCZK_TEST_BROWSER_MODULES="$(BROWSER_MODULES)" \
		MCZK_TEST_CHROMIUM="$$(command -v chromium)" $(CARGO) test --workspace --test dashboard -- --ignored --nocapture
# The first time it builds libraries of Flux and Kubernetes: 2 minutes.
test-gitops: require-test-gitops ## The health checks of Argo CD and Flux on the states of tests/gitops: 10 s
	@cd tests/gitops && GOWORK=off GOFLAGS=-mod=readonly $(CURDIR)/$(PROGRESS) -o "health checks" go test -count=1 ./...

test-linearizable: require-test-linearizable ## The check of histories finds broken ones: 10 s
	@cd tests/linearizable && GOWORK=off GOFLAGS=-mod=readonly $(CURDIR)/$(PROGRESS) -o "check of histories" go test -count=1 ./...

$(LINEARIZABLE): $(wildcard tests/linearizable/*.go) tests/linearizable/go.mod tests/linearizable/go.sum | require-test-linearizable
	@mkdir -p "$(@D)"
	@$(PROGRESS) "building the check of histories" env CGO_ENABLED=0 GOWORK=off \
		go build -C tests/linearizable -mod=readonly -trimpath -o "$@" .

$(BROWSER_MODULES)/.complete: tests/dashboard/package.json tests/dashboard/package-lock.json | require-test-dashboard
	@mkdir -p "$(BROWSER_MODULES)"
	@cp tests/dashboard/package.json tests/dashboard/package-lock.json "$(BROWSER_MODULES)"
	@$(PROGRESS) "fetching the driver of Chromium" npm ci --prefix "$(BROWSER_MODULES)" --ignore-scripts --no-audit --no-fund
	@touch "$@"
dashboard-pictures: ## Write docs/pictures of the web page
	@MCZK_TEST_PICTURES="$(CURDIR)/docs/pictures" $(MAKE) --no-print-directory test-dashboard
gitops-states: require-test-cargo ## Write the objects of tests/gitops by the operator's rules
	@UPDATE_GITOPS=1 $(PROGRESS) "writing tests/gitops" $(CARGO) test --workspace --test gitops_states
	@git diff --stat -- tests/gitops

zookeeper: $(ZOOKEEPER_LIB)/.complete

$(ZOOKEEPER_LIB)/.complete: tests/zookeeper/pom.xml | require-zookeeper
	@mkdir -p "$(ZOOKEEPER_LIB)"
	@$(PROGRESS) "fetching ZooKeeper" \
		mvn -B -q -f tests/zookeeper/pom.xml dependency:copy-dependencies -DoutputDirectory="$(ZOOKEEPER_LIB)"
	@touch "$@"

$(CURATOR_LIB)/.complete: tests/zookeeper/curator/pom.xml | require-test-members
	@mkdir -p "$(CURATOR_LIB)"
	@$(PROGRESS) "fetching Curator" \
		mvn -B -q -f tests/zookeeper/curator/pom.xml dependency:copy-dependencies -DoutputDirectory="$(CURATOR_LIB)"
	@touch "$@"

# Prometheus and promtool, in the version of their module, without service discoveries: they are most of its dependencies.
PROMETHEUS_MODULE := tests/prometheus
PROMETHEUS_VERSION := $(shell sed -n 's|.*github.com/prometheus/prometheus v\([0-9.]*\).*|\1|p' $(PROMETHEUS_MODULE)/go.mod)
PROMETHEUS := $(CACHE)/tools/prometheus-$(PROMETHEUS_VERSION)

test-alerts: require-test-alerts $(PROMETHEUS)/promtool $(PROMETHEUS)/prometheus ## Alerts and dashboard with a real Prometheus: 1 min
	@"$(PROMETHEUS)/promtool" check rules charts/*/alerts/rules.yaml
	@"$(PROMETHEUS)/promtool" test rules $(PROMETHEUS_MODULE)/alerts_test.yaml
	@MCZK_PROMETHEUS="$(PROMETHEUS)/prometheus" $(PROGRESS) -o "queries" $(CARGO) test --workspace --test queries -- --ignored

$(PROMETHEUS)/%: | require-test-alerts
	@mkdir -p "$(@D)"
	@$(PROGRESS) "building $*" env CGO_ENABLED=0 GOWORK=off \
		go build -C $(PROMETHEUS_MODULE) -mod=readonly -trimpath -tags remove_all_sd -ldflags "-s -w" -o "$@" \
		github.com/prometheus/prometheus/cmd/$*

test-alerts-rig: require-test-alerts-rig $(PROMETHEUS)/prometheus ## Alerts fire and clear by faults on a real Karmada, without nodes: 15 min
	@$(BUILD)
	@MCZK_PROMETHEUS="$(PROMETHEUS)/prometheus" "$(DEBUG)/alerts" $(ALERTSFLAGS)

test-e2e: require-test-e2e ## All scenarios on two real Karmada federations, without nodes: 20 to 40 min
	@$(BUILD)
	@MCZK_BIN="$(MCZK)" "$(DEBUG)/scenarios" $(if $(SHORT),--short) $(SCENARIOS)

test-rig: require-test-e2e ## The tests of federations without nodes
	@$(PROGRESS) -o "tests of the rig" $(CARGO) test --workspace --test lifecycle -- --ignored

# About 5 seconds for each election.
test-elections: require-test-e2e ## Leaders stop between a check and its write, 200 times: 17 min
	@$(BUILD)
	@E2E_ELECTIONS="$(ELECTIONS)" E2E_LEASE_SECONDS=3,2,1 "$(DEBUG)/scenarios" stale_writes

# The programs of a version are built the first time: 12 minutes.
test-versions: require-test-e2e ## Scenarios on another Karmada, or another Kubernetes: VERSION=1.17, KUBERNETES=1.37
	@test -n "$(VERSION)$(KUBERNETES)" || { echo "VERSION is one of" $$(cd tests/karmada && ls -d [0-9]*)", and" \
		"KUBERNETES one of" $$(ls tests/kubernetes) >&2; exit 1; }
	@$(BUILD)
	@"$(DEBUG)/scenarios" $(SCENARIOS)

test-versions: export MCZK_TOOLS_MODULE = $(if $(VERSION),$(CURDIR)/tests/karmada/$(VERSION))
test-versions test-story: export MCZK_KUBERNETES_MODULE = $(if $(KUBERNETES),$(CURDIR)/tests/kubernetes/$(KUBERNETES))

test-nodes: require-test-nodes ## The tests of federations with nodes (root): 4 min
	@$(call ANNOUNCE,20)
	@$(PROGRESS) "clippy" $(CARGO) clippy --workspace --test nodes -- -D warnings
	@$(BUILD)
	@$(PROGRESS) -o "tests of nodes" \
		$(CARGO) test --workspace --test nodes -- --ignored --nocapture --test-threads=1

test-members: require-test-members $(CURATOR_LIB)/.complete ## Real servers in pods, in four stories of changes and faults (root): 25 min
	@$(call ANNOUNCE,25)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/members" --curator-lib "$(CURATOR_LIB)" $(MEMBERSFLAGS)

# What CI plays on nodes. Its mczk is that of the other tests, which has shared libraries.
test-story: require-test-members ## Real servers in pods: a change, a cluster without power, a deletion (root): 5 min
	@$(BUILD)
	@MCZK_BIN="$(MCZK)" "$(DEBUG)/members" --story short

test-upgrades: require-test-members ## Karmada and Kubernetes become newer under real servers in pods (root): 10 min
	@$(call ANNOUNCE,45)
	@$(BUILD)
	@"$(DEBUG)/rig" tools --nodes --without-helm --tools-module "$(CURDIR)/tests/karmada/1.17" >/dev/null
	@"$(DEBUG)/rig" tools --nodes >/dev/null
	@"$(DEBUG)/rig" tools --kubernetes-module "$(NEXT_KUBERNETES)" >/dev/null
	@MCZK_TOOLS_MODULE="$(CURDIR)/tests/karmada/1.17" MCZK_NEXT_KUBERNETES_MODULE="$(NEXT_KUBERNETES)" MCZK_BIN="$(MCZK)" \
		"$(DEBUG)/members" --story upgrades $(MEMBERSFLAGS)

test-upgrades: NEXT_KUBERNETES = $(CURDIR)/tests/kubernetes/$(or $(KUBERNETES),1.36)

test-install: require-test-members ## mczk install and uninstall, with pods (root): 5 min
	@$(call ANNOUNCE,20)
	@test -n "$(RELEASE)" || $(BUILD_STATIC)
	@$(BUILD)
	@bin=$(if $(RELEASE),$$(release/unpack.sh "$(RELEASE)" "$(CACHE)/unpacked"),"$(STATIC)") && MCZK_BIN="$$bin" "$(DEBUG)/installation"

test-layouts: require-test-layouts ## mczk install on Karmada by karmadactl init, chart and operator (root): 12 min
	@$(call ANNOUNCE,20)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/layouts" $(LAYOUTS)

test-skew: require-test-members ## Two versions of mczk in every combination, on nodes (root): 10 min
	@$(call ANNOUNCE,30)
	@$(BUILD_NEWER)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/members" --story versions --other-mczk "$(NEWER)"

# It compiles all dependencies with other flags: 5 minutes the first time.
fuzz: require-fuzz ## Search for inputs that break what reads foreign bytes, 60 s each target: 6 min
	@CARGO="$(CARGO)" tests/fuzz/run.sh "$(FUZZ_SECONDS)" $(FUZZ_TARGETS)

chaos: require-chaos zookeeper $(LINEARIZABLE) ## Random changes and faults, from a seed (root): make chaos SEED=7 MINUTES=30
	@$(call ANNOUNCE,30)
	@$(BUILD_NEWER)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/chaos" --seed "$(SEED)" --minutes "$(MINUTES)" --zookeeper-lib "$(ZOOKEEPER_LIB)" \
		--linearizable "$(LINEARIZABLE)" --other-mczk "$(NEWER)" $(if $(OPERATIONS),--operations "$(OPERATIONS)") $(CHAOSFLAGS)

# Its results are in docs/lab/measurements.md.
soak: require-soak $(CURATOR_LIB)/.complete ## All scenarios and stories, kills at 180 moments, nine more seeds (root): 90 min
	@$(call ANNOUNCE,25)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/members" --curator-lib "$(CURATOR_LIB)" --story changes,faults,incarnations,move,pauses,kills,growth,failover,two-clusters
	@$(MAKE) --no-print-directory test-nodes test-e2e
	@set -e; for seed in 2 3 4 5 6 7 8 9 10; do \
		PROPTEST_RNG_SEED=$$seed $(PROGRESS) "generated test cases, seed $$seed" $(CARGO) test --workspace \
			--lib --test plan_properties --test server_start --test ensemble; \
	done

bench: bench-webhook ## All benchmarks of the webhook: 6 min

# Karmada's example of an interpreter webhook. The module pins it without a line for the tool, as tests/rig/src/tools.rs says.
KARMADA_VERSION := $(shell sed -n 's|.*github.com/karmada-io/karmada v\([0-9.]*\).*|\1|p' tests/karmada/go.mod)
KARMADA_EXAMPLE := $(CACHE)/tools/karmada-example-webhook-$(KARMADA_VERSION)

# The benchmark has a server in it, which is optimised as mczk is.
bench-webhook: require-bench-webhook $(KARMADA_EXAMPLE) ## The webhook beside Karmada's example in Go, under load: 6 min
	@$(call ANNOUNCE,20) >&2
	@$(PROGRESS) "building mczk, optimised" $(CARGO) build --release --package mczk --bin mczk
	@$(PROGRESS) "building the benchmark, optimised" $(CARGO) build --release --package e2e --bin bench-webhook
	@MCZK_BIN="$(CARGO_TARGET_DIR)/release/mczk" "$(CARGO_TARGET_DIR)/release/bench-webhook" \
		--example "$(KARMADA_EXAMPLE)" $(BENCHFLAGS)

bench-slow-clients: require-bench-webhook ## 5,000 slow clients at once while calls to the webhook continue: 2 min
	@$(call ANNOUNCE,15) >&2
	@$(PROGRESS) "building mczk, optimised" $(CARGO) build --release --package mczk --bin mczk
	@$(PROGRESS) "building the benchmark, optimised" $(CARGO) build --release --package e2e --bin bench-webhook
	@ulimit -n 20000 && MCZK_BIN="$(CARGO_TARGET_DIR)/release/mczk" "$(CARGO_TARGET_DIR)/release/bench-webhook" slow-clients \
		$(BENCHFLAGS)

$(KARMADA_EXAMPLE): | require-bench-webhook
	@mkdir -p "$(@D)"
	@$(PROGRESS) "building Karmada's example of a webhook" env CGO_ENABLED=0 GOWORK=off \
		go build -C tests/karmada -mod=readonly -trimpath -ldflags "-s -w" -o "$@" \
		github.com/karmada-io/karmada/examples/customresourceinterpreter/webhook

bench-transitions: require-bench-transitions ## Time from a cluster's report to the next cluster's change: 3 min
	@$(call ANNOUNCE,20)
	@$(BUILD)
	@$(PROGRESS) "building mczk, optimised" $(CARGO) build --release --package mczk --bin mczk
	@MCZK_BIN="$(CARGO_TARGET_DIR)/release/mczk" "$(DEBUG)/bench-transitions" $(BENCHFLAGS)

# Most of the time stores 10,000 ensembles. RIG_DIR names a folder in which they stay: BENCHFLAGS=--keep.
bench-scale: require-bench-scale ## 10,000 ensembles beside one operator, on a real karmada-apiserver: 30 min
	@$(call ANNOUNCE,20) >&2
	@$(BUILD) >&2
	@$(PROGRESS) "building mczk, optimised" $(CARGO) build --release --package mczk --bin mczk
	@$(PROGRESS) "building the benchmark, optimised" $(CARGO) build --release --package e2e --package rig --bin bench-scale --bin rig
	@MCZK_BIN="$(CARGO_TARGET_DIR)/release/mczk" "$(CARGO_TARGET_DIR)/release/bench-scale" $(BENCHFLAGS)

bench-pauses: require-bench-pauses ## How long writes pause in a rollout and after kill -9 of the leader (root)
	@$(call ANNOUNCE,25)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/members" --story pauses $(MEMBERSFLAGS)

bench-elections: require-bench-elections zookeeper ## How long an election pauses writes, with real ZooKeeper alone (root): 8 min
	@tests/elections/measure.py power $(BENCHFLAGS)
	@tests/elections/measure.py stop $(BENCHFLAGS)

bench-ensemble: require-bench-ensemble ## An ensemble under mczk beside the same ZooKeeper started by hand (root): 8 min
	@$(call ANNOUNCE,25)
	@$(BUILD_STATIC)
	@$(BUILD)
	@MCZK_BIN="$(STATIC)" "$(DEBUG)/bench-ensemble" $(BENCHFLAGS)

build: require-build ## Build `mczk`, optimised
	@$(PROGRESS) "building mczk, optimised" $(CARGO) build --release --package mczk --bin mczk
	@echo "built $(CARGO_TARGET_DIR)/release/mczk"

static: require-static ## Build `mczk` without shared libraries, for images
	@$(BUILD_STATIC)
	@echo "built $(STATIC)"

programs: require-programs ## Build `mczk` and `rig` for PATH: eval "$(make -s programs)"
	@$(BUILD) >&2
	@echo 'export PATH="$(DEBUG):$$PATH"'

federation: require-federation$(if $(findstring --nodes,$(RIGFLAGS)),-nodes) ## Start a real Karmada federation, and leave it running
	@$(call ANNOUNCE,16) >&2
	@$(BUILD)
	@"$(DEBUG)/rig" up $(RIGFLAGS)

federation-down: require-federation-down ## Take the federation down
	@$(BUILD)
	@"$(DEBUG)/rig" down

federation-status: require-federation-status ## Show the components of the federation
	@$(BUILD)
	@"$(DEBUG)/rig" status

crds: require-crds ## Write manifests/crds from the Rust types
	@$(BUILD)
	@"$(DEBUG)/mczk" crds --dir manifests/crds

# Variables of the environment are flags of mczk, and must not reach what is generated.
REGISTER := unset $$(env | sed -n 's/^\(MCZK_[A-Z_]*\)=.*/\1/p'); "$(DEBUG)/mczk" register --dry-run
manifests: require-manifests crds ## Write the generated manifests
	@$(REGISTER) --only propagation > manifests/propagation.yaml
	@$(REGISTER) --only rbac > manifests/rbac.yaml
	@$(REGISTER) --only interpreter --service mczk-system/mczk > manifests/interpreter.yaml
	@manifests/operator.sh "$$("$(DEBUG)/rig" tools)/helm" > manifests/operator.yaml

requirements: ## List what the targets need, and what is missing here
	@tests/requirements.sh --list

prerequisites: require-prerequisites ## Install what `make test` needs

prerequisites-nodes: require-prerequisites-nodes ## Install what the targets for root need besides

clean: ## Remove what Cargo built; Go programs and images stay
	$(CARGO) clean

include docs/docs.mk image/image.mk release/release.mk
