# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets; the comments behind two number signs are its text.

SHELL := /bin/bash
BUILD := $(CURDIR)/build
export BUILD
GO       ?= $(shell hack/install-deps --print-go 2>/dev/null || echo go)
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GO_LDFLAGS := -s -w -X splitfs.io/splitfs/csi-driver/internal/driverinfo.Version=$(VERSION)
go_src   := $(shell find csi-driver injector-webhook internal -name '*.go' 2>/dev/null) go.mod go.sum
scripts  := $(shell git ls-files -s 2>/dev/null | awk '$$1 == "100755" {print $$4}' | xargs -r grep -lE '^\#!.*\b(bash|sh)\b' 2>/dev/null)

.PHONY: all deps lib cli csi injector plugin quickstart down test test-c test-go test-race test-scripts test-vm test-uml test-e2e test-kind test-arm64 chaos storage-suite scale vm-test vm-xfstests vm-soak crash-explore crash-mutate kill-driver soak-apps bench bench-compare paper images release docs screenshots lint generate format clean help
.DEFAULT_GOAL := all

all: lib cli csi injector plugin ## build the library, the command line, the CSI driver, the injector and the kubectl plugin into build/

lib: | $(BUILD) ## build/libsplit.so, the library that is preloaded
	$(MAKE) -C libsplit lib
cli: | $(BUILD) ## build/splitfs, the command line (run, recover, status, top, prepare, agent)
	$(MAKE) -C libsplit cli
csi: $(BUILD)/splitfs-csi ## build/splitfs-csi, the CSI driver
injector: $(BUILD)/splitfs-injector ## build/splitfs-injector, the admission webhook
plugin: $(BUILD)/kubectl-splitfs ## build/kubectl-splitfs, the kubectl plugin: put it on PATH

$(BUILD):
	mkdir -p $@
$(BUILD)/splitfs-csi: $(go_src) | $(BUILD)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $@ ./csi-driver/cmd/splitfs-csi
$(BUILD)/splitfs-injector: $(go_src) | $(BUILD)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $@ ./injector-webhook/cmd/splitfs-injector
$(BUILD)/kubectl-splitfs: $(go_src) | $(BUILD)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $@ ./csi-driver/cmd/kubectl-splitfs

quickstart: ## build everything, start a local cluster, install the chart and show a volume at work
	hack/quickstart
down: ## remove everything quickstart started
	hack/cluster down

test: deps lint test-c test-go test-scripts test-e2e ## run every test that needs no hardware
deps: ## install the Debian packages and the Go toolchain that are missing (as root); says nothing when none is
	hack/install-deps all
test-c: | $(BUILD) ## C tests: plain, address and undefined-behaviour sanitizer, thread sanitizer; programs from packages, pjdfstest, fsx
	hack/build-suites
	$(MAKE) -C libsplit test
test-go: ## Go tests and vet
	$(GO) vet ./...
	hack/build-tools prometheus
	$(GO) test ./...
test-race: ## all Go tests with the race detector; RACE_ARGS="-run TestHandover ./csi-driver/internal/agent"
	hack/build-tools prometheus
	CGO_ENABLED=1 $(GO) test -race -timeout 30m $(or $(RACE_ARGS),./...)
test-scripts: ## the tests of charts and scripts: every executable test/run below charts/, hack/ and manifests/
	@set -e; for t in $(sort $(wildcard charts/test/run charts/*/test/run hack/test/run manifests/test/run)); do echo "== $$t"; "$$t"; done

test-vm: | $(BUILD) ## real DAX in a virtual machine with one kernel, when QEMU is there (hack/install-deps vm brings it)
	@if command -v qemu-system-x86_64 >/dev/null; then VM_QUICK_SECONDS=1200 hack/vm test --quick --kernel 6.12; \
		else echo "SKIP test-vm: there is no qemu-system-x86_64 (hack/install-deps vm)"; fi

test-e2e: ## a local cluster of its own, the chart, real applications in pods; the cluster is removed afterwards
	@set -e; export CLUSTER_NAME=test; trap 'hack/cluster down' EXIT; hack/quickstart; hack/e2e/run

test-kind: ## the quickstart on a kind cluster of its own, with Docker or rootful Podman, on a node image that is built here (KIND_NODE_IMAGE=: kind's own)
	command -v docker >/dev/null || hack/install-deps kind
	@set -e; export CLUSTER=kind CLUSTER_NAME=kindtest KIND_NODE_IMAGE=$${KIND_NODE_IMAGE-own}; trap 'hack/cluster down' EXIT; hack/quickstart

chaos: ## a cluster of three nodes: volumes are made, written, verified and removed while daemons are killed; CHAOS_ARGS="--cycles N --seed N ..."
	@set -e; export CLUSTER_NAME=chaos NODES=3; trap 'hack/cluster down' EXIT; hack/quickstart; hack/chaos/run --cycles 200 --seed 0 $(CHAOS_ARGS)

storage-suite: ## the external storage tests of Kubernetes' own end-to-end suite, on a cluster of their own; SUITE_ARGS="--mode MODE --focus REGEX ..."
	@set -e; export CLUSTER_NAME=suite; trap 'hack/cluster down' EXIT; hack/quickstart; hack/storage-suite $(SUITE_ARGS)

scale: ## 1,000 simulated nodes and 10,000 volumes on a real control plane: memory, requests and latency; SCALE_ARGS="--nodes N --steps N,N ..."
	hack/scale $(SCALE_ARGS)

test-uml: | $(BUILD) ## the kernel module without DAX, on a kernel that is a process of this machine (built once, six minutes of a processor)
	hack/install-deps vm
	SPLITFS_VM_KERNEL=uml hack/vm test --kernel 6.12 relink relink-broken relink-stress
vm-test: | $(BUILD) ## boot Debian kernels with persistent memory: relink, DAX, libsplit on it, power cuts (VM_TEST_ARGS: names of tests)
	hack/install-deps vm
	hack/vm test $(VM_TEST_ARGS)
vm-xfstests: | $(BUILD) ## make vm-xfstests DIR=/path/to/xfstests: a built copy of xfstests on stock ext4 and on ext4_splitfs; XFSTESTS_ARGS="--kernel 6.1 ..."
	@[ -n "$(DIR)" ] || { echo "make vm-xfstests wants DIR=, a built copy of xfstests" >&2; exit 2; }
	hack/install-deps vm
	hack/vm xfstests --dir "$(DIR)" $(XFSTESTS_ARGS)
vm-soak: | $(BUILD) ## the same with 50 power cuts on each file system, stresses of ten minutes and a seed of its own
	hack/install-deps vm
	hack/vm test --seed 0 --cuts 50 --stress 600 $(VM_TEST_ARGS)

test-arm64: ## every unit test and program of test/posix for arm64 in every mode, emulated; "make test" runs a part
	libsplit/test/arm64/test_arm64 --all

soak: all ## kill SQLite, Redis and a log writer 1,000 times, at random (SOAK_ARGS="--kills N --seed N" for others); the model of files with 10 million random calls
	LIBSPLIT=$(BUILD)/libsplit.so SPLITFS=$(BUILD)/splitfs libsplit/test/soak/test_kills --kills 1000 --seed 0 $(SOAK_ARGS)
	LIBSPLIT=$(BUILD)/libsplit.so SPLITFS=$(BUILD)/splitfs libsplit/test/model/test_model --calls 10000000 --seed $$(date +%s)
soak-apps: all ## programs from packages on XFS, ext4 and tmpfs, under the coverage gate in every mode, and killed 20 times each; pjdfstest, Python's tests, stress-ng, fsx with 30 seeds
	hack/build-suites
	$(MAKE) -C libsplit test-progs
	@set -e; export LIBSPLIT=$(BUILD)/libsplit.so SPLITFS=$(BUILD)/splitfs; cd libsplit/test/apps; for fs in xfs ext4 tmpfs; do \
		./test_apps --fs $$fs; ./test_coverage --fs $$fs --modes "posix sync strict"; ./test_killed --fs $$fs --kills 20 --seed 0; \
		./test_conformance --fs $$fs --seeds 30 --seed $$RANDOM --calls 20000 --fio-size 32m \
		--all-of-cpython --suites "fsx pjdfstest cpython fio stress"; done

crash-explore: | $(BUILD) ## crash states of all sequences of two operations, of three of the 16 commonest, 3,000 of 5 to 12, of SQLite and LevelDB: millions; CRASH_ARGS="--seed N ..."
	$(MAKE) -C libsplit crash-progs
	cd libsplit && $(BUILD)/test/record/crash/test_explore --length 2 --core 3 --sample 0 --lengthy 3000 --states 0 --jobs 2 --progress $(CRASH_ARGS)
crash-mutate: | $(BUILD) ## plant every persistence bug in turn: the explorer must find each
	$(MAKE) -C libsplit crash-progs
	cd libsplit && $(BUILD)/test/record/crash/test_mutants --all --jobs 2 $(MUTATE_ARGS)

kill-driver: ## kill the CSI node service before every call by which a volume's life changes the machine; "make test" takes a sample
	SPLITFS_KILL_EVERY_STEP=1 $(GO) test -count=1 -timeout 60m -run TestKilled ./csi-driver/internal/app

fuzz: ## fuzz everything that reads bytes of others for two minutes each; FUZZ_ARGS="--seconds N --seed N --keep TARGET..."
	libsplit/test/fuzz/test_fuzz --seconds 120 --seed 0 $(FUZZ_ARGS)

bench: all ## measure the data path; writes build/bench/ and prints a table
	$(MAKE) -C libsplit bench-progs
	libsplit/bench/bench $(BENCH_ARGS)
bench-compare: ## make bench-compare REV=HEAD~1: another commit's library against this one's, in turns; COMPARE_ARGS="--fs xfs --only append ..."
	@[ -n "$(REV)" ] || { echo "make bench-compare wants REV=, such as HEAD~1" >&2; exit 2; }
	BUILD=$(BUILD) libsplit/bench/compare-rev "$(REV)" $(COMPARE_ARGS)
paper: all ## the evaluation: the papers' workloads and programs of today beside the plain kernel; build/paper/report.html; PAPER_ARGS="--quick ..."
	hack/install-deps bench
	hack/build-bench-tools
	$(MAKE) -C libsplit bench-progs
	BUILD=$(BUILD) libsplit/bench/paper $(PAPER_ARGS)
images: all ## build the container images
	hack/images
release: ## make release VERSION=0.1.0: images, chart, manifests, lists of packages and checksums in build/release/; RELEASE_ARGS="--check --output DIR"
	@[ "$(origin VERSION)" = "command line" ] || { echo "make release wants VERSION=, such as 0.1.0" >&2; exit 2; }
	hack/release "$(VERSION)" $(RELEASE_ARGS)

lint: ## check formatting, Go code (golangci-lint with vet and staticcheck, known vulnerabilities) and shell scripts
	$(MAKE) -C libsplit lint
	@bad=$$(gofmt -l $(filter %.go,$(go_src))); if [ -n "$$bad" ]; then echo "run 'make format': $$bad"; exit 1; fi
	hack/build-tools golangci-lint
	PATH="$(dir $(GO)):$$PATH" "$$(hack/build-tools --print-dir golangci-lint)/golangci-lint" run ./...
	hack/vulncheck
	hack/generate --check
	shellcheck -x $(scripts)
docs: ## build the documentation as a site in build/site/; a broken link ends it
	hack/docs
screenshots: ## pictures of the local cluster's dashboards and of the site, by a headless browser, in build/screenshots/
	hack/screenshots $(SCREENSHOTS_ARGS)
generate: ## write what is generated: schema of the custom resources, copy functions, dashboards, the chart's README
	hack/generate
format: ## format C and Go sources
	$(MAKE) -C libsplit format
	hack/build-tools golangci-lint
	"$$(hack/build-tools --print-dir golangci-lint)/golangci-lint" fmt ./...
clean: ## remove build/
	rm -rf $(BUILD)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
