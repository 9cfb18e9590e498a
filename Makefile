# Every target sets up what it needs. `make test` asks PyPI alone; `make interop`, `make bench` and `make chaos` also
# ask Maven, npm, Go and Debian, and keep what they fetch under .cache/.

VENV    := .venv
PY      := $(VENV)/bin/python
PYTEST  := $(PY) -m pytest -q
SEEDS   ?= 1000
CASES   ?= 200000
REPEATS ?= 3
ONLY    ?=
STORM_MINUTES ?= 5
STORMS ?= 200
KILL_SEEDS ?= 1
MUTANTS ?= 40

# Tests that compute have all cores; of those that mostly wait, for brokers and clients, some more run side by side, a
# file at a time with brokers of its own.
COMPUTING := tests/unit tests/property tests/sim tests/crash tests/fuzz tests/docs
# Walks over every disk call of a life and every moment of a stop; `make test` takes some steps of each.
WALKS := tests/crash/test_every_disk_error.py tests/crash/test_node_disk_errors.py tests/crash/test_every_shutdown.py
COPY_RECORDS  ?= 1000000
COPY_KILLS    ?= 30
FAULT_RECORDS ?= 100000

.DEFAULT_GOAL := help
.PHONY: help setup jdk lint types unit test interop spark sim fuzz damage mutants chaos bench wheels docs demo clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/.tools: requirements.txt requirements-dev.txt
	@test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(VENV)/.built: $(VENV)/.tools pyproject.toml setup.py $(foreach package,records client/producer,$(wildcard src/headrace/$(package)/_[a-z]*.py src/headrace/$(package)/*.pxd))
	$(PY) -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.spark: requirements-spark.txt $(VENV)/.built
	$(PY) -m pip install -q --disable-pip-version-check -r requirements-spark.txt
	@touch $@

jdk: setup  # asked before 400 MB of Spark are fetched in vain
	@$(PY) -c 'import sys; from headrace.spark.prerequisites import java_problem; sys.exit(java_problem())'

setup: $(VENV)/.built  ## virtual environment, test tools, editable install with the compiled module
	@$(PY) -m compileall -q src  # as an installed package would be: a start must not wait for the compiler

lint: setup types  ## ruff, mypy --strict, import-linter
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: setup  ## mypy --strict over src
	$(VENV)/bin/mypy

unit: setup  ## unit and property tests, under a minute
	$(PYTEST) tests/unit tests/property

test: setup  ## everything that PyPI alone can serve, under ten minutes
	$(PYTEST) -n auto $(COMPUTING)
	$(PYTEST) -n 3 --dist loadfile tests --ignore=tests/interop --ignore=tests/spark $(COMPUTING:%=--ignore=%)

interop: setup  ## clients and tools from other registries, each against Kafka 4.3.1 and against Headrace
	@PYTHONPATH=tests $(PY) -m harness.stock_spark  # 400 MB: no test's time should run meanwhile
	$(PYTEST) -n 2 --dist loadfile tests/interop --timeout=600
	$(PYTEST) -n 2 --dist loadfile tests/clients --broker=kafka

spark: setup $(VENV)/.spark  ## PySpark (needs a JDK 17) on Headrace and on Kafka 4.3.1; KILL_SEEDS=10 kills each part of a stream more often; BRIEF=1: ten minutes of it
	HEADRACE_KILL_SEEDS=$(KILL_SEEDS) $(PYTEST) tests/spark --timeout=3600 --durations=10 $(if $(BRIEF),-m "brief and not on_kafka")

sim: setup  ## the node and our client under a seeded clock, network and disk, on all cores; SEEDS=1000, or SEED=7 PLAY=logs to play one again
	$(PY) -m headrace.simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(PLAY),--play $(PLAY)) $(if $(JOBS),--jobs $(JOBS))

fuzz: setup  ## frames and batches full of rubbish, every disk call failing, stops at any moment, for longer than in `make test`; CASES=200000
	@for target in tests/fuzz/*.py $(WALKS); do echo "$$target"; HEADRACE_FUZZ_CASES=$(CASES) $(PYTEST) --timeout=0 $$target || exit 1; done

damage: setup  ## every byte of every file of a stopped node flipped, cut and zeroed; an hour on two cores
	HEADRACE_DAMAGE=complete $(PYTEST) --timeout=0 -n auto tests/crash/test_damage_walk.py

mutants: setup  ## small mistakes in storage, node and machines, chosen by a seed: which do the tests notice? MUTANTS=40 SEED=7
	PYTHONPATH=tools $(PY) -m mutants --mutants $(MUTANTS) $(if $(SEED),--seed $(SEED))

chaos: setup  ## groups in storms beside Kafka's, copies under kill -9, our client behind a bad network; STORM_MINUTES=5 STORMS=200 COPY_RECORDS=1000000 COPY_KILLS=30
	@echo "50 members join, leave and crash for $(STORM_MINUTES) min, by both protocols, on Headrace and on Kafka"
	PYTHONPATH=tests $(PY) -m chaos.storm --minutes $(STORM_MINUTES)
	@echo "$(STORMS) storms of some seconds over a classic group, beside two processes that compute"
	PYTHONPATH=tests $(PY) -m chaos.storm --repeat $(STORMS) --busy 2 --brokers headrace --protocols classic
	@echo "$(COPY_RECORDS) records are copied in transactions while copiers and broker are killed $(COPY_KILLS) times"
	PYTHONPATH=tests $(PY) -m chaos.copying --records $(COPY_RECORDS) --kills $(COPY_KILLS)
	@echo "our own client writes, reads and copies $(FAULT_RECORDS) records through a proxy that ruins its connections"
	PYTHONPATH=tests $(PY) -m chaos.client_faults --records $(FAULT_RECORDS) --kills $(COPY_KILLS)

bench: setup  ## TARGETS beside Kafka 4.3.1 in one run; ONLY=T1,T4 REPEATS=3; AGAINST=<commit> SCALE=0.3: beside that commit instead
	PYTHONPATH=tests $(PY) -m benchmarks --repeats $(REPEATS) $(if $(ONLY),--only $(ONLY)) $(if $(AGAINST),--against $(AGAINST)) $(if $(SCALE),--scale $(SCALE))

wheels: setup  ## a wheel in dist/, installed in a clean environment that follows the README; and one without a C compiler
	$(PY) tools/try_wheel.py

docs: setup  ## docs/reference/ from the code
	$(PY) tools/make_reference.py

demo: jdk $(VENV)/.spark  ## a pipeline on Spark (needs a JDK 17) counts exactly once while its broker and its driver are killed with -9
	@$(PY) examples/ad_clicks/demo.py --chart build/demo.svg

clean:  ## remove what the other targets made
	rm -rf $(VENV) .cache build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
