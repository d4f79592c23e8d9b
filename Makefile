# `make demo` and `make test` are all that a fresh machine needs: python3 (3.11 or newer) and make.
#
#   make demo     train on a real data set, print a table, write a calibration plot
#   make test     the whole test suite, one process a core (a part: make test PYTEST_ARGS="tests/unit -k kernels")
#   make check    style, types, and the direction of imports
#   make docs     build the documentation; warnings are errors
#   make bench    run the declared benchmarks     (a part: make bench BENCH_ARGS="--dataset kin40k --method block")
#   make lock     choose the newest versions that fit pyproject.toml and pin them in requirements.lock
#
# Another interpreter, beside the usual environment: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
WORKERS ?= auto
DEMO_ARGS ?=
BENCH_ARGS ?=

BIN := $(VENV)/bin

# The environment is current when this file exists. Its name is a checksum of what was asked for, so another lock file
# or another interpreter makes a new installation, and a mere change of file times does not.
WANTED := $(shell { cat requirements.lock pyproject.toml; $(PYTHON) --version; } 2>&1 | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(WANTED)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check docs bench lock format clean

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(INSTALLED)
	$(BIN)/vastgp demo $(DEMO_ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)
	$(BIN)/sphinx-build -E -W --keep-going -b html docs docs/_build/html

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# One file for every supported Python: what differs between them carries a marker. No address of an index is written,
# and the hashes are those of all files of a version, so that any index will do that has not changed them.
lock: $(INSTALLED)
	$(BIN)/uv pip compile pyproject.toml --extra test --extra docs --extra dev --upgrade \
	    --universal --python-version 3.11 --fork-strategy requires-python \
	    --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
	    --generate-hashes \
	    --output-file requirements.lock

clean:
	rm -rf docs/_build docs/api docs/tutorials docs/sg_execution_times.rst
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

# pip may warn about index locations configured on a machine; only its exit status counts. The package itself is
# installed in place, with the pinned build tools.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null \
	    || { echo "vastgp needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
	    "Name another one, for example: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@if [ -x $(BIN)/python ] && [ "$$($(BIN)/python --version 2>&1)" = "$$($(PYTHON) --version 2>&1)" ]; \
	    then rm -f $(VENV)/.installed-*; \
	    else echo "making the environment $(VENV)"; $(PYTHON) -m venv --clear $(VENV); fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
