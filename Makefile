# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# What the demonstration needs, and what development does.
SMALL := .venv/.installed-small
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo readme docs test test-fast soak lint format clean

demo: $(SMALL)
	$(BIN)/textcapsules demo --out runs/demo --overwrite

# One seed of hashes: the processes must agree on the tests' names.
test: $(STAMP)
	PYTHONHASHSEED=0 $(BIN)/python -m pytest -n auto --dist loadfile --durations=20

# The tests without those marked slow.
test-fast: $(STAMP)
	PYTHONHASHSEED=0 $(BIN)/python -m pytest -n auto --dist loadfile -m 'not slow'

# Builds the pages and the API reference into site/. A warning, such as a broken link, fails.
docs: $(STAMP)
	$(BIN)/python -m sphinx -Wq --keep-going -c docs . site

# Runs the first pages' commands and examples on the demo's model, and compares their output.
readme: $(SMALL)
	$(BIN)/python .ci/readme.py

# Kills and damaged files for an hour, or for SECONDS.
SECONDS ?= 3600
soak: $(STAMP)
	$(BIN)/python tests/faults/soak.py --seconds $(SECONDS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -m venv .venv

# The pins matter: without them pip fetches gigabytes of CUDA libraries with torch.
$(SMALL): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[encoder-offline,explain,fast,serve]'
	touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev,encoder-offline]'
	touch $@ $(SMALL)

clean:
	rm -rf .venv runs site .pytest_cache .ruff_cache
