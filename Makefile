# `make demo` and `make test` do all set-up themselves; both can be repeated and leave nothing running.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
# The distribution's own Python where it will do, as it is built with profile-guided optimisation: one that was compiled without
# takes up to twice as long for everything. On Debian it needs the package python3-venv. An active environment's comes first.
PYTHON ?= $(if $(VIRTUAL_ENV)$(CONDA_PREFIX),python3,$(shell /usr/bin/python3 -c \
  'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo python3))
NAMED := $(filter-out file,$(origin PYTHON))
WHICH := -c 'import sys; print(sys.base_prefix, sys.version.split()[0])'
TORCH := torch==2.13.0
# Most installed modules are never imported, so none is compiled ahead.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
# uv takes seconds where pip takes a minute. It asks pip's index, but none of its other sources: what it cannot install, pip does.
UV = UV_DEFAULT_INDEX=$$index $(BIN)/python -m uv pip install --quiet --python $(BIN)/python -c constraints.txt
INDEX = index="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || true)}}"
# Tests of whole programs mostly wait, tests of modules mostly compute. Files that take long come first, so that no worker is
# left with one at the end.
PROGRAMS := tests/packaging tests/processes tests/ray tests/netns tests/emulation
MODULES := tests/conformance tests/compat tests/unit
BY_FILE := --dist loadfile --no-loadscope-reorder
ROOT := $(shell [ "$$(id -u)" = 0 ] && echo yes)

# Where this is set, each program that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-modules test-programs test-long docs check setup interpreter system postgresql compiler packages compiled clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## make the virtual environment in .venv

interpreter:
	@[ ! -L $(BIN)/python ] || $(BIN)/python -c '' 2>/dev/null || \
	  { echo "the Python that $(VENV) was made with is gone: remove $(VENV), then start again" >&2; exit 2; }
	@[ -z "$(NAMED)" ] || [ ! -x $(BIN)/python ] || [ "$$($(PYTHON) $(WHICH))" = "$$($(BIN)/python $(WHICH))" ] || \
	  { echo "$(VENV) was made with another Python than $(PYTHON): remove $(VENV), then start again" >&2; exit 2; }

$(VENV)/.ready: pyproject.toml constraints.txt | interpreter
	@command -v $(PYTHON) >/dev/null || { echo "python3 (3.11 or newer) not found: install it first" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { [ "$(ROOT)" = yes ] && apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-venv; } >/dev/null || \
	  { echo "python3-venv not found: apt-get install python3-venv" >&2; exit 2; }
	@echo "setting up $(VENV) with $(PYTHON) ($$($(PYTHON) --version)) ..."
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(INDEX); $(PIP) uv 2>/dev/null && $(UV) -e '.[dev]' 2>/dev/null || $(PIP) -e '.[dev]'
	@touch $@

# What some tests need and Beamer does not: tests of what cannot be installed, or only by a large download, are skipped.
$(VENV)/.extras: $(VENV)/.ready
	@echo "setting up Ray and Optuna ..."
	@$(INDEX); $(UV) -e '.[ray,optuna]' 2>/dev/null || for one in '-e .[ray]' '-e .[optuna]'; do \
	  $(PIP) $$one || echo "$${one#-e .} cannot be installed: its tests will be skipped"; done
	@if $(BIN)/python -m pip show --quiet torch 2>/dev/null; then \
	  $(PIP) scikit-learn || echo "scikit-learn cannot be installed"; \
	elif $(PIP) --dry-run --report - $(TORCH) 2>/dev/null | grep -q '"url": "file:.*/torch-'; then \
	  echo "setting up PyTorch from this machine's own file ..."; \
	  $(PIP) $(TORCH) scikit-learn || echo "PyTorch or scikit-learn cannot be installed"; \
	else echo "no PyTorch on this machine: its tests will be skipped"; fi
	@if $(BIN)/python -c 'import optuna, ray' 2>/dev/null; then touch $@; fi  # otherwise it is tried again the next time

# The system packages of the emulation: installed where root can; where not, what needs them says so.
system: setup
	@missing=$$($(BIN)/python -m topologies.emulation.platform); \
	if [ "$(ROOT)" = yes ] && [ -n "$$missing" ]; then \
	  echo "installing system packages: $$missing ..."; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing; } >/dev/null \
	  || { echo "they cannot be installed: install them, or go on without root and without the tests that need them" >&2; exit 2; }; \
	fi

demo: system  ## real coflows ordered in an emulated network (without root: in the simulator)
	@if [ "$(ROOT)" = yes ]; then \
	  $(BIN)/beamer emulate --policies fair,sebf,beamer --plot results/demo.png --json results/demo.json; \
	else \
	  echo "not root: the emulation needs network namespaces, so the same scenario runs in the simulator"; \
	  $(BIN)/beamer simulate --policies fair,sebf,beamer --plot results/demo.png --json results/demo.json; \
	fi
	@echo "timeline: results/demo.png   figures: results/demo.json"

postgresql: system  # whose packages are installed before: only one of the two can be
	@if [ "$(ROOT)" = yes ] && ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then \
	  echo "setting up PostgreSQL ..."; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends postgresql; } >/dev/null \
	  || echo "PostgreSQL cannot be installed: its tests will be skipped"; fi

# Stand-ins of NVIDIA's driver are compiled by the tests that need them.
compiler: postgresql  # as above
	@if [ "$(ROOT)" = yes ] && ! command -v cc >/dev/null; then \
	  echo "setting up a C compiler ..."; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends gcc libc6-dev; } \
	  >/dev/null || echo "gcc cannot be installed: tests with stand-ins of NVIDIA's driver will be skipped"; fi

# Collecting the tests of modules compiles them once; otherwise each of the workers, which start at once, compiles all of them.
packages: system postgresql compiler $(VENV)/.collected

# Compiling kernels takes as long as the rest of the set-up, which waits for disk and network meanwhile.
compiled: setup
	@$(BIN)/python -m tests.support.compiled

$(VENV)/.collected: $(VENV)/.extras
	@$(BIN)/python -m pytest --collect-only --quiet $(MODULES) >/dev/null 2>&1 || true  # the tests say what is wrong
	@touch $@

# What each run of pytest writes is shown when it ends.
test: setup  ## every test but the long ones: both of the following at once
	@echo "running the tests of programs and, with what they leave of the processors, those of modules ..."
	@$(MAKE) --no-print-directory --output-sync=line -j3 test-programs test-modules

test-programs: packages compiled  ## whole programs: packaging, processes, Ray, network namespaces, emulation
	@$(BIN)/python -m pytest $(BY_FILE) -n 4 -m "not long and not alone" $(PROGRAMS)
	@$(BIN)/python -m pytest -m "not long and alone" $(PROGRAMS)

# At a low priority, since some of the tests beside it measure; not at the lowest, at which a process may wait for seconds.
test-modules: packages compiled  ## unit tests, conformance and comparisons with other programs
	@nice -n 10 $(BIN)/python -m pytest $(BY_FILE) -n 3 -m "not long" $(MODULES)

test-long: packages compiled  ## all seeds, repeats and sizes of tests, which take long
	@$(BIN)/python -m pytest $(BY_FILE) -n 4 -m "long and not alone" $(PROGRAMS) $(MODULES)
	@$(BIN)/python -m pytest -m "long and alone" $(PROGRAMS)

docs: setup  ## the documentation as a site, in docs/_build/html
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "the site: docs/_build/html/index.html"

check: setup  ## ruff, formatting, mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:  ## remove the virtual environment, results and what a killed emulation left
	@if [ "$(ROOT)" = yes ] && [ -x $(BIN)/beamer ]; then $(BIN)/beamer clean; fi
	@rm -rf $(VENV) results build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
