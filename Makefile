# Each check has a fix. CI runs only these targets. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)
MODULES := $(shell sed -n 's|^\t\./||p' go.work)
# Each tool is pinned in its own module, so that it does not change the dependencies of the services.
tool = cd tools/$(1) && GOWORK=off go build -trimpath -o $(BIN)/ $(2)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "run this as root: the cluster's nodes are namespaces and control groups of this machine"; exit 1; }

.PHONY: demo
demo: root prerequisites ## Start a cluster, install Akri, plug a real device in and out; the cluster keeps running
	@echo "Step 1 of 5: compile the commands of the demo"
	@$(MAKE) --no-print-directory $(BIN)/akri-image $(BIN)/akri-cluster $(BIN)/akri-demo
	@$(BIN)/akri-demo

.PHONY: demo-down
demo-down: root $(BIN)/akri-cluster ## Remove the demo's cluster
	$(BIN)/akri-cluster down

##@ Build

.PHONY: prerequisites
prerequisites: ## Install the Debian packages for building (as root), or list them
	@tools/prerequisites.sh

.PHONY: test-prerequisites
test-prerequisites: prerequisites
	@tools/prerequisites.sh tests

.PHONY: binaries
binaries: $(BIN)/akri-cluster ## Build Kubernetes, etcd, containerd, CoreDNS and helm from their Go modules (takes minutes the first time)
	@$(BIN)/akri-cluster binaries > /dev/null

.PHONY: images
images: prerequisites $(BIN)/akri-image ## Build the images of all services into the cache
	$(BIN)/akri-image build

# For tests under emulation. Each archive has the processor in its name.
ARM_IMAGES := $(BIN)/images-arm
.PHONY: images-arm
images-arm: release-prerequisites $(BIN)/akri-image ## Build the images of all services for linux/arm64 and linux/arm/v7 into bin/images-arm
	$(BIN)/akri-image build --platform linux/arm64,linux/arm/v7 --out $(ARM_IMAGES)

# The shell expands TAG, not make: the name of a tag can contain commands.
REGISTRY ?= ghcr.io/akri-mesh
RELEASE := $(BIN)/release

.PHONY: samples
samples: export TAG := $(or $(value TAG),dev)
samples: | $(BIN) ## Write the samples to bin/samples, with images of this source or others: make samples TAG=v1.2.3 REGISTRY=ghcr.io/me
	@tools/samples.sh "$(REGISTRY)" "$$TAG" $(BIN)/samples

# A release has images for all platforms and the charts.
.PHONY: release
release: export TAG := $(value TAG)
release: binaries $(BIN)/akri-image $(BIN)/cosign ## Push and sign images and charts: make release TAG=v1.2.3 REGISTRY=ghcr.io/me
	@[[ "$$TAG" =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$$ ]] || { echo "TAG=$$TAG must be a version, such as v1.2.3"; exit 1; }
	rm -rf $(RELEASE)
	$(BIN)/akri-image push --registry $(REGISTRY) --tag "$$TAG" --version "$$TAG" --out $(RELEASE)
	tools/release-charts.sh $$($(BIN)/akri-cluster binaries helm)/helm "$$TAG" $(REGISTRY) $(RELEASE)
	tools/release-sign.sh $(RELEASE)

.PHONY: release-kubectl-akri
release-kubectl-akri: export TAG := $(value TAG)
release-kubectl-akri: $(BIN)/akri-image ## Build the archives of kubectl akri for all platforms, their SBOMs and its krew manifest: make release-kubectl-akri TAG=v1.2.3
	@[[ "$$TAG" =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$$ ]] || { echo "TAG=$$TAG must be a version, such as v1.2.3"; exit 1; }
	tools/release-kubectl-akri.sh "$$TAG" $(RELEASE)/kubectl-akri

.PHONY: sign-kubectl-akri
sign-kubectl-akri: $(BIN)/cosign ## Sign the files of release-kubectl-akri and attest their provenance and contents
	tools/release-sign-files.sh $(RELEASE)/kubectl-akri

.PHONY: release-prerequisites
release-prerequisites: prerequisites ## Install the Debian packages for releases (as root)
	@tools/release-prerequisites.sh

# With the flags of images and binaries, the demo compiles the packages that it shares with them once.
like_images := CGO_ENABLED=0 go build -trimpath
$(BIN)/akri-cluster $(BIN)/akri-demo: FORCE | $(BIN)
	@cd integration && $(like_images) -o $(BIN)/ ./cmd/$(@F)

$(BIN)/akri-bench $(BIN)/akri-soak: FORCE | $(BIN)
	@cd integration && go build -o $(BIN)/ ./cmd/$(@F)

# CGO_ENABLED=0 as in a release: the binary needs no library of the user's machine.
.PHONY: kubectl-akri
kubectl-akri: $(BIN)/kubectl-akri ## Build kubectl akri, the plugin of kubectl
$(BIN)/kubectl-akri: FORCE | $(BIN)
	@cd tools/kubectl-akri && CGO_ENABLED=0 go build -trimpath -o $(BIN)/ .

$(BIN)/akri-image: FORCE | $(BIN)
	@cd tools/akri-image && GOWORK=off $(like_images) -o $(BIN)/ .

$(BIN)/language $(BIN)/links: FORCE | $(BIN)
	@cd tools/$(@F) && GOWORK=off go build -o $(BIN)/ .

$(BIN):
	@mkdir -p $@

.PHONY: FORCE
FORCE:

##@ Document

# Pages, navigation and templates: docs/site/hugo.yaml.
SITE := $(BIN)/docs
hugo := hugo --source docs/site --noBuildLock --panicOnWarning

.PHONY: docs
docs: $(BIN)/hugo ## Build the site of the documentation in bin/docs; its pages work without a server and offline
	@$(hugo) --destination $(SITE) --cleanDestinationDir --quiet

.PHONY: docs-serve
docs-serve: $(BIN)/hugo ## Serve the site at http://localhost:1313 and rebuild it after changes
	$(hugo) server --renderToMemory

##@ Test

.PHONY: test
test: root verify-generate ## Run all checks, unit tests and end-to-end tests on a real cluster
	$(MAKE) --no-print-directory -j4 verify-as-is test-unit images $(BIN)/kubectl-akri
	$(MAKE) --no-print-directory test-built

.PHONY: test-unit
test-unit: test-services test-tools ## Run the unit tests of all modules, those of the services with the race detector

# The tests mostly wait for an API server or for timers, so more run at once than the machine has CPUs. The
# longest start first. `make lint` runs vet.
LONGEST := services/instance-writer services/device-plugin-host services/broker-controller services/discovery-operator
.PHONY: test-services
test-services: test-prerequisites binaries
	go test -race -vet=off -p 4 -parallel 8 -count=1 -timeout 20m $(addsuffix /...,$(addprefix ./,$(LONGEST) $(filter-out integration charts $(LONGEST),$(MODULES)))) ./integration/cluster/binaries/...

.PHONY: test-tools
test-tools: test-prerequisites binaries $(BIN)/cosign
	cd tools/akri-image && GOWORK=off go test -count=1 ./...
	cd tools/cluster && GOWORK=off go test -count=1 ./...
	cd tools/language && GOWORK=off go test -count=1 ./...
	cd tools/links && GOWORK=off go test -count=1 ./...

.PHONY: verify-release
verify-release: prerequisites binaries $(BIN)/cosign ## Release to a registry in memory, verify the signatures, tamper
	cd tools/akri-image && GOWORK=off go test -count=1 -v -run TestRelease .

.PHONY: test-e2e
test-e2e: root test-prerequisites images binaries $(BIN)/kubectl-akri ## Run the end-to-end tests: real kubelets, containerd, API server and devices
	$(MAKE) --no-print-directory test-built

# The end-to-end tests after the build.
.PHONY: test-built
test-built:
	mkdir -p $(dir $(VERDICTS)) && rm -f $(VERDICTS)
	cd integration && go test -count=1 ./devices # alone, because other tests plug in zram devices too
	$(MAKE) --no-print-directory -j2 --output-sync test-mesh test-forms test-parts test-devices
	cd integration && go test -count=1 -timeout 10m ./soak # alone, because its load would slow down the others
	$(MAKE) --no-print-directory test-attacks # alone, too
	@echo "Time until the cause of each fault was stated:"
	@sort -rn $(VERDICTS)

# The parts of test-e2e. Two of them run side by side, because their scenarios mostly wait; more than
# that exceeds the time limits of scenarios on two CPUs. The scenarios that plug in zram devices,
# which all clusters of the machine see, lock them.
VERDICTS := $(CURDIR)/out/verdicts.txt
e2e := AKRI_E2E_VERDICTS=$(VERDICTS) go test -count=1 -timeout 40m ./e2e
.PHONY: test-mesh test-forms test-parts test-devices test-attacks
test-mesh:
	cd integration && $(e2e) -parallel 4 -run '^TestMesh$$'
test-forms:
	cd integration && AKRI_E2E_DIR=/tmp/akri-e2e-forms $(e2e) -parallel 3 -skip '^(TestMesh|TestAttacks)$$'
test-attacks:
	cd integration && AKRI_E2E_DIR=/tmp/akri-e2e-forms $(e2e) -v -run '^TestAttacks$$'
test-parts:
	cd integration && go test -p 3 -count=1 -timeout 40m $$(go list ./... | grep -v -e '/integration/devices$$' -e '/integration/e2e$$' -e '/integration/soak$$')
# One part of test-vm: each device, without a cluster.
test-devices: test-prerequisites
	@tools/prerequisites.sh vm
	cd integration && AKRI_VM=1 go test -count=1 -timeout 20m -run '^TestDevices$$' ./vm

# A part of `make test-long`. A guest is emulated, so these tests take minutes and measure nothing.
.PHONY: test-vm
test-vm: root test-prerequisites images images-arm binaries ## Run the tests in virtual machines with a kernel and udev of their own: USB and PCIe devices, plugged, moved and pulled, and what happens to nodes
	@tools/prerequisites.sh vm && tools/prerequisites.sh arm
	cd integration && AKRI_VM=1 AKRI_ARM_IMAGES=$(ARM_IMAGES) go test -count=1 -timeout 90m -v ./vm

# A part of `make test-long`. QEMU emulates single programs, so this takes a minute after the build.
.PHONY: test-arm
test-arm: root test-prerequisites images-arm ## Run the programs of all images for linux/arm64 and linux/arm/v7
	@tools/prerequisites.sh arm
	cd integration && AKRI_ARM_IMAGES=$(ARM_IMAGES) go test -count=1 -timeout 20m -v ./emulation

# `make test` runs those scenarios on the agent that could differ from those on separate services.
.PHONY: test-agent
test-agent: root test-prerequisites images binaries $(BIN)/kubectl-akri ## Run all end-to-end scenarios on the agent
	cd integration && AKRI_E2E_AGENT=1 AKRI_E2E_LONG=1 go test -parallel 6 -count=1 -timeout 40m -run 'TestAgent|TestChanges' ./e2e

# `make test` runs TestDRA, the scenarios of Dynamic Resource Allocation.
.PHONY: test-dra
test-dra: root test-prerequisites images binaries $(BIN)/kubectl-akri ## Run the end-to-end scenarios of device plugins with Dynamic Resource Allocation
	cd integration && AKRI_E2E_RESOURCES=dra AKRI_E2E_LONG=1 go test -parallel 6 -count=1 -timeout 60m -v -run 'TestMesh|TestAgent|TestChanges' ./e2e

# Each is built from the module tools/kubernetes-<version>, which takes minutes the first time.
VERSIONS ?= 1.36 1.35 1.34 1.30
.PHONY: test-versions
test-versions: root test-prerequisites images binaries $(BIN)/kubectl-akri ## Run a part of the end-to-end scenarios on earlier versions of Kubernetes (VERSIONS)
	@cd integration && failed= && for version in $(VERSIONS); do \
		echo "Kubernetes $$version"; \
		AKRI_E2E_KUBERNETES=$$version go test -parallel 4 -count=1 -timeout 30m -v -run '^TestVersion' ./e2e || failed+=" $$version"; \
	done; [ -z "$$failed" ] || { echo "tests failed on Kubernetes$$failed"; exit 1; }

.PHONY: test-long
test-long: root test-prerequisites images binaries $(BIN)/kubectl-akri test-agent ## Run the release tests: 100,000 slot calls, 100 pod deletions, one minute without API server, 40 evictions of each cluster service, one minute of attacks, 200 unplugged devices, 30 random faults, 15 deleted objects, a restored etcd, 5 minutes of random failures on three nodes, kubelet defaults, Dynamic Resource Allocation, the earlier versions of Kubernetes, the upgrade from an earlier commit, the move from upstream Akri, 15 minutes of silence, the grace of 5 minutes, 5 minutes of soak, 10 minutes of churn, 1,000 cameras, 10 minutes of video in a page, five killed demos, programs for ARM, virtual machines, the agent
	cd services/instance-writer && AKRI_MODEL_OPERATIONS=100000 go test -count=1 -timeout 30m -v -run TestSlotsAreLinearizable .
	cd services/discovery-operator && AKRI_SILENCE=15m go test -count=1 -timeout 30m -v -run TestLongSilence .
	cd services/discovery-operator && AKRI_DEFAULT_GRACE=1 go test -count=1 -timeout 10m -v -run TestDefaultGrace .
	cd services/registrar && AKRI_DEFAULT_GRACE=1 go test -count=1 -timeout 10m -v -run TestDefaultKeepOffline .
	AKRI_E2E_KUBELET=default AKRI_E2E_DELETIONS=100 AKRI_E2E_AWAY=1m AKRI_E2E_EVICTIONS=40 AKRI_E2E_FLAPS=200 AKRI_E2E_WALK=30 AKRI_E2E_OBJECTS=15 AKRI_E2E_LONG=1 AKRI_CAMERAS=1m $(MAKE) -j2 --output-sync test-mesh test-forms
	AKRI_E2E_ATTACK=60s $(MAKE) test-attacks
	cd integration && AKRI_E2E_NODES=node-a,node-b,node-c AKRI_E2E_RANDOM=5m go test -count=1 -timeout 20m -v -run TestDRA/drarandom ./e2e
	$(MAKE) test-dra
	$(MAKE) test-versions
	$(MAKE) test-arm
	$(MAKE) test-vm
	cd integration && AKRI_E2E_FROM=e3481997 go test -count=1 -timeout 40m -v -run TestUpgrade ./e2e
	cd integration && AKRI_E2E_MOVE=1 go test -count=1 -timeout 20m -v -run TestMove ./e2e
	cd integration && AKRI_SOAK=5m go test -count=1 -timeout 20m -v -run TestSoak ./soak
	cd integration && AKRI_CHURN=10m go test -count=1 -timeout 20m -v -run TestChurn ./simulation
	cd integration && AKRI_CYCLES=10m go test -count=1 -timeout 20m -v -run TestCycles ./simulation
	cd integration && AKRI_ONVIF_CAMERAS=1000 go test -count=1 -v -run Many ./devices/onvif
	cd integration && AKRI_CAMERAS=10m go test -count=1 -timeout 20m -v -run TestPage ./devices/rtsp
	$(MAKE) $(BIN)/akri-image $(BIN)/akri-cluster $(BIN)/akri-demo
	cd integration && AKRI_DEMO=5 go test -count=1 -timeout 30m -v -run TestKilledDemo ./demo

# `go test` runs the inputs in testdata/fuzz. This target searches for new ones.
.PHONY: fuzz
fuzz: prerequisites ## Fuzz each parser for AKRI_FUZZ_TIME (10s); AKRI_FUZZ_KEEP=12 keeps inputs with new coverage
	tools/fuzz.sh

.PHONY: bench
bench: root images binaries $(BIN)/akri-bench ## Measure and print the tables of docs/benchmarks.md, and honest latencies with and without an attack
	$(BIN)/akri-bench
	cd integration && AKRI_E2E_ATTACK=60s go test -count=1 -timeout 10m -v -run '^TestAttacks$$' ./e2e

.PHONY: bench-scale
bench-scale: root binaries $(BIN)/akri-bench ## Measure 100, 500 and 1,000 simulated nodes and print the table of docs/scale.md (about an hour)
	$(BIN)/akri-bench --only scale

.PHONY: soak
soak: root images binaries $(BIN)/akri-soak ## Change everything and kill processes on a real cluster for an hour, check invariants and print the table of docs/soak.md
	$(BIN)/akri-soak

##@ Verify, and fix

.PHONY: verify
verify: verify-generate verify-as-is ## Run all checks that need no cluster

# These checks write no shared files, so they can run during builds.
.PHONY: verify-as-is
verify-as-is: verify-format verify-tidy verify-proto verify-charts verify-docs verify-language verify-workflows verify-commits lint

.PHONY: generate
generate: $(BIN)/protoc-gen-go $(BIN)/buf $(BIN)/controller-gen ## Regenerate protobuf code, deep copies, CRDs, go.work and the charts' schemas
	cd proto && buf generate
	cd libs/apis && GOWORK=off controller-gen object paths=./... crd:ignoreUnexportedFields=true paths=./... output:crd:dir=../../charts/akri-crds/generated
	@for crd in charts/akri-crds/generated/akri.sh_*.yaml; do mv $$crd charts/akri-crds/templates/$${crd##*akri.sh_}; done; rmdir charts/akri-crds/generated
	go work use ./services/*
	cd charts && go run ./cmd/generate

.PHONY: verify-generate
verify-generate: ## Check that generated files are up to date (fix: make generate)
	@tools/unchanged.sh "make generate" make --no-print-directory generate

.PHONY: format
format: ## Format Go code
	@gofmt -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: verify-format
verify-format: ## Check that Go code is formatted (fix: make format)
	@files=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$files" ] || { echo "run make format for these files:"; echo "$$files"; exit 1; }

.PHONY: tidy
tidy: ## Tidy all modules and use one version of each dependency
	@tools/tidy.sh

.PHONY: verify-tidy
verify-tidy: ## Check that go.mod files are tidy and agree on versions (fix: make tidy)
	@for module in $(MODULES); do (cd $$module && GOWORK=off go mod tidy -diff >/dev/null) || { echo "$$module is not tidy, run make tidy"; exit 1; }; done
	@tools/one-version.sh $(MODULES) $$(tools/shared-modules.sh)

.PHONY: verify-proto
verify-proto: $(BIN)/buf ## Check the style of protobuf files and that v0 and released APIs are compatible
	cd proto && buf lint && buf breaking --against released.binpb

# One package at a time, because all write the same file.
.PHONY: metrics
metrics: test-prerequisites binaries ## Write the tables of docs/metrics.md (the tests of the services check them)
	AKRI_UPDATE_METRICS=1 go test -count=1 -p 1 -run Metrics $$(grep -rl --include=*_test.go libs/metricstest\" libs services | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: flags
flags: ## Write the tables of flags in the READMEs of the services and docs/kubectl-akri.md (their tests check them)
	AKRI_UPDATE_FLAGS=1 go test -count=1 -run '^TestFlags$$' $(addprefix ./,$(filter services/%,$(MODULES))) ./tools/kubectl-akri/internal/command

.PHONY: explanations
explanations: ## Write the golden files of kubectl akri explain and the table of causes in docs/kubectl-akri.md (their tests check them)
	go test -count=1 ./libs/inspect/explain -update

.PHONY: verify-charts
verify-charts: test-prerequisites binaries ## Lint charts, compare renders with golden files, check that misspelt values are errors (fix: make charts)
	cd charts && go test -parallel 4 -count=1 -timeout 30m ./...

.PHONY: charts
charts: test-prerequisites binaries ## Regenerate the charts' schemas, the table of handlers and the golden renders
	cd charts && go run ./cmd/generate && go test ./... -update

.PHONY: verify-docs
verify-docs: docs $(BIN)/links ## Build the site, check links and headings in it and in all Markdown files
	@$(BIN)/links $(SITE)

.PHONY: verify-language
verify-language: $(BIN)/language ## Check words, line width and test names (fix: make wrap, and edit as the messages state)
	@$(BIN)/language

.PHONY: wrap
wrap: $(BIN)/language ## Wrap long lines of Go comments and Markdown
	@$(BIN)/language -wrap

# Older commits are not checked.
COMMITS_AFTER := 3f2743c

.PHONY: verify-commits
verify-commits: ## Check commit messages (fix: git rebase --interactive)
	@tools/commits.sh $(COMMITS_AFTER)

.PHONY: verify-workflows
verify-workflows: $(BIN)/actionlint ## Check the workflows, and that they pin actions by commit
	actionlint
	@tools/pinned.sh

.PHONY: vulnerabilities
vulnerabilities: $(BIN)/govulncheck prerequisites ## Search the code for known vulnerabilities that it can reach (needs vuln.go.dev, or VULNDB)
	@tools/vulnerabilities.sh $(MODULES)

.PHONY: lint
lint: $(BIN)/golangci-lint prerequisites ## Run golangci-lint (fix: make lint-fix)
	golangci-lint run --allow-parallel-runners $(addsuffix /...,$(addprefix ./,$(MODULES)))

.PHONY: lint-fix
lint-fix: $(BIN)/golangci-lint ## Run golangci-lint and apply its fixes
	golangci-lint run --fix $(addsuffix /...,$(addprefix ./,$(MODULES)))

$(BIN)/buf: tools/buf/go.mod | $(BIN)
	$(call tool,buf,github.com/bufbuild/buf/cmd/buf)
	@touch $@

$(BIN)/protoc-gen-go: tools/protoc-gen/go.mod | $(BIN)
	$(call tool,protoc-gen,google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc)
	@touch $@

# CGO_ENABLED=0 omits what needs a C compiler; this site does not use it.
$(BIN)/hugo: export CGO_ENABLED = 0
$(BIN)/hugo: tools/hugo/go.mod | $(BIN)
	$(call tool,hugo,github.com/gohugoio/hugo)
	@touch $@

$(BIN)/controller-gen: tools/controller-gen/go.mod | $(BIN)
	$(call tool,controller-gen,sigs.k8s.io/controller-tools/cmd/controller-gen)
	@touch $@

$(BIN)/golangci-lint: tools/golangci-lint/go.mod | $(BIN)
	$(call tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
	@touch $@

$(BIN)/actionlint: tools/actionlint/go.mod | $(BIN)
	$(call tool,actionlint,github.com/rhysd/actionlint/cmd/actionlint)
	@touch $@

$(BIN)/govulncheck: tools/govulncheck/go.mod | $(BIN)
	$(call tool,govulncheck,golang.org/x/vuln/cmd/govulncheck)
	@touch $@

$(BIN)/cosign: tools/cosign/go.mod | $(BIN)
	$(call tool,cosign,github.com/sigstore/cosign/v3/cmd/cosign)
	@touch $@

.PHONY: clean
clean: ## Remove bin/ (the cache stays)
	rm -rf $(BIN)
