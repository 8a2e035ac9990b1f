# Every target builds its own .venv from the pins and reinstalls only when they change.
PYTHON ?= python3
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ZOO := $(VENV)/zoo
ZOO_STAMP := $(ZOO)/.installed
EXPORT := $(VENV)/export
EXPORT_STAMP := $(EXPORT)/.installed
FRAMEWORKS := $(VENV)/frameworks
FRAMEWORKS_STAMP := $(FRAMEWORKS)/.installed
ULTRALYTICS := $(VENV)/ultralytics
ULTRALYTICS_STAMP := $(ULTRALYTICS)/.installed
KERAS_TORCH := $(VENV)/keras-torch
KERAS_TORCH_STAMP := $(KERAS_TORCH)/.installed
KERAS := $(VENV)/keras
KERAS_STAMP := $(KERAS)/.installed
LITERT := $(VENV)/litert
LITERT_STAMP := $(LITERT)/.installed
PYTEST := $(BIN)/python -m pytest -q
# Tests start hundreds of processes, and each of them would compile oomph and the tests again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup train check lint types unit medium test test-frameworks test-all test-export test-ultralytics test-keras-torch test-keras test-litert versions format bench compare peers clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP) $(ZOO_STAMP) $(EXPORT_STAMP) $(FRAMEWORKS_STAMP) ## install everything that the other targets need

$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

train: $(STAMP) ## train a small detector on generated images, in a few minutes
	$(BIN)/oomph train

check: $(STAMP) ## format, lint, types and the small tests (one minute)
	@$(MAKE) --no-print-directory -j2 types unit

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: lint
	$(BIN)/mypy

unit: lint
	$(PYTEST) -m "not medium and not large and not export and not frameworks and not ultralytics and not keras_torch and not keras and not litert" --numprocesses 2

medium: unit $(ZOO_STAMP)
	$(PYTEST) -m "medium and not large and not frameworks and not ultralytics and not keras_torch" --numprocesses 2

# The zoo's packages are downloaded while types are checked.
test: $(STAMP) ## everything a change must pass (ten minutes)
	@$(MAKE) --no-print-directory -j2 types test-frameworks

test-frameworks: medium $(FRAMEWORKS_STAMP)
	PYTHONPATH=$(CURDIR)/$(FRAMEWORKS) $(PYTEST) -m "frameworks and not large" --numprocesses 2

# As the zoo's packages: the other tests run without them, as most users do.
$(FRAMEWORKS_STAMP): tests/integrations/requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(FRAMEWORKS) -r $<
	@touch $(FRAMEWORKS_STAMP)

# TESTED=1 says that `make test` has passed already, as in CI.
test-all: $(if $(TESTED),,test) test-export test-ultralytics test-keras-torch $(FRAMEWORKS_STAMP) ## large tests too: all recorded predictions, soak tests
	$(PYTEST) -m "large and not frameworks and not ultralytics and not keras_torch" --numprocesses 2
	PYTHONPATH=$(CURDIR)/$(FRAMEWORKS) $(PYTEST) -m "large and frameworks" --numprocesses 2

test-export: $(EXPORT_STAMP) ## export detectors and run the files in ONNX Runtime and ExecuTorch (four minutes)
	PYTHONPATH=$(CURDIR)/$(EXPORT) $(PYTEST) -m export

# As the zoo's packages: the other tests run without them, as most users do.
$(EXPORT_STAMP): tests/shrink/requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(EXPORT) -r $<
	@touch $(EXPORT_STAMP)

test-ultralytics: $(ULTRALYTICS_STAMP) ## train with Ultralytics (two minutes)
	PYTHONPATH=$(CURDIR)/$(ULTRALYTICS) $(PYTEST) -m ultralytics

# Apart from test-frameworks: Ultralytics needs other versions, and is under the AGPL.
$(ULTRALYTICS_STAMP): tests/integrations/ultralytics-requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(ULTRALYTICS) -r $<
	@touch $(ULTRALYTICS_STAMP)

test-keras-torch: $(KERAS_TORCH_STAMP) ## train with Keras on torch (one minute)
	PYTHONPATH=$(CURDIR)/$(KERAS_TORCH) KERAS_BACKEND=torch $(PYTEST) -m keras_torch

$(KERAS_TORCH_STAMP): tests/integrations/keras-torch-requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(KERAS_TORCH) -r $<
	@touch $(KERAS_TORCH_STAMP)

test-keras: $(KERAS_STAMP) ## train with Keras, convert to TFLite and run the files (four minutes, 1.4 GB)
	PYTHONPATH=$(CURDIR)/$(KERAS) $(PYTEST) -m keras

# TensorFlow is too large for `make setup` and `make test-all`.
$(KERAS_STAMP): tests/integrations/keras-requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(KERAS) -r $<
	@touch $(KERAS_STAMP)

# Apart from test-export, and not part of test-all: its packages are larger than all others together.
test-litert: $(LITERT_STAMP) ## export detectors and run the files in LiteRT (two minutes)
	PYTHONPATH=$(CURDIR)/$(LITERT) $(PYTEST) -m litert

$(LITERT_STAMP): tests/shrink/requirements-litert.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(LITERT) -r $<
	@touch $(LITERT_STAMP)

versions: ## run both README commands on every Python of PYTHONS, in fresh clones
	@for python in $(PYTHONS); do \
	    "$$python" --version >/dev/null 2>&1 || { echo "$$python: not installed"; continue; }; \
	    folder=$$(mktemp -d) && git clone --quiet . "$$folder/oomph" && cd "$$folder/oomph" \
	    && $(MAKE) --no-print-directory PYTHON="$$python" train test && echo "$$python: ok" \
	    || { echo "$$python: failed, see $$folder/oomph"; exit 1; }; \
	    cd "$(CURDIR)" && rm -rf "$$folder"; \
	done

format: $(STAMP) ## rewrite the source in the project's format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP) ## measure the start-up times that docs/ and the README state
	$(BIN)/python benchmarks/startup.py

# Apart from .venv's own packages and without dependencies: torchvision would pull in another torch.
$(ZOO_STAMP): benchmarks/zoo/requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --no-compile --target $(ZOO) -r $<
	@touch $(ZOO_STAMP)

compare: $(ZOO_STAMP) ## predict all recorded configurations and compare with what was measured (minutes)
	PYTHONPATH=$(ZOO) $(BIN)/python benchmarks/predict_all.py --out $(ZOO)/predicted.json
	$(BIN)/python benchmarks/compare.py $(ZOO)/predicted.json

peers: $(ZOO_STAMP) ## ask other estimators about the same configurations (half an hour)
	PYTHONPATH=$(ZOO) $(BIN)/python benchmarks/peers.py --out $(ZOO)/peers.jsonl

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache dist
