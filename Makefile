# Every target does its own set-up: a Python environment in .venv, and with root rights the Debian packages it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint bench dist test-crash clean

help:
	@echo "make demo        see it work: broker, agent, landing, attacks, a rule push, Spark (3 minutes)"
	@echo "make test        lint, types and all tests, against real peers"
	@echo "make bench       events per CPU-second of the real agent, as JSON"
	@echo "make dist        one zip that installs the agent on a bare Linux host"
	@echo "make test-crash  the crash tests in their long form"
	@echo "make clean       remove what the other targets made"

$(STAMP): pyproject.toml tools/setup.sh
	@sh tools/setup.sh "$(PYTHON)" "$(VENV)"
	@touch $(STAMP)

setup: $(STAMP)
	@sh tools/packages.sh

demo: setup
	@$(BIN)/python -m demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p vedette
	$(BIN)/mypy -p spark_jobs

test: setup lint
	$(BIN)/pytest -q tests

test-crash: setup
	VEDETTE_CRASH_KILLS=200 $(BIN)/pytest -q -m crash tests

bench: setup
	$(BIN)/python -m bench.harness

dist: $(STAMP)
	$(BIN)/python -m packaging.dist

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
