# Copyright The Clipper Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# All builds have the same flags, so that they share the Go build cache: the binaries, the lab's programs, the linter.
# What runs under the race detector is compiled apart anyway, and keeps its paths for the reports.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath -buildvcs=false

VELERO_MODULE  := github.com/vmware-tanzu/velero
VELERO_VERSION := $(shell awk '$$1 == "$(VELERO_MODULE)" {print $$2}' go.mod)
GIT_SHA        := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS        := -s -w -X $(VELERO_MODULE)/pkg/buildinfo.Version=$(VELERO_VERSION) -X $(VELERO_MODULE)/pkg/buildinfo.GitSHA=clipper-$(GIT_SHA) -X $(VELERO_MODULE)/pkg/buildinfo.GitTreeState=clean

UNIT     := ./cmd/... ./internal/... ./pkg/... ./hack/...
# The race detector needs a C compiler; hack/race says which flags this machine can do.
RACE      = $(shell hack/race)
SCENARIO ?= test/scenarios/hooked-pods.yaml

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/velero bin/velero-lab bin/velero-recorder ## Build bin/velero, and bin/velero-lab with its recording plugin.

GO_FILES := $(shell find cmd internal pkg -name '*.go' -not -name '*_test.go' 2>/dev/null)

bin/velero: $(GO_FILES) go.mod go.sum
	go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/velero

bin/velero-lab: $(GO_FILES) go.mod go.sum
	go build -ldflags '-s -w' -o $@ ./cmd/velero-lab

# The same server under the race detector, for the lab.
bin/velero-race: $(GO_FILES) go.mod go.sum
	CGO_ENABLED=1 GOFLAGS=-buildvcs=false go build -race -ldflags '$(LDFLAGS)' -o $@ ./cmd/velero

.PHONY: tools
tools: ## Build the lab's control plane into the cache (CLIPPER_CACHE, by default the user's cache folder).
	@go run ./hack/ensure control-plane >/dev/null

.PHONY: demo
demo: build ## Back up the same pods with no Velero, with Velero's engine, and with ours; print a table.
	bin/velero-lab demo

.PHONY: lab
lab: build ## Start a cluster with the lab's storage and a Velero server, and leave it running until Ctrl-C.
	bin/velero-lab up

.PHONY: scenario
scenario: build ## Run one experiment: make scenario SCENARIO=test/scenarios/plain-100.yaml
	bin/velero-lab run $(SCENARIO)

.PHONY: test
test: build tools unit lab-test ## Run all tests: unit tests, then the lab's short suite.

.PHONY: unit
unit: ## Run the unit tests, under the race detector where there is a C compiler.
	$(RACE) GOFLAGS=-buildvcs=false go test $(if $(findstring 1,$(RACE)),-race) -timeout 10m $(UNIT)

.PHONY: lab-test
lab-test: build bin/velero-recorder ## Run the lab's short suites on a real control plane: scenarios, parity, chaos.
	go test -count=1 -timeout 25m -v ./test/... -args -suite=short
	$(MAKE) parity-short
	$(MAKE) chaos-short

.PHONY: lab-test-full
lab-test-full: build ## Run the whole suite of the lab; it takes about two hours.
	go test -count=1 -timeout 180m -v ./test/... -args -suite=full

.PHONY: lab-test-race
lab-test-race: build bin/velero-race ## Run the lab's short suite with a server built with the race detector.
	go test -count=1 -timeout 40m -v ./test/... -args -suite=short -velero=$(CURDIR)/bin/velero-race

bin/velero-recorder: $(GO_FILES) go.mod go.sum
	go build -ldflags '-s -w' -o $@ ./cmd/velero-recorder

# The parity suite. SEED is the first seed of the random cases, N how many there are; CASE a pattern for the names or the files of the
# hand-written ones; WORKERS the --item-block-worker-count of our engine; VELERO the binary, as bin/velero-race.
SEED    ?= 0
N       ?= 25
CASE    ?=
WORKERS ?= 1
VELERO  ?= bin/velero

.PHONY: parity
parity: build $(VELERO) ## Make the same backups with both engines and compare everything: make parity SEED=7 N=500
	go test -count=1 -timeout 180m -v ./test -args -suite=parity -parity-seed=$(SEED) -parity-random=$(N) \
		-parity-case='$(CASE)' -parity-workers=$(WORKERS) -velero=$(CURDIR)/$(VELERO) -ginkgo.no-color

# Always the same cases, so that a failure is one of the change.
.PHONY: parity-short
parity-short: build bin/velero-recorder ## Run the parity suite's short form: the cases with the tag short, and 25 random ones.
	go test -count=1 -timeout 20m -v ./test -args -suite=parity -parity-short -parity-seed=1 -parity-random=25 -ginkgo.no-color

.PHONY: parity-full
parity-full: ## Run all of the parity suite: all cases and 500 random ones, then 100 random ones with 8 workers under the race detector.
	$(MAKE) parity N=500
	$(MAKE) parity CASE=none N=100 WORKERS=8 VELERO=bin/velero-race

# The chaos suite. SEED is that of the first random point, N how many random ones there are; SHORT=1 runs those of continuous integration,
# with fewer pods and volumes; POINT is a pattern for their names, or several with | between them.
POINT ?=
SHORT ?=

.PHONY: chaos
chaos: build $(VELERO) ## Kill the server, the cluster and the store while backups run: make chaos SEED=7 N=25, or SHORT=1
	go test -count=1 -timeout 180m -v ./test -args -suite=chaos -chaos-seed=$(SEED) -chaos-random=$(N) $(if $(SHORT),-chaos-short) \
		-chaos-point='$(POINT)' -velero=$(CURDIR)/$(VELERO) -ginkgo.no-color -ginkgo.timeout=3h

# Always the same points, and fewer pods and volumes.
.PHONY: chaos-short
chaos-short: build ## Run the chaos suite's short form: about twenty points.
	go test -count=1 -timeout 30m -v ./test -args -suite=chaos -chaos-short -chaos-seed=1 -chaos-random=2 -ginkgo.no-color

.PHONY: leaks
leaks: build $(VELERO) ## Take fifty backups in one server and compare what it holds with what it held after the fifth.
	go test -count=1 -timeout 40m -v ./test -args -suite=leaks -velero=$(CURDIR)/$(VELERO) -ginkgo.no-color

.PHONY: bench
bench: build ## Measure the README's figures: 100 plain volumes and hooked pods, each engine.
	hack/bench

.PHONY: bench-micro
bench-micro: ## Measure what one event of one snapshot costs, with 10,000 under way.
	hack/bench micro

.PHONY: lint
lint: ## Run the linter of hack/tools/lint.
	"$$(go run ./hack/ensure golangci-lint)" run ./...

.PHONY: verify
verify: ## Check formatting, vet, and that go.mod is tidy.
	hack/verify

.PHONY: clean
clean: ## Remove bin/. The cache of the lab's programs stays.
	rm -rf bin
