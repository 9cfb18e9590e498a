# Every target installs what it needs. `make test` downloads only from PyPI; `make interop`, `make bench` and `make chaos`
# also from Maven, npm, Go and Debian. Downloads are kept under .cache/.

VENV    := .venv
PY      := $(VENV)/bin/python
PYTEST  := $(PY) -m pytest -q
SEEDS   ?= 1000
CASES   ?= 200000
ROUNDS  ?= 10
REPEATS ?= 3
ONLY    ?=
STORM_MINUTES ?= 5
STORMS ?= 200
KILL_SEEDS ?= 1
MUTANTS ?= 40
COMMIT ?= HEAD

# Tests that compute use all cores. Tests that mostly wait for brokers and clients run beside them; each file has its
# own brokers.
ALL_CORES := -n auto --dist worksteal
COMPUTING := tests/unit tests/property tests/sim tests/crash tests/fuzz tests/docs
# Those whose coverage is measured. In tests/property new examples would make the result vary.
MEASURED := tests/unit
LINES    := .cache/lines.json
# Tests that fail every disk call, or stop a node or lose its host at every moment; `make test` takes a sample of each.
WALKS := $(addprefix tests/crash/test_,every_disk_error.py node_disk_errors.py every_shutdown.py every_disk_call.py cleaning.py)
# What `make fuzz` runs with sanitizers: tests whose work is done by compiled modules.
SANITIZED := tests/fuzz/fuzz_core.py tests/fuzz/fuzz_batches.py tests/property/records tests/server/test_core_and_asyncio.py
# Suites of other languages' clients that brokers may be killed under.
UNDER_FIRE := $(addprefix tests/interop/test_,franz_go.py kafkajs.py java_groups.py java_transactions.py headrace_client_and_java.py)
# How many seeds of each play `make fresh` runs.
FRESH := quorum:100 cluster:60 cluster_coordinators:30
COPY_RECORDS  ?= 1000000
COPY_KILLS    ?= 30
FAULT_RECORDS ?= 100000
FAULT_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup jdk lint types audit unit test test-computing test-waiting interop spark sim fresh fuzz damage mutants chaos bench wheels docs demo clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/.tools: requirements.txt requirements-dev.txt
	@test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(VENV)/.built: $(VENV)/.tools pyproject.toml setup.py $(foreach package,records protocol client/producer,$(wildcard src/headrace/$(package)/_[a-z]*.py src/headrace/$(package)/*.pxd)) $(wildcard src/headrace/server/*.pyx)
	$(PY) -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.spark: requirements-spark.txt $(VENV)/.built
	$(PY) -m pip install -q --disable-pip-version-check -r requirements-spark.txt
	@touch $@

jdk: setup  # asked before 400 MB of Spark are fetched in vain
	@$(PY) -c 'import sys; from headrace.spark.prerequisites import java_problem; sys.exit(java_problem())'

setup: $(VENV)/.built  ## create the virtual environment: test tools, and an editable install with compiled modules
	@$(PY) -m compileall -q src  # as an installed package would be: a start must not wait for the compiler

lint: setup types  ## run ruff, mypy, import-linter and bandit
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/bandit -q -c pyproject.toml -r src 2>/dev/null

audit: setup  ## look for known vulnerabilities in the packages that are installed; write a bill of materials
	@$(PY) tools/audit_packages.py

types: setup  ## run mypy over src (--strict) and tests
	$(VENV)/bin/mypy

unit: setup  ## run unit and property tests on one core, some minutes
	$(PYTEST) tests/unit tests/property

test: setup  ## run all tests that need only PyPI, less than ten minutes on two cores; print the unit tests' coverage
	@echo "Two groups of tests run at the same time; their lines are mixed."
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line --keep-going test-computing test-waiting
	@$(PY) tools/coverage_data.py $(LINES)
	@printf 'lines of src/headrace that $(MEASURED) runs, in percent: ' && $(PY) -m coverage report --format=total

# -p slipcover: our own plugin for pytest would be imported first, and what it imports would not be measured
test-computing: setup
	@mkdir -p $(dir $(LINES))
	$(PY) -m slipcover --source src/headrace --json --out $(LINES) -m pytest -q -p slipcover $(ALL_CORES) $(MEASURED)
	$(PYTEST) $(ALL_CORES) $(filter-out $(MEASURED),$(COMPUTING))

test-waiting: setup
	$(PYTEST) -n 3 --dist loadfile tests --ignore=tests/interop --ignore=tests/spark $(COMPUTING:%=--ignore=%)

interop: setup  ## test clients and tools from other registries, against Headrace and against Kafka 4.3.1
	@PYTHONPATH=tests $(PY) -m harness.stock_spark  # 400 MB: no test's time should run meanwhile
	$(PYTEST) -n 2 --dist loadfile tests/interop --timeout=600
	$(PYTEST) -n 2 --dist loadfile tests/clients --broker=kafka
	$(PYTEST) -n 2 --dist loadfile tests/clients --nodes=3

spark: setup $(VENV)/.spark  ## test PySpark (needs a JDK 17) on Headrace and on Kafka 4.3.1; KILL_SEEDS=10 kills each part of a stream more often; BRIEF=1 takes ten minutes
	HEADRACE_KILL_SEEDS=$(KILL_SEEDS) $(PYTEST) tests/spark --timeout=3600 --durations=10 $(if $(BRIEF),-m "brief and not on_kafka")

sim: setup  ## run the simulator (node and client with a seeded clock, network and disk) on all cores; SEEDS=1000, or SEED=7 PLAY=logs to repeat one
	$(PY) -m headrace.simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(PLAY),--play $(PLAY)) $(if $(PROFILE),--profile $(PROFILE)) $(if $(JOBS),--jobs $(JOBS))

fresh: setup  ## run the simulator's plays of a cluster with seeds that the hash of the last commit chooses; COMMIT=<commit> takes those of another one
	@hash=$$(git rev-parse --verify "$(COMMIT)^{commit}") || exit 1; \
	first=$$((0x$$(echo $$hash | cut -c 1-6))); \
	echo "to repeat: make fresh COMMIT=$$hash"; \
	for one in $(FRESH); do \
	    play=$${one%:*} seeds=$$first..$$((first + $${one#*:} - 1)); \
	    echo "make sim PLAY=$$play SEEDS=$$seeds"; \
	    $(PY) -m headrace.simulator --play $$play --seeds $$seeds $(if $(JOBS),--jobs $(JOBS)) || exit 1; \
	done

fuzz: setup  ## test random examples, frames and batches, failing disk calls and stops at any moment, for longer than `make test`; CASES=200000 ROUNDS=10
	@echo "tests/property, $(ROUNDS) times with new examples"
	@for round in $$(seq $(ROUNDS)); do $(PYTEST) -n auto --hypothesis-profile=random tests/property || exit 1; done
	@for target in tests/fuzz/*.py $(WALKS); do echo "$$target"; HEADRACE_FUZZ_CASES=$(CASES) $(PYTEST) --timeout=0 $$target || exit 1; done
	@echo "the compiled modules with address and undefined-behaviour sanitizers"
	HEADRACE_FUZZ_CASES=$(CASES) $(PY) tools/sanitized.py $(PYTEST) --timeout=0 $(SANITIZED)

damage: setup  ## flip, cut off and zero every byte of every file of a stopped node; ten minutes on two cores
	HEADRACE_DAMAGE=complete $(PYTEST) --timeout=0 -n auto tests/crash/test_damage_walk.py

mutants: setup  ## change storage, node and machines in small random ways, and count which changes the tests find; MUTANTS=40 SEED=7
	PYTHONPATH=tools $(PY) -m mutants --mutants $(MUTANTS) $(if $(SEED),--seed $(SEED))

chaos: setup  ## test rebalance storms (also on Kafka), copies under kill -9, our client behind a bad network, and a cluster of three; STORM_MINUTES=5 STORMS=200 COPY_RECORDS=1000000 COPY_KILLS=30 FAULT_SECONDS=60
	@echo "50 members join, leave and crash for $(STORM_MINUTES) min, by both protocols, on Headrace and on Kafka"
	PYTHONPATH=tests $(PY) -m chaos.storm --minutes $(STORM_MINUTES)
	@echo "$(STORMS) storms of some seconds over a classic group, beside two processes that compute"
	PYTHONPATH=tests $(PY) -m chaos.storm --repeat $(STORMS) --busy 2 --brokers headrace --protocols classic
	@echo "$(COPY_RECORDS) records are copied in transactions while copiers and broker are killed $(COPY_KILLS) times"
	PYTHONPATH=tests $(PY) -m chaos.copying --records $(COPY_RECORDS) --kills $(COPY_KILLS)
	@echo "our own client writes, reads and copies $(FAULT_RECORDS) records through a proxy that ruins its connections"
	PYTHONPATH=tests $(PY) -m chaos.client_faults --records $(FAULT_RECORDS) --kills $(COPY_KILLS)
	@echo "clients' own suites on three brokers that are killed in turn"
	$(PYTEST) -n 2 --dist loadfile tests/clients --nodes=3 --kill-brokers
	$(PYTEST) -n 2 --dist loadfile $(UNDER_FIRE) --nodes=3 --kill-brokers
	@echo "nodes of a cluster are killed, stopped and cut off under load, each fault for $(FAULT_SECONDS) s"
	PYTHONPATH=tests $(PY) -m chaos.cluster --seconds $(FAULT_SECONDS)

bench: setup  ## run the benchmarks, compared with Kafka 4.3.1; ONLY=T1,T4 REPEATS=3; with AGAINST=<commit> SCALE=0.3, compared with that commit
	PYTHONPATH=tests $(PY) -m benchmarks --repeats $(REPEATS) $(if $(ONLY),--only $(ONLY)) $(if $(AGAINST),--against $(AGAINST)) $(if $(SCALE),--scale $(SCALE))

wheels: setup  ## build a wheel in dist/, and test it in a clean environment with the README's commands; also without a C compiler
	$(PY) tools/try_wheel.py

docs: setup  ## generate docs/reference/ from the code
	$(PY) tools/make_reference.py

demo: jdk $(VENV)/.spark  ## run a Spark pipeline (needs a JDK 17) that counts exactly once while one of three brokers and its driver are killed with -9
	@$(PY) examples/ad_clicks/demo.py --chart build/demo.svg

clean:  ## remove everything that the other targets created
	rm -rf $(VENV) .cache build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
