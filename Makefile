# Every target sets up what it needs first; set-up is quick when nothing changed.

PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup run test lint bench alternatives soak lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with everything that the other targets need
	@scripts/setup.sh

run: setup ## run the example: an agent's task inside the wall
	@$(PYTHON) examples/agent_task.py

test: ## lint, then run all tests
	@scripts/tests.sh

lint: setup ## style, types and layers
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

bench: setup ## measure what the walls cost; CHART=FILE draws a picture
	@$(PYTHON) -m benchmarks $(if $(CHART),--chart $(CHART))
	@$(PYTHON) -m benchmarks.load
	@$(PYTHON) -m benchmarks.decisions
	@$(PYTHON) -m benchmarks.audit
	@$(PYTHON) -m benchmarks.explaining
	@$(PYTHON) -m benchmarks.shadow
	@$(PYTHON) -m benchmarks.snapshots
	@if [ -n "$$DOCKER_HOST" ]; then $(PYTHON) -m benchmarks.docker; else echo "left out: Docker (set DOCKER_HOST)"; fi

alternatives: setup ## install what others would use instead, for make bench
	@scripts/alternatives.sh

soak: setup ## run ten thousand executions with random faults; CONTAINERS=SECONDS, as root: fifty sessions in Docker
	@$(PYTHON) -m tests.soak $(if $(CONTAINERS),--containers $(CONTAINERS))

lock: ## renew the pinned versions of dependencies (needs uv)
	@uv lock --upgrade
	@uv export --quiet --all-extras --no-emit-project --no-header --output-file requirements-dev.lock

clean: ## remove what set-up, builds and tools made
	@rm -rf .venv dist build src/ringfence/_native .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
