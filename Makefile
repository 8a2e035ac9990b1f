# Every target makes its own .venv from the pins and reinstalls only when they change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ZOO := $(VENV)/zoo
ZOO_STAMP := $(ZOO)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup train test check format bench compare peers clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv from constraints.txt

$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

train: $(STAMP) ## train a small detector on a data set made on the spot, in a few minutes
	$(BIN)/oomph train

test: check $(ZOO_STAMP) ## everything a change must pass: format, lint, types, tests
	$(BIN)/python -m pytest --numprocesses 2

check: $(STAMP) ## the fast part: format, lint, types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(STAMP) ## rewrite the source in the one format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP) ## measure the start-up times that docs/ and the README state
	$(BIN)/python benchmarks/startup.py

# Apart from .venv's own packages and without dependencies: torchvision would take another torch along.
$(ZOO_STAMP): benchmarks/zoo/requirements.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target $(ZOO) -r $<
	@touch $(ZOO_STAMP)

compare: $(ZOO_STAMP) ## predict the whole zoo and print what was measured beside it (a few minutes)
	PYTHONPATH=$(ZOO) $(BIN)/python benchmarks/predict_all.py --out $(ZOO)/predicted.json
	$(BIN)/python benchmarks/compare.py $(ZOO)/predicted.json

peers: $(ZOO_STAMP) ## ask what people use today about the same configurations (half an hour)
	PYTHONPATH=$(ZOO) $(BIN)/python benchmarks/peers.py --out $(ZOO)/peers.jsonl

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache dist
