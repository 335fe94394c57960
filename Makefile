# Every target sets up what it needs first; set-up is quick when nothing changed.

PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup run test test-quick lint docs bench alternatives soak real-projects test-browser server-docs server-fuzz dist lock locks clean test-agents

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with everything that the other targets need
	@scripts/setup.sh

run: ## run the example: an agent's task inside the wall (sets up what it takes to run, and no more)
	@scripts/setup.sh run
	@$(PYTHON) examples/agent_task.py

test: ## lint, then run all tests
	@scripts/tests.sh

test-quick: ## lint and the most telling tests, in three minutes
	@scripts/tests.sh quick

lint: setup ## style, types and layers
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

docs: setup ## build the documentation's site into site/
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: setup ## measure what the walls cost; CHART=docs/bench.png draws the picture and writes the figures into README
	@$(PYTHON) -m benchmarks $(if $(CHART),--chart $(CHART) --readme README.md)
	@$(PYTHON) -m benchmarks.boxes
	@$(PYTHON) -m benchmarks.starting
	@$(PYTHON) -m benchmarks.load
	@$(PYTHON) -m benchmarks.decisions
	@$(PYTHON) -m benchmarks.audit
	@$(PYTHON) -m benchmarks.explaining
	@$(PYTHON) -m benchmarks.shadow
	@$(PYTHON) -m benchmarks.snapshots
	@$(PYTHON) -m benchmarks.keeper
	@$(PYTHON) -m benchmarks.server
	@$(PYTHON) -m benchmarks.egress
	@$(PYTHON) -m benchmarks.egress_inspect
	@$(PYTHON) -m benchmarks.browser
	@if [ -n "$$DOCKER_HOST" ]; then $(PYTHON) -m benchmarks.docker; else echo "left out: Docker (set DOCKER_HOST)"; fi

alternatives: setup ## install what others would use instead, for make bench
	@scripts/alternatives.sh

soak: setup ## ten thousand executions with random faults; CONTAINERS=SECONDS, as root: in Docker; SERVER=ROUNDS: load on a server
	@$(if $(CONTAINERS)$(SERVER),,RINGFENCE_EXAMPLES=300 $(PYTHON) -m pytest -q -n 2 tests/integration/test_shadow_properties.py)
	@$(PYTHON) -m tests.soak $(if $(CONTAINERS),--containers $(CONTAINERS)) $(if $(SERVER),--server $(SERVER))

real-projects: setup ## run real projects' own tests bare and in a box, as an ordinary user; PROJECTS="NAME ..." runs some
	@$(PYTHON) -m tests.real_projects $(PROJECTS)

test-browser: setup ## the browser's tests on every browser (boxed, boxed Chromium, host, remote), 200 sessions, 60 s of idling
	@RINGFENCE_TEST_BROWSERS=all $(PYTHON) -m pytest -q --timeout 900 tests/integration/test_browser.py tests/integration/test_browser_hostile.py tests/integration/test_browser_leaks.py

test-agents: setup ## run the command lines of coding agents, from npm, with hooks, in wrap and with MCP
	@scripts/agents.sh

server-docs: setup ## write docs/openapi.json from the server's route table
	@$(PYTHON) -m ringfence.server.openapi > docs/openapi.json

server-fuzz: setup ## try the server with many requests that its OpenAPI document allows, and hold it under load
	@RINGFENCE_FUZZ_EXAMPLES=25 $(PYTHON) -m pytest -q tests/integration/test_server_openapi.py
	@$(PYTHON) -m tests.soak.serving

dist: setup ## build sdist and wheels for an index, check them, try one in a clean environment
	@scripts/setup.sh dist
	@.venv-dist/bin/python scripts/dist.py
	@RINGFENCE_WHEEL=$$(ls $$PWD/dist/*manylinux2014_$$(uname -m).whl) $(PYTHON) -m pytest -q tests/first_hour/test_pip_user.py

lock: ## renew the pinned versions of dependencies (needs uv)
	@uv lock --upgrade
	@$(MAKE) --no-print-directory locks

EXPORT = uv export --quiet --locked --no-emit-project --no-header

locks: ## write pip's lock files from uv.lock (needs uv)
	@$(EXPORT) --no-default-groups --group build --output-file requirements-run.lock
	@$(EXPORT) --all-extras --output-file requirements-dev.lock
	@$(EXPORT) --only-group dist --output-file requirements-dist.lock

clean: ## remove what set-up, builds and tools made
	@rm -rf .venv .venv-dist dist build src/ringfence/_native .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
