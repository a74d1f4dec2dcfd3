# `make demo` and `make test` do all their own set-up: Python 3.11+, make and a network suffice.
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)

.PHONY: setup pages demo test lint prove prove-short clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and was not found"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c 'from evertable.spark.java import find_java; find_java()' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[java]'
	$(BIN)/evertable doctor --warm
	@touch $@

demo: setup
	$(BIN)/evertable demo

lint: setup
	$(BIN)/ruff check src tests prove bench
	$(BIN)/ruff format --check src tests prove bench
	$(BIN)/mypy

# Three workers on two cores: tests of a stream wait for Spark as often as they compute. What measures
# time runs alone, after the rest; what is long is with the proofs.
test: lint
	$(BIN)/pytest -n 3 --dist worksteal -m "not alone and not long"
	$(BIN)/pytest -m alone

# The pages of findings are the docstrings of their rules.
pages: setup
	$(BIN)/python docs/findings.py

prove: setup
	$(BIN)/pytest -n 2 -m long
	$(BIN)/pytest prove --timeout 600

prove-short: setup
	$(BIN)/pytest -n 2 -m long
	$(BIN)/pytest prove --short --timeout 600

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache evertable-demo
