PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
USABLE := $(VENV)/.usable
PIP    := $(BIN)/python -m pip install -c constraints.txt
TORCH  := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help venv demo test fuzz lint types imports docs check clean

help:  ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

venv: $(STAMP)  ## create .venv with everything a developer needs

$(STAMP): $(USABLE)
	$(PIP) -e ".[dev]"
	@touch $@

$(USABLE): pyproject.toml constraints.txt  # the package alone, which is all that the demo takes
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) -e .
	@touch $@

demo: $(USABLE)  ## delete something from a small trained model and show the result
	$(BIN)/gnndelete demo

test: venv  ## run the tests and the doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -rs tests src

fuzz: venv  ## the tests of faults, flips and hostile input at twenty times their size
	GNNDELETE_FUZZ=20 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/io/test_versions.py tests/cli/test_faults.py tests/cli/test_verify.py tests/test_hostile_requests.py \
	  tests/service/test_openapi.py tests/service/test_faults.py tests/service/test_verify.py

lint: venv  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv  ## check types
	$(BIN)/mypy

imports: venv  ## check that imports point one way
	$(BIN)/lint-imports

docs: venv  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

check: test lint types imports docs  ## everything above that can fail

clean:  ## remove caches and build output (.venv stays)
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
