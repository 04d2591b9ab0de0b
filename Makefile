# Every target does its own set-up: a Python environment in .venv, and with root rights the Debian packages it needs.
# PYTHON: what it is made with; the system's own where none is named.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
# Three processes on two cores: many tests wait more than they work.
TESTS = $(BIN)/pytest -q -n 3 --durations 20

.PHONY: help environment shell lock docs pictures setup demo demo-fleet demo-sites check kernel ready test test-all lint bench bench-spark dist jars otelcol promtail test-install test-crash test-flink evaluate soak fuzz \
        clean

help:
	@echo "make demo        see it work: broker, agent, landing, attacks, a rule push, Spark (3 minutes)"
	@echo "make demo-fleet  an operator's week: enrol, roll out, see a bad change come back, ask (3 minutes)"
	@echo "make demo-sites  five sites, one intruder: from the report to one raw line (5 minutes)"
	@echo "make shell       a shell in which vedette and vedette-spark are found, without set-up beyond .venv"
	@echo "make check       lint, types and the tests of rooms that your change reaches"
	@echo "make test        lint, types and all tests but the long ones, against real peers (15 minutes)"
	@echo "make test-all    the long ones, too: kills at random, booted containers, all of Spark (hours)"
	@echo "make bench       eleven scenarios on the real agent, into docs/performance.md (half an hour)"
	@echo "make bench-spark the region's jobs on ALERTS=1000000 made-up alerts, into docs/scale.md"
	@echo "make dist        the zips that install the agent on a bare Linux host, and their add-ons, for x86_64 and aarch64"
	@echo "make test-install the installation's whole life in booted containers, as root"
	@echo "make jars        Kafka, Delta and an S3 server for the tests, by Maven; make test does it, too"
	@echo "make otelcol     an OpenTelemetry Collector for the tests, with Go (3 minutes)"
	@echo "make promtail    Loki's Promtail for the tests, with Go (20 minutes)"
	@echo "make test-crash  the property and crash tests in their long form, 200 kills each, what is for releases, Delta by Spark in full (hours)"
	@echo "make test-flink  the vectors of SQL rules against a real Flink (FLINK=its python; else installs one, 850 MB, Java 17)"
	@echo "make evaluate    recall and precision of the Spark jobs on FLEETS=5 made-up fleets of three kinds (an hour; SITES=20: half)"
	@echo "make soak        one agent under everything at once for MINUTES=30, its memory and account checked"
	@echo "make fuzz        every reader of foreign bytes under atheris and libFuzzer, for SECONDS=600 in all"
	@echo "make lock        the newest versions that pyproject.toml allows, into requirements.lock and packaging/edge.lock"
	@echo "make docs        the pages of docs/ that restate code: commands.md, metrics.md"
	@echo "make pictures    the pictures of the console's walk and of the report, taken anew"
	@echo "make clean       remove what the other targets made"

environment:
	@sh tools/setup.sh "$(PYTHON)" "$(VENV)"

lock: environment
	@sh tools/lock.sh $(BIN)/python

docs: environment
	@$(BIN)/python -m tools.docs

# The pictures of docs/console.md, as an analyst's walk in Chromium takes them, and those of the report.
pictures: setup
	VEDETTE_PICTURES=docs/console $(BIN)/pytest -q tests/e2e/test_console_walk.py
	VEDETTE_PICTURES=docs $(BIN)/pytest -q tests/spark_jobs/report/test_pictures.py

setup: environment
	@sh tools/packages.sh

# A shell in which vedette, vedette-spark, pytest and the rest of .venv are found.
shell: environment
	@echo "vedette and vedette-spark are found here; exit leaves this shell"
	@PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" exec "$${SHELL:-/bin/sh}"

demo: setup
	@$(BIN)/python -m demo

demo-fleet: setup
	@$(BIN)/python -m demo.fleet

demo-sites: setup
	@$(BIN)/python -m demo.sites

lint: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p vedette -p spark_jobs -p vedette_console -p bench -p demo
	cd packaging && ../$(BIN)/mypy --strict -p installer
	@MAKEFLAGS= sh tools/kernel.sh lint $(BIN)/python

# What to run before each commit: no packages, no root, no network once .venv is there. Tests that the change reaches and
# that need no other program; all of them where nothing has changed since origin's main. Code 5: there are none.
check: environment
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint kernel
	@$(TESTS) -m "not long and not peer and not spark and not install and not boot" \
		$$($(BIN)/python -m tools.reach --mine) || [ $$? = 5 ]

kernel: environment
	@MAKEFLAGS= sh tools/kernel.sh test $(BIN)/python

jars:
	@mkdir -p build
	@sh tools/jars.sh

otelcol:
	@sh tools/otelcol.sh

promtail:
	@sh tools/promtail.sh

# Compiled beforehand: the tests start some hundreds of agents, also where Python may not write what it compiles.
ready: environment
	@sh tools/packages.sh tests
	@$(MAKE) --no-print-directory -j 3 --output-sync=target lint jars kernel
	@$(BIN)/python -m compileall -q agent spark_jobs tests bench

test: ready
	$(TESTS) -m "not long"

test-all: ready
	$(TESTS)

test-crash: setup jars
	VEDETTE_CRASH_KILLS=200 VEDETTE_SIMULATED=2000 $(BIN)/pytest -q -m long --ignore tests/install --ignore tests/engine tests
	VEDETTE_CRASH_KILLS=200 $(BIN)/pytest -q -m "not long" tests/spark_jobs/tables/test_tables.py tests/spark_jobs/test_kafka.py \
		tests/spark_jobs/test_connect.py
	VEDETTE_DEEP=2000 VEDETTE_PAIRS=2000000 $(BIN)/pytest -q tests/engine tests/differential/test_native.py
	VEDETTE_DEEP=300 $(BIN)/pytest -q tests/plan tests/rules tests/differential tests/fuzz tests/stream tests/inputs/push tests/system
	VEDETTE_DEEP=100 $(BIN)/pytest -q tests/state

# A Python that has apache-flink.
FLINK ?= build/flink/bin/python

# Minutes for statements that are drawn at random.
FRESH ?= 5

# Whether Flink still gives the rows that tests/differential/sql holds. A few files a JVM: the code of one that has planned
# them all is more than it may compile, and it goes on uncompiled.
test-flink: environment
	@[ -x "$(FLINK)" ] || { python3 -m venv build/flink && build/flink/bin/pip install -q apache-flink==2.3.0; }
	@printf '%s\n' tests/differential/sql/*.json | xargs -n 4 $(FLINK) tests/differential/flink.py check
	@$(BIN)/python -m tests.differential.fresh --flink $(FLINK) --minutes $(FRESH)

MINUTES ?= 30

FLEETS ?= 5

# Recall and precision of what the jobs find, on made-up fleets that no threshold was set on; of playbooks by class, with
# what was missed and when an attack was first seen. SITES=20 makes regions of a third of the size.
SITES ?= 60
evaluate: setup
	VEDETTE_FLEETS=$(FLEETS) VEDETTE_SITES=$(SITES) $(BIN)/pytest -q -s -k planted tests/spark_jobs/test_evaluation.py \
		tests/spark_jobs/test_playbooks.py tests/spark_jobs/test_replayed.py tests/spark_jobs/jobs/test_campaigns.py \
		tests/spark_jobs/jobs/test_baselines.py

soak: setup
	@$(BIN)/python -m bench.soak --minutes $(MINUTES)

SECONDS ?= 600

# atheris has no wheel for every Python: without it the target says so and is passed over.
fuzz: environment
	@$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/pip install -q --only-binary :all: "atheris>=3.0" || true
	@sh tools/kernel.sh fuzz $$(($(SECONDS) / 10))
	@$(BIN)/python -m tests.fuzz --seconds $$(($(SECONDS) * 9 / 10))

bench: setup
	$(BIN)/python -m bench.harness
	@[ -x "$(FLINK)" ] || { python3 -m venv build/flink && build/flink/bin/pip install -q apache-flink==2.3.0; }
	FLINK=$(FLINK) $(BIN)/python -m bench.statements
	$(BIN)/python -m bench.telemetry

ALERTS ?= 1000000

# Once as it comes, once with half of all alerts at one site; then what a message costs the broker and the landing.
bench-spark: setup
	$(BIN)/python -m bench.spark --alerts $(ALERTS)
	$(BIN)/python -m bench.spark --alerts $(ALERTS) --skew 0.5
	$(BIN)/python -m bench.region

# The starter rules go into the zips as a signed bundle. KEY is the region's signing key, RELEASE_KEY that of releases:
# keep one of each for all builds, since agents trust the keys they were installed with. Without one a key is made in
# build/. The same commit, keys and locks give the same bytes.
KEY ?= build/region.pem
RELEASE_KEY ?= build/release.pem
# Wheels, or folders of their source, of plugins (docs/plugins.md).
PLUGINS ?=
BUNDLE_VERSION ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 1)
dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)

dist: environment
	@sh tools/kernel.sh cross
	@mkdir -p build
	@[ -f $(KEY) ] || $(BIN)/vedette bundle keygen $(KEY)
	@[ -f $(RELEASE_KEY) ] || $(BIN)/vedette bundle keygen $(RELEASE_KEY)
	@$(BIN)/python -m bench.traffic --count 20000 --seed 3 --attacks 0.01 --out build/sample.log
	$(BIN)/vedette bundle build rules/sigma rules/sql -o build/starter.vbundle --name starter --version $(BUNDLE_VERSION) \
	    --days 1825 --sample build/sample.log --strict
	$(BIN)/vedette bundle sign build/starter.vbundle --key $(KEY)
	$(BIN)/python packaging/dist.py --bundle build/starter.vbundle --key "$$($(BIN)/vedette bundle public $(KEY))" \
	    --release-key $(RELEASE_KEY) $(addprefix --plugin ,$(PLUGINS))

# Boots Debian in containers (systemd-nspawn) with 1 core and 1 GB and lives through an installation's life there.
test-install: setup
	@sh tools/packages.sh tests
	@sh tools/kernel.sh cross
	VEDETTE_BOOT=all $(BIN)/pytest -q -rs tests/install

clean:
	rm -rf $(VENV) build dist agent/kernel/target agent/vedette/_kernel*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
