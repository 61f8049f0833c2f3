# `make up` and `make test` are all that a newcomer needs. Everything here also works by hand: see `slurmstack --help`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STACK ?= Pulumi.dev.yaml
SOURCES := __main__.py setup.py cli components config local slurm tests

.PHONY: help up down venv test test-full check format bench schema site clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

test: $(VENV)/.ready-dev ## The gate: what must pass before a change lands (make test STEPS="program daemons": only these)
	@$(BIN)/python -m tests.suites gate $(STEPS)

test-full: $(VENV)/.ready-dev ## All other tests, in stages of 20 minutes with a record of each (make test-full STAGE="lanes guests")
	@$(BIN)/python -m tests.suites full $(STAGE)

check: $(VENV)/.ready-dev ## Check format, lint, types and links, and say how old the records of make test-full are
	@$(BIN)/ruff format --check --quiet $(SOURCES) images || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES) images
	@$(BIN)/mypy --no-error-summary __main__.py cli components config local slurm tests images
	@$(BIN)/python -m tests.documents
	@$(BIN)/python -m tests.suites records

format: $(VENV)/.ready-dev ## Format the code
	@$(BIN)/ruff format --quiet $(SOURCES) images
	@$(BIN)/ruff check --quiet --fix $(SOURCES) images

bench: $(VENV)/.ready-dev ## Measure (make bench PARTS="scaling setting": only these)
	@$(BIN)/python -m tests.bench $(PARTS) $(BENCH)

schema: $(VENV)/.ready ## Write the schema and the reference pages in docs/ anew after a change of config/ or cli/
	@$(BIN)/python -m config.schema > docs/stack-file.schema.json
	@$(BIN)/python -m config.reference
	@$(BIN)/python -m cli.reference

site: $(VENV)/.ready-dev ## Build the site of docs/ into build/site, with a search; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

clean: ## Remove .venv and caches of the development tools
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
