# Everything here runs on a fresh machine with Go and make. "make" lists the targets.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PROTOC_GEN_GO := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
PROTOC_GEN_CONNECT := connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
VERSION ?=
LDFLAGS := $(if $(VERSION),-X github.com/tube-mq/tube/internal/cli.released=$(VERSION))
# Inputs, not seconds: a target that is stopped by the clock at times fails with
# "context deadline exceeded" and no failing input (golang/go#75804).
FUZZTIME ?= 100000x
CHAOS ?= 10m
# Repeats the faults of a run, in their order.
CHAOS_SEED ?=
# Of make sim: how many seeds from which on, or the one to look at.
SEEDS ?= 1000
FROM ?= 1
SEED ?= 0
MODE ?=
# Arguments of tubebench, for example BENCH="run produce -d 10s".
BENCH ?= run
# Packages whose tests start real processes: they take long and gain nothing from
# the race detector, since what races would be in the other process.
BLACKBOX := ./test/...
UNIT = $(shell go list ./... | grep -v /test)

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build ./bin/tube
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/tube ./cmd/tube

.PHONY: run
run: build ## build and start a node with its data in ./data; Ctrl-C stops it
	@./bin/tube start

.PHONY: cluster
cluster: build ## build and start three nodes with their data in ./data/1..3; Ctrl-C stops them
	@./bin/tube cluster local

.PHONY: test
test: tools ## run every test, installing what they need
	@go test -race $(UNIT)
	@if [ -d test ]; then go test -count=1 -timeout 30m $(BLACKBOX); fi

.PHONY: chaos
chaos: tools ## break a cluster at random for CHAOS (10m); as root also its network
	@CHAOS=$(CHAOS) CHAOS_SEED=$(CHAOS_SEED) go test ./test -run '^TestChaos$$' -count=1 -v -timeout 24h

.PHONY: compat
compat: tools ## run real Kafka clients at length: other versions, a cluster, killed leaders; and databases
	@COMPAT=1 go test ./test -run '^TestCompat' -count=1 -v -timeout 30m
	@.ci/databases
	@cd test/databases && go vet . && go test . -count=1 -v -timeout 10m

.PHONY: tools
tools:
	@.ci/tools

.PHONY: lint
lint: ## check formatting, vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	@go vet ./...
	@go run $(STATICCHECK) ./...

.PHONY: bench
bench: build ## measure against a broker that stores nothing; takes long
	@go run ./bench/cmd/tubebench $(BENCH)

.PHONY: bench-queue
bench-queue: build ## measure queues against PEER (jetstream, jetstream-always, nsq, rabbitmq), whose modules are fetched; takes long
	@cd bench/peers && go build -o ../../bin/peers .
	@go run ./bench/cmd/tubebench run queue --peers bin/peers --peer $(or $(PEER),jetstream)

.PHONY: sim
sim: ## simulate SEEDS clusters from FROM on, or SEED alone; MODE=safety|liveness
	@go test ./internal/sim -run TestSeeds -v -timeout 0 -args -sim.seeds=$(SEEDS) -sim.from=$(FROM) -sim.seed=$(SEED) -sim.mode=$(MODE)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (100000x)
	@set -e; for pkg in $$(go list ./...); do \
	  dir=$$(go list -f '{{.Dir}}' $$pkg); \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go 2>/dev/null | cut -c6-); do \
	    echo "== $$pkg $$f"; go test $$pkg -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x; \
	  done; \
	done

.PHONY: generate
generate: ## write generated code and docs anew (needs protoc)
	@command -v protoc >/dev/null || { echo "protoc is missing: apt-get install protobuf-compiler"; exit 1; }
	@GOBIN=$(CURDIR)/bin/tools go install $(PROTOC_GEN_GO)
	@GOBIN=$(CURDIR)/bin/tools go install $(PROTOC_GEN_CONNECT)
	@set -e; export PATH=$(CURDIR)/bin/tools:$$PATH; \
	protoc -I proto --go_out=proto --go_opt=paths=source_relative \
	  --connect-go_out=proto --connect-go_opt=paths=source_relative $$(cd proto && find tube -name '*.proto'); \
	for f in $$(find internal -name '*.proto'); do d=$$(dirname $$f); \
	  protoc -I $$d --go_out=$$d --go_opt=paths=source_relative $$(basename $$f); done
	@go test ./internal/config ./internal/meta -run Reference -args -rewrite

.PHONY: clean
clean: ## remove what was built; data stays
	@rm -rf bin
