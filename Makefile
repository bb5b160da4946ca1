# `make run` and `make test` need git, make and Python 3.11; everything else they set up themselves, in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export ITERATIVE_DO_NOT_TRACK := 1
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: help setup run test lint pytest servers schedule stress bench clean

help:  ## show what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 14

.venv/.ready: pyproject.toml constraints.txt .ci/setup.py
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Airlock needs Python 3.11: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@echo "Setting up .venv (a few minutes the first time; TORCH_INDEX=URL takes torch from another index)"
	@TORCH_INDEX="$(TORCH_INDEX)" $(BIN)/python .ci/setup.py $(CURDIR)/$(BIN)/python
	@touch .venv/.ready

setup: .venv/.ready  ## make the virtual environment

run: setup  ## run the whole pipeline on the embedded data set and say how it went
	@airlock data fetch wdbc
	@dvc repro
	@airlock report

test: setup  ## style, types, imports and all tests but those of `make servers`
	@$(MAKE) --no-print-directory --jobs=2 lint pytest  # side by side: neither keeps two cores busy alone

pytest: setup
	@pytest

servers: setup  ## tests with servers of Prefect, Dask and PostgreSQL, and as a second account
	@pytest -m 'servers and not stress'

lint: setup
	@ruff check .
	@ruff format --check .
	@mypy
	@lint-imports --no-cache

schedule: setup  ## run the pipeline by the clock: Prefect server and workers on this machine, until Ctrl-C
	@python -m flows.schedule

stress: setup  ## the long races and kills
	@pytest -m stress -n 0 -s

bench: setup  ## Airlock beside its peers on this machine, in one run (python -m bench --whole: every cell)
	@python -m bench

clean:  ## remove the virtual environment and caches (never keys, ledger or data)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
