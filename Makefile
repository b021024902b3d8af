# The environment lives in .venv, installed from requirements.lock; every target sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast test-slow install check format lock

demo: install
	$(BIN)/python -m itofit.cli demo --out demo

test: install
	$(BIN)/python -m pytest

# The inner loop: what compiles no solver.
FAST := tests/snapshots tests/transport tests/process tests/weak tests/tools tests/datasets \
  tests/metrics/test_distances.py tests/metrics/test_floor.py tests/metrics/test_trivial.py \
  tests/test_arrays.py tests/test_docstrings.py tests/moments/test_relevance.py tests/moments/test_whitening.py \
  tests/trust/test_goodness.py tests/trust/test_structure.py tests/plot

test-fast: install
	$(BIN)/python -m pytest $(FAST)

test-slow: install
	$(BIN)/python -m pytest -m slow

install: .venv/installed

.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python tools/check_imports.py

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	uv pip compile pyproject.toml --group dev --group build --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock
