# `make help` lists the targets. Everything is installed into .venv: no root, and a second run does only what is new.

PYTHON ?= python3
# Where `make demo` fills a hole: FILE:LINE:COL.
DEMO ?= examples/temperatures.py:25:9
PYTEST_ARGS ?=
# For a machine without a GPU: --device cpu --quick.
GPU_CHECK_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Where the editors of `make test-editors` are, one folder for each script that sets one up.
EDITORS := $(or $(TENON_EDITORS),$(HOME)/.cache/tenon/editors)
EDITOR_SETUPS := $(filter-out %/debian.sh,$(sort $(wildcard tests/editors/setup/*.sh)))
# Stamps: a set of packages is installed as of the last change of pyproject.toml. They live and go with the venv.
RUN_READY := $(VENV)/.ready-to-run
TEST_READY := $(VENV)/.ready-to-test

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-editors vscode vscode-packages gpu-check lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  Variables: PYTHON=$(PYTHON)  DEMO=$(DEMO)  PYTEST_ARGS=$(PYTEST_ARGS)  GPU_CHECK_ARGS=$(GPU_CHECK_ARGS)"

demo: $(RUN_READY) ## install, fetch the base weights, fill a hole and show it
	@echo "==> base weights"
	@$(BIN)/tenon model fetch
	@echo "==> tenon fill $(DEMO) --show"
	@$(BIN)/tenon fill "$(DEMO)" --show

test: lint vscode-packages ## lint, types and all tests but those in real editors
	@echo "==> base weights"
	@$(BIN)/tenon model fetch
	@echo "==> tests"
	@$(BIN)/python -m pytest -m "not editors" $(PYTEST_ARGS)

test-editors: $(TEST_READY) vscode-packages ## tests in real editors, set up the first time (Debian; 1 GB; root for VS Code alone)
	@echo "==> base weights"
	@$(BIN)/tenon model fetch
	@for setup in $(EDITOR_SETUPS); do \
	  editor=$$(basename $$setup .sh); \
	  echo "==> $$editor, in $(EDITORS)"; \
	  PYTHON=$(abspath $(BIN)/python) bash $$setup "$(EDITORS)/$$editor" || \
	    echo "make: the lines above say why there is no $$editor; its tests are skipped" >&2; \
	done
	@echo "==> tests in editors"
	@TENON_EDITORS="$(EDITORS)" $(BIN)/python -m pytest -rs tests/editors $(PYTEST_ARGS)

vscode: vscode-packages ## package the VS Code extension: editors/vscode/tenon.vsix (Node 20 or newer)
	@cd editors/vscode && npm run --silent package

# Without Node the tests of the extension are skipped, and say so.
vscode-packages:
	@if [ ! editors/vscode/node_modules/.package-lock.json -nt editors/vscode/package-lock.json ]; then \
	  echo "==> packages of the VS Code extension"; \
	  cd editors/vscode && npm ci --no-audit --no-fund --loglevel=error || \
	    echo "make: without them, the tests of the extension are skipped" >&2; \
	fi

gpu-check: $(TEST_READY) ## checks of models on an NVIDIA GPU, under 8 minutes; one JSON line
	@$(BIN)/python scripts/gpu_check.py $(GPU_CHECK_ARGS)

lint: $(TEST_READY) ## ruff and mypy
	@echo "==> ruff"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@echo "==> mypy"
	@$(BIN)/mypy

clean: ## remove the venv and all caches (the base weights stay)
	rm -rf $(VENV) build dist tests/editors/shots editors/vscode/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find engine lsp tests -name __pycache__ -prune -exec rm -rf {} +

$(RUN_READY): pyproject.toml $(BIN)/python
	$(call check_python,$(BIN)/python)
	$(call install,.,tenon and what it runs on)
	@touch $@

$(TEST_READY): pyproject.toml $(BIN)/python
	$(call check_python,$(BIN)/python)
	$(call install,.[dev],tenon and what its tests need)
	@touch $@ $(RUN_READY)

# Made when it is missing, or when the Python it points to is gone.
$(BIN)/python:
	$(call check_python,$(PYTHON))
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv module. Install it (on Debian and Ubuntu the package python3-venv)," >&2; \
	  echo "      or name another Python: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "==> $(VENV), with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

define check_python
@command -v "$(1)" >/dev/null 2>&1 || { \
  echo "make: there is no $(1). Name a Python of 3.10 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
@"$(1)" -c "import sys; sys.exit(sys.version_info < (3, 10))" || { \
  echo "make: tenon needs Python 3.10 or newer; $(1) is $$("$(1)" --version 2>&1)." >&2; \
  echo "      Name another one: make PYTHON=/path/to/python3 (after make clean if $(VENV) is too old)" >&2; exit 1; }
endef

define install
@echo "==> installing $(2) (the first time this takes some minutes)"
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '$(1)' || { \
  echo "make: the installation failed; the lines above say why." >&2; exit 1; }
endef
