# Every target works on a clean clone with the Go toolchain, python3 and make, without root; `make` alone lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# make run: STORE=memory needs no Valkey, ENVOY=no runs the origin alone.
STORE ?= valkey
ENVOY ?= yes
# make images: their tag.
TAG ?= dev
# make bench: runs of each benchmark (benchstat wants 6 or more), which ones, and of which packages: those that measure by
# rounds of their own have targets of their own.
COUNT ?= 6
BENCH ?= .
BENCH_IN ?= $$(go list ./... | grep -v '/e2e\|/wasmvectors\|/benchorigin')
# make fuzz: how long in all for each package, and which packages.
FUZZTIME ?= 5m
FUZZ ?= ./...

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# What the surroundings say, before targets say so themselves: a laptop may do without a container engine.
CI_OUTSIDE := $(CI)
CODE := $(wildcard edge envoy e2e origin plugin shared)
# What runs Wasm runs without the race detector, which the wazero host is too slow under.
UNIT = $$(go list ./... | grep -v '/e2e\|/wasmvectors')

.PHONY: help tools build images compose compose-push compose-down run replay campaign numbers test check-fast test-wasm test-container vectors e2e soak faults alerts fuzz bench bench-edge bench-origin bench-peers lint fmt clean unit vectors-386 FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tools: ## Fetch the pinned Envoy, Valkey and linter into .tools (WEIR_ENVOY=, WEIR_VALKEY= bring your own)
	@sh .ci/tools/fetch

build: build/weir-edge.wasm build/weir-edge-fault.wasm build/weir ## Build the filter, its fault-test twin and the weir binary into build/

# Go's build cache knows better than file times what is stale, so these always ask it. The first time takes a while.
build/weir-edge.wasm: FORCE
	@mkdir -p build
	@[ -e $@ ] || echo 'building $@ ...'
	@go run ./plugin/mkwasm -o $@

build/weir-edge-fault.wasm: FORCE build/weir-edge.wasm
	@go run ./plugin/mkwasm -tags weirfault -o $@

# What a Wasm filter costs before it does anything, for make bench-edge.
build/empty.wasm: FORCE build/weir-edge.wasm
	@go run ./plugin/mkwasm -package ./plugin/empty -o $@

build/weir: FORCE
	@mkdir -p build
	@[ -e $@ ] || echo 'building $@ ...'
	@CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o $@ ./origin/cmd/weir

images: tools build ## Write the container images into build/images/ and tell their digests; needs no engine
	@go run ./envoy/mkimages -o build/images -tag '$(TAG)'

COMPOSE = $$(docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose) -p weir -f envoy/compose.yaml
compose compose-push compose-down: export WEIR_TAG = $(TAG)
compose compose-push compose-down: export WEIR_FILES = $(CURDIR)/build/compose/files

compose: images ## Run the system in containers, the edge on 127.0.0.1:8080 (WEIR_PORT=)
	@for image in weir weir-envoy weir-valkey; do docker load -q -i build/images/$$image.tar || exit 1; done
	@envoy/compose/prepare build/compose
	@$(COMPOSE) up -d
	@echo 'waiting for the edge to be healthy ...'
	@edge=$$($(COMPOSE) ps -q edge); tries=120; \
		until [ "$$(docker inspect -f '{{.State.Health.Status}}' $$edge)" = healthy ]; do \
			tries=$$((tries - 1)); [ $$tries -gt 0 ] || { $(COMPOSE) logs --tail 20; exit 1; }; sleep 1; \
		done

compose-push: ## Give the edge of make compose the rules and keys in build/compose/files
	@$(COMPOSE) run --rm bundle && $(COMPOSE) run --rm --no-deps filter

compose-down: ## End what make compose started
	@$(COMPOSE) down --volumes

RUN_TOOLS := $(if $(filter no,$(ENVOY)),,envoy) $(if $(filter memory,$(STORE)),,valkey)
RUN_BUILD := build/weir $(if $(filter no,$(ENVOY)),,build/weir-edge.wasm)

run: $(RUN_BUILD) ## Run the whole system on loopback ports (STORE=memory, ENVOY=no to leave parts out)
	@$(if $(strip $(RUN_TOOLS)),sh .ci/tools/fetch $(RUN_TOOLS))
	@exec build/weir run --store '$(STORE)' --envoy '$(ENVOY)'

# In these a missing part is a fault, not a reason to skip.
test test-wasm vectors e2e: export CI = true

test: tools build lint unit alerts vectors e2e test-container ## Everything: lint, unit tests under the race detector, alerts, vectors on all targets, e2e on real parts

# The edge's engine and what packs images have one goroutine, so the race detector would only cost a minute there; what
# counts allocations runs without it everywhere, since it allocates itself.
unit: export WEIR_WASM = $(CURDIR)/build/weir-edge.wasm
unit: build/weir-edge.wasm
	@command -v cc >/dev/null || command -v gcc >/dev/null || { echo 'make unit: the race detector needs a C compiler: install gcc or clang (Debian: apt install gcc libc6-dev)' >&2; exit 1; }
	@go test -race $$(go list ./... | grep -v -e '/e2e' -e '/edge' -e '/mkimages' -e '/wasmvectors')
	@go test ./edge/... ./envoy/mkimages
	@go test -run Alloc $(UNIT) >build/alloc.log 2>&1 || { cat build/alloc.log; exit 1; }

# Prometheus, which reads and evaluates them, is a dependency of that module alone.
alerts: ## The Prometheus alerts: each fires and is silent as its unit test says
	@mkdir -p build
	@cd origin/alerts/internal/evaluate && go test -count=1 -v . >$(CURDIR)/build/alerts.log 2>&1 || { cat $(CURDIR)/build/alerts.log; exit 1; }
	@grep '^alerts: ' build/alerts.log

# verbose runs `go test -v $(1)` into the log build/$(2).log, which is long: what passes is told by its summary lines,
# what fails in full.
define verbose
	@echo '$(2): running, log in build/$(2).log'
	@go test -count=1 -timeout 30m -v $(1) >build/$(2).log 2>&1 || { cat build/$(2).log; exit 1; }
	@grep -E '^ok|scenarios:|bound: |control: |vectors: |NOT TESTED' build/$(2).log
endef

vectors: vectors-386 ## The algorithms' vectors on native code, 386, Wasm and the stores; prints how many ran where
	@mkdir -p build
	$(call verbose,-run 'Vector|Conformance' ./shared/limit ./shared/limit/internal/wasmvectors ./origin/internal/store/...,vectors)

# All tests of the algorithms, for what is 32 bits wide there.
vectors-386: export GOARCH = 386
vectors-386: export CGO_ENABLED = 0
vectors-386:
	@mkdir -p build
	$(call verbose,./shared/limit,vectors-386)

e2e: tools build ## Scenarios on the built filter, real Envoy, real Valkey; prints how many ran on which target
	$(call verbose,-skip 'TestScenarios/container|TestContainers' ./e2e/...,e2e)

# Where none answers, that is fatal under CI=true from outside; on a laptop the output says NOT TESTED.
test-container: export CI = $(CI_OUTSIDE)
test-container: images ## Scenarios with Envoy, origin and Valkey each in a container; the compose file (needs a container engine)
	$(call verbose,-run 'TestScenarios/container|TestContainers' ./e2e,test-container)

SOAK ?= 20m
soak: tools build ## Everything an attacker has, at once on a real Envoy, for SOAK=20m: answers, memory, no reload
	@CI=true go test -count=1 -timeout 3h -v -run 'TestSoak$$' ./e2e -args -soak $(SOAK)

FAULT_RATE ?= 2000
faults: export CI = true
faults: tools ## What can go wrong with the store: each fault, a tally through a failover, a stopped server at 2,000 calls/s (FAULT_RATE=2000)
	@mkdir -p build
	@echo 'faults: running, some minutes, log in build/faults.log'
	@go test -count=1 -v -run 'TestScenarios$$|TestATally' ./origin/internal/faults >build/faults.log 2>&1 || { cat build/faults.log; exit 1; }
	@go test -count=1 -v -run 'TestAStoppedStore' ./origin/internal/faults -args -rate $(FAULT_RATE) -stopped 20s -deadline 10ms >>build/faults.log 2>&1 || { cat build/faults.log; exit 1; }
	@grep -E '^(fault|faults:|tally:|stopped:)' build/faults.log

test-wasm: tools build ## The built filter alone: its imports and exports, our wazero host, the scenarios on it
	@go test -count=1 ./plugin/... ./e2e/wasmhost/...
	$(call verbose,-run 'TestScenarios/wasmhost' ./e2e,test-wasm)

check-fast: ## Under a minute: vet and the short unit tests
	@go vet ./...
	@go test -short $(UNIT)

replay: ## The retry storm of 60,000 calls/s whole and an access log of 5 million lines: verdicts, figures, memory
	@go test -count=1 -timeout 30m -v -run 'Storm|MemoryDoesNotGrow' ./origin/internal/replay -args -storm-share 1 -storm-minutes 3 -log-lines 5000000

CAMPAIGN ?= 30m
campaign: ## Random histories of processes, clients and faults in virtual time against every promise, for CAMPAIGN=30m
	@go test -count=1 -timeout 24h -v -run 'TestCampaign$$' ./origin/internal/campaign -args -for $(CAMPAIGN)

# What is counted stands in the table; the sizes of rules and keys are measured where they are made.
numbers: export CI = true
numbers: tools ## The origin's figures that the design promises, each with the one measured (some ten minutes)
	@mkdir -p build
	@echo 'numbers: running, log in build/numbers.log'
	@go test -count=1 -timeout 60m -v ./origin/internal/numbers -args -full >build/numbers.log 2>&1 || { cat build/numbers.log; exit 1; }
	@go test -count=1 -v -run 'TenThousandRulesFit|TableOf400000Keys' ./shared/rule ./origin/internal/keys >>build/numbers.log 2>&1 || { cat build/numbers.log; exit 1; }
	@grep -E '^number: |rules take|keys: ' build/numbers.log

fuzz: ## Fuzz every package for FUZZTIME in all (FUZZTIME=5m, FUZZ=./shared/limit)
	@sh .ci/fuzz '$(FUZZTIME)' $(FUZZ)

bench: ## Benchmarks as benchstat reads them (COUNT=6, BENCH=regexp, BENCH_IN=./shared/limit)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(BENCH_IN)

# CPU is measured by rounds of its own (ROUNDS, REQUESTS in each); the engine's and the bundle's benchmarks go first.
ROUNDS ?= 41
REQUESTS ?= 800

bench-edge: tools build build/empty.wasm ## CPU of a request in one Envoy worker: bare, Envoy's own limiter, Weir (ROUNDS=41, REQUESTS=800)
	@go test -run '^$$' -bench 'Decide|Install|Decode' -benchtime 300ms ./edge ./shared/bundle
	@go test -run '^$$' -bench '^BenchmarkEdge$$' -benchtime 1x -timeout 20m ./e2e/benchedge -rounds $(ROUNDS) -requests $(REQUESTS)

# Rounds and trials of its own (STORE_ROUNDS, TRIAL); a line with # stands beside what the design expects.
STORE_ROUNDS ?= 9
TRIAL ?= 4s

bench-origin: tools ## What a decision costs: store CPU by strategy, checks/s beside the store, gateway and allocations (STORE_ROUNDS=9)
	@go test -run '^$$' -bench '^BenchmarkCheck$$' -benchmem ./origin/internal/limiter
	@go test -run '^$$' -bench '^BenchmarkGateway$$' -benchtime 3s ./origin/internal/gateway
	@go test -run '^$$' -bench '^BenchmarkStore$$' -benchtime 1x -timeout 60m ./origin/internal/benchorigin -rounds $(STORE_ROUNDS)
	@go test -run '^$$' -bench '^BenchmarkCheck$$' -benchtime 1x -timeout 60m ./origin/internal/benchorigin -trial $(TRIAL)

bench-peers: ## The algorithms and the memory store beside throttled, go-limiter, x/time/rate, httprate and ulule, in one run (COUNT=6, BENCH=regexp)
	@cd shared/limit/internal/peers && go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) .
	@cd origin/internal/store/memory/internal/peers && go test && go test -run '^$$' -bench '$(BENCH)' -benchtime 1x .

# Of plugin/, only abi differs between the targets.
lint: ## gofmt, go vet for both targets, staticcheck
	@sh .ci/tools/fetch staticcheck
	@bad=$$(gofmt -l $(CODE)); [ -z "$$bad" ] || { echo "gofmt would change (make fmt):"; echo "$$bad"; exit 1; }
	@go vet ./...
	@GOOS=wasip1 GOARCH=wasm go vet ./shared/... ./edge/... ./plugin/abi
	@.tools/bin/staticcheck ./...

fmt: ## Format the Go code
	@gofmt -w $(CODE)

clean: ## Remove build/ (the fetched tools stay; rm -r .tools removes them)
	@rm -rf build
