# Every command of the project. A fresh machine needs python >= 3.11 with venv, pip and make; the rest is set up here,
# in .venv, once: a second run finds it done, an interrupted or moved one is built anew.

VENV := .venv
PY := $(VENV)/bin/python
# What a run needs, and what the checks need on top. Each stamp is written last, so it never vouches for half a job.
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
# Where torch comes from, if not from pip's own index: the address of an index of CPU wheels keeps a Linux machine
# without a GPU from downloading the large CUDA build, `make demo TORCH_INDEX_URL=...`.
TORCH_INDEX_URL ?=
TORCH := $(shell grep '^torch==' constraints.txt)
PIP := $(PY) -m pip -qq --no-input --disable-pip-version-check

export PIP_ROOT_USER_ACTION := ignore

# A virtual environment knows where it was made. If this one does not run the code beside this Makefile (moved, copied,
# its python gone), its stamps are void.
ifneq ($(wildcard $(RUNTIME)),)
ifneq ($(shell $(PY) -c 'import stickymoe; print(stickymoe.__file__)' 2>/dev/null),$(CURDIR)/src/stickymoe/__init__.py)
$(shell rm -f $(RUNTIME) $(DEV))
endif
endif

.PHONY: help demo test tests lint package bench setup clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(RUNTIME) ## Train sticky and ordinary routers on real text and write demo/report.html
	@$(VENV)/bin/stickymoe demo --out demo

test: $(DEV) ## Check everything: lint, types, contracts, package, tests
	@$(MAKE) --no-print-directory -j3 lint package tests

# Two files at a time, for two cores; a file's tests share what they compile.
tests: $(DEV)
	@echo "== tests"
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

lint: $(DEV) ## Check style, types and who imports whom
	@echo "== style"
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { $(PY) -m ruff format --diff --quiet .; exit 1; }
	@echo "== types"
	@$(PY) -m mypy
	@echo "== contracts"
	@$(VENV)/bin/lint-imports --no-logo

package: $(DEV) ## Build wheel and sdist, install each elsewhere, run what was installed
	@echo "== package"
	@PYTHON=$(CURDIR)/$(PY) .ci/check-package

bench: $(RUNTIME) ## Measure a training step on two threads, then replay on one; the machine should be otherwise idle
	@OMP_NUM_THREADS=2 $(PY) benchmarks/train_step.py
	@$(PY) benchmarks/replay.py

setup: $(DEV) ## Create .venv with everything a developer needs

clean: ## Remove .venv, builds and caches; runs and reports stay
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# The first python that is new enough and can make a virtual environment with pip in it.
define FRESH_VENV
rm -rf $(VENV); \
for python in python3.11 python3 python3.12 python3.13 python; do \
	if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo "Creating $(VENV) with $$($$python --version 2>&1)"; \
		exec $$python -m venv $(VENV); \
	fi; \
done; \
echo "make: python >= 3.11 with venv and pip was not found; install it (Debian: python3 and python3-venv)" >&2; \
exit 2
endef

# Without its stamp .venv is not to be trusted; with one that is only older than the project's files it is brought
# up to date.
$(RUNTIME): pyproject.toml constraints.txt
	@if [ ! -e $@ ]; then $(FRESH_VENV); fi
	@rm -f $@ $(DEV)
	@echo "Installing $(TORCH) (once, some minutes)"
	@$(PIP) install $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(TORCH)
	@echo "Installing stickymoe and what it needs"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(DEV): $(RUNTIME)
	@rm -f $@
	@echo "Installing the tools for tests and checks"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
