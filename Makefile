# Every check has its fix; CI calls these targets and nothing else. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)
MODULES := $(shell sed -n 's|^\t\./||p' go.work)
# Tools are pinned in modules of their own, so that they do not choose the versions of what we ship.
tool = cd tools/$(1) && GOWORK=off go build -trimpath -o $(BIN)/ $(2)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "this needs root: the cluster's nodes are namespaces and control groups of this machine"; exit 1; }

.PHONY: demo
demo: root images $(BIN)/akri-demo ## A cluster, the mesh, a real device plugged in and out; the cluster stays
	$(BIN)/akri-demo

.PHONY: demo-down
demo-down: root $(BIN)/akri-cluster ## Remove the demo's cluster
	$(BIN)/akri-cluster down

##@ Build

.PHONY: prerequisites
prerequisites: ## Install what building needs from Debian (when root), or say what to install
	@tools/prerequisites.sh

.PHONY: test-prerequisites
test-prerequisites: prerequisites
	@tools/prerequisites.sh tests

.PHONY: binaries
binaries: $(BIN)/akri-cluster ## Build Kubernetes, etcd, containerd, CoreDNS and helm from their Go modules (minutes, once)
	@$(BIN)/akri-cluster binaries > /dev/null

.PHONY: images
images: prerequisites $(BIN)/akri-image ## Build the image of every service into the cache
	$(BIN)/akri-image build

# What a tag in the repository releases: images for every platform, and the charts.
TAG ?=
REGISTRY ?= ghcr.io/akri-mesh

.PHONY: release
release: prerequisites binaries $(BIN)/akri-image ## Push images and charts: make release TAG=v1.2.3 REGISTRY=ghcr.io/me
	@[[ "$(TAG)" =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || { echo "TAG=$(TAG): want the version to release, such as v1.2.3"; exit 1; }
	tools/cross.sh
	$(BIN)/akri-image push --registry $(REGISTRY) --tag $(TAG) --version $(TAG)
	tools/release-charts.sh $$($(BIN)/akri-cluster binaries helm)/helm $(TAG) $(REGISTRY)

$(BIN)/akri-cluster $(BIN)/akri-demo $(BIN)/akri-bench: FORCE | $(BIN)
	@cd integration && go build -o $(BIN)/ ./cmd/$(@F)

$(BIN)/akri-image: FORCE | $(BIN)
	@cd tools/akri-image && GOWORK=off go build -o $(BIN)/ .

$(BIN):
	@mkdir -p $@

.PHONY: FORCE
FORCE:

##@ Test

.PHONY: test
test: root verify-generate ## Everything: verify, unit tests, end-to-end tests on a real cluster
	$(MAKE) --no-print-directory -j4 verify-as-is test-unit images
	$(MAKE) --no-print-directory test-e2e

.PHONY: test-unit
test-unit: test-services test-tools ## Unit tests of every module, those of the services with the race detector

# More at once than there are processors: they wait for an API server, or for time to pass, most of the time. The longest begin.
LONGEST := services/instance-writer services/device-plugin-host services/broker-controller services/discovery-operator
.PHONY: test-services
test-services: test-prerequisites binaries
	go test -race -p 4 -parallel 8 -count=1 $(addsuffix /...,$(addprefix ./,$(LONGEST) $(filter-out integration charts $(LONGEST),$(MODULES)))) ./integration/cluster/binaries/...

.PHONY: test-tools
test-tools: test-prerequisites binaries
	cd tools/akri-image && GOWORK=off go test -count=1 ./...
	cd tools/cluster && GOWORK=off go test -count=1 ./...

.PHONY: test-e2e
test-e2e: root test-prerequisites images binaries ## End-to-end tests: real kubelets, containerd, API server, devices
	cd integration && go test -count=1 ./devices # alone: others plug in devices of that kind too
	cd integration && go test -p 2 -parallel 6 -count=1 -timeout 40m ./e2e $$(go list ./... | grep -v -e '/integration/devices$$' -e '/integration/e2e$$') # the longest first

.PHONY: test-long
test-long: root test-prerequisites images binaries ## The tests that a release needs: 100,000 calls on slots, 100 deletions of pods, a minute without API server, kubelets as they are by default, 1,000 cameras, all on the agent
	cd services/instance-writer && AKRI_MODEL_OPERATIONS=100000 go test -count=1 -timeout 30m -v -run TestSlotsAreLinearizable .
	cd integration && AKRI_E2E_KUBELET=default AKRI_E2E_DELETIONS=100 AKRI_E2E_AWAY=1m go test -parallel 4 -count=1 -timeout 40m -v ./e2e
	cd integration && AKRI_E2E_AGENT=1 go test -parallel 4 -count=1 -timeout 40m -v ./e2e
	cd integration && AKRI_ONVIF_CAMERAS=1000 go test -count=1 -v -run Many ./devices/onvif

# What was found before is kept in testdata/fuzz, which every go test runs: this looks for more.
.PHONY: fuzz
fuzz: prerequisites ## Fuzz every parser, each for AKRI_FUZZ_TIME (10s); AKRI_FUZZ_KEEP=12 keeps what leads somewhere new
	tools/fuzz.sh

.PHONY: bench
bench: root images binaries $(BIN)/akri-bench ## Measure; prints the tables that docs/benchmarks.md keeps
	$(BIN)/akri-bench

##@ Verify, and fix

.PHONY: verify
verify: verify-generate verify-as-is ## All checks that need no cluster

# These write nothing that others read: they can run beside builds.
.PHONY: verify-as-is
verify-as-is: verify-format verify-tidy verify-proto verify-charts lint

.PHONY: generate
generate: $(BIN)/protoc-gen-go $(BIN)/buf $(BIN)/controller-gen ## Regenerate protobuf code, deep copies, CRDs, go.work and the charts' schemas
	cd proto && buf generate
	cd libs/apis && GOWORK=off controller-gen object paths=./... crd:ignoreUnexportedFields=true paths=./... output:crd:dir=../../charts/akri-crds/generated
	@for crd in charts/akri-crds/generated/akri.sh_*.yaml; do mv $$crd charts/akri-crds/templates/$${crd##*akri.sh_}; done; rmdir charts/akri-crds/generated
	cp charts/akri-crds/templates/*.yaml charts/akri/crds/
	go work use ./services/*
	cd charts && go run ./cmd/generate

.PHONY: verify-generate
verify-generate: ## Generated files are what their sources say (fix: make generate)
	@tools/unchanged.sh "make generate" make --no-print-directory generate

.PHONY: format
format: ## Format Go code
	@gofmt -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: verify-format
verify-format: ## Go code is formatted (fix: make format)
	@files=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$files" ] || { echo "not formatted, run make format:"; echo "$$files"; exit 1; }

.PHONY: tidy
tidy: ## Tidy every module and bring all to one version of each dependency
	@tools/tidy.sh

.PHONY: verify-tidy
verify-tidy: ## go.mod files are tidy and agree on versions (fix: make tidy)
	@for module in $(MODULES); do (cd $$module && GOWORK=off go mod tidy -diff >/dev/null) || { echo "$$module is not tidy, run make tidy"; exit 1; }; done
	@tools/one-version.sh $(MODULES)

.PHONY: verify-proto
verify-proto: $(BIN)/buf ## Protobuf files follow the style, and v0 and released APIs are not broken
	cd proto && buf lint && buf breaking --against released.binpb

.PHONY: verify-charts
verify-charts: binaries ## Charts lint, render what the golden files say, refuse misspelt values (fix: make charts)
	cd charts && go test -count=1 ./...

.PHONY: charts
charts: binaries ## Regenerate the charts' schemas, the table of handlers and the golden renders
	cd charts && go run ./cmd/generate && go test ./... -update

.PHONY: lint
lint: $(BIN)/golangci-lint prerequisites ## Static checks (fix: make lint-fix)
	golangci-lint run $(addsuffix /...,$(addprefix ./,$(MODULES)))

.PHONY: lint-fix
lint-fix: $(BIN)/golangci-lint ## Static checks, mending what can be mended
	golangci-lint run --fix $(addsuffix /...,$(addprefix ./,$(MODULES)))

$(BIN)/buf: tools/buf/go.mod | $(BIN)
	$(call tool,buf,github.com/bufbuild/buf/cmd/buf)
	@touch $@

$(BIN)/protoc-gen-go: tools/protoc-gen/go.mod | $(BIN)
	$(call tool,protoc-gen,google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc)
	@touch $@

$(BIN)/controller-gen: tools/controller-gen/go.mod | $(BIN)
	$(call tool,controller-gen,sigs.k8s.io/controller-tools/cmd/controller-gen)
	@touch $@

$(BIN)/golangci-lint: tools/golangci-lint/go.mod | $(BIN)
	$(call tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
	@touch $@

.PHONY: clean
clean: ## Remove what was built in this folder (the cache stays)
	rm -rf $(BIN)
