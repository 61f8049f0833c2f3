# `make up` and `make test` are all that a newcomer needs. Everything here also works by hand: see `slurmstack --help`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STACK ?= Pulumi.dev.yaml
SOURCES := __main__.py setup.py cli components config local slurm tests

.PHONY: help up down venv test check format bench schema clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: venv ## Start the local cluster, apply Pulumi.dev.yaml, run srun in the jail
	@$(BIN)/slurmstack local up
	@$(BIN)/slurmstack up --config $(STACK) --yes --verify

down: venv ## Remove the local cluster and all that it made (make down PURGE=1: its cache of built programs too)
	@$(BIN)/slurmstack local down $(if $(PURGE),--purge)

venv: $(VENV)/.ready ## Make .venv with the locked dependencies and the slurmstack command

$(VENV)/.ready: requirements.txt pyproject.toml
	@./venv.sh $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.txt
	@echo "Installing the development tools into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

# Where it is set, as in many containers, each of the dozens of processes that tests start compiles all sources anew.
unexport PYTHONDONTWRITEBYTECODE

RERUNS ?= 0
PYTEST := $(BIN)/pytest --no-loadscope-reorder --reruns=$(RERUNS) --rerun-show-tracebacks -rfERs \
	--durations=60 --durations-min=10
STAGE = TIMEFORMAT='stage $(1): %R s, %U s of CPU + %S s in the kernel, without what runs in pods'; time
LANES ?= 3

LOGS := test-logs
# What runs beside something else keeps its output in a file, and prints its end, or all of it where it failed.
QUIET = ( log=$(LOGS)/$(1).log; { $(call STAGE,$(1)) $(2) --junitxml=$(LOGS)/$(1).xml; } > $$log 2>&1; status=$$?; \
	[ $$status = 0 ] && tail -n 2 $$log || cat $$log; exit $$status )

test: $(VENV)/.ready-dev ## Run all tests: unit, graph, real Slurm daemons, real Kubernetes
	@mkdir -p $(LOGS)
	@$(call STAGE,1) $(PYTEST) -n auto --junitxml=$(LOGS)/1-daemons.xml tests/slurm
	@$(call STAGE,2) $(PYTEST) -n 0 --maxfail=5 --junitxml=$(LOGS)/2-make-up.xml tests/e2e/test_make_up.py
	@$(MAKE) --no-print-directory --keep-going -j2 test-machines test-guests
	@$(MAKE) --no-print-directory --keep-going -j2 test-lanes test-program

# Tests of machines that are lost and reset mostly wait, and leave the CPUs to the guests, which starve beside lanes.
# Those of the program need nothing but time, and take what the lanes leave.
.PHONY: test-machines test-guests test-lanes test-program
test-machines:
	@$(call STAGE,3) $(PYTEST) -n 0 --maxfail=2 --junitxml=$(LOGS)/3-machines.xml -m disruptive \
		--ignore=tests/e2e/test_make_up.py tests/e2e
test-guests:
	@$(call QUIET,3-guests,nice -n 5 $(PYTEST) -n 2 tests/machine)
test-lanes:
	@$(call STAGE,4) $(PYTEST) -n $(LANES) --maxfail=10 --junitxml=$(LOGS)/4-lanes.xml -m "not disruptive" tests/images tests/e2e
test-program:
	@$(call QUIET,4-program,nice -n 10 $(PYTEST) -n 2 tests/unit tests/graph tests/network)

check: $(VENV)/.ready-dev ## Check format, lint and types
	@$(BIN)/ruff format --check --quiet $(SOURCES) images || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES) images
	@$(BIN)/mypy --no-error-summary __main__.py cli components config local slurm tests images

format: $(VENV)/.ready-dev ## Format the code
	@$(BIN)/ruff format --quiet $(SOURCES) images
	@$(BIN)/ruff check --quiet --fix $(SOURCES) images

bench: $(VENV)/.ready-dev ## Measure (make bench PARTS="scaling setting": only these; COMPARE=docs/benchmarks/OLD.json: and compare)
	@$(BIN)/python -m tests.bench $(PARTS) $(if $(COMPARE),--compare $(COMPARE)) $(BENCH)

schema: $(VENV)/.ready ## Write docs/stack-file.schema.json anew after a change of config/
	@$(BIN)/python -m config.schema > docs/stack-file.schema.json

clean: ## Remove .venv and caches of the development tools
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
