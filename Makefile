# Two commands carry this file: `make demo` and `make test`. Each makes its own .venv from the
# lock files under requirements/ and installs only the stages it needs.

PYTHON ?= python3
BIN := .venv/bin
SETUP := $(PYTHON) tools/setup.py

# Bytecode is kept whatever the environment says, as images for containers often forbid it: every
# server, worker and command that the tests and the demo start would compile all it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup setup-base setup-dev setup-spark demo test check fmt lock coverage bench docs h2spec promtool clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## install every stage into .venv
	@$(SETUP) base dev spark

setup-base: ## only what the package needs to run
	@$(SETUP) base

setup-dev: ## the base, and the test and lint tools
	@$(SETUP) base dev

setup-spark: ## the base, and Spark
	@$(SETUP) base spark

demo: setup-base ## watch the main job from end to end (SPARK=0: without Spark)
	@$(BIN)/python examples/demo.py $(if $(filter 0,$(SPARK)),--no-spark)

test: setup ## every test tier, as CI runs it
	@$(BIN)/python tools/run_tests.py

check: setup ## format, lint, types, imports and the quick tests: about a minute
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/make_sync.py --check
	@$(BIN)/python tools/run_tests.py --quick

fmt: setup-dev ## format the code, fix what can be fixed safely, make the blocking client
	@$(BIN)/python tools/make_sync.py
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup-dev ## take newer versions into requirements/ (some minutes, needs the network)
	@$(BIN)/python tools/lock.py

# Only tests that take the same ways in every run: what a random one happens to pass is not covered.
COVERING := $(addprefix tests/unit/,core storage engine queue testing) tests/formats \
	$(addprefix tests/crash/test_,log_rot.py wal_append.py wal_recovery.py wal_rotation.py wal_sync.py \
	erase_faults.py)

coverage: setup-dev ## branch coverage of core and storage, which has to be complete (a minute or two)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -p no:schemathesis --hypothesis-seed=0 $(COVERING)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report --no-skip-covered --include='*/topics/core/*,*/topics/storage/*' --fail-under=100

bench: setup-base ## speed against raw numbers of the same run
	@$(BIN)/topics bench engine

docs: setup-dev ## build the documentation site into build/site
	@$(BIN)/python -m mkdocs build --strict --quiet

h2spec: setup-base ## HTTP/2 conformance of a real server (needs Go once)
	@$(BIN)/python tools/h2spec.py

promtool: setup-base ## fetch promtool, with which the tests judge the metrics (needs apt-get)
	@$(BIN)/python tools/promtool.py

clean: ## remove everything that can be made again, .venv included
	rm -rf .venv .setup.lock build dist htmlcov .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +
