# `make` lists the targets. No setup is needed: each target installs what it needs on its first run, and is quick afterwards.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# With this variable every process of a run would compile all modules again: the workers of pytest, each command, each
# Python worker of Spark.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin

# The first suitable interpreter; `make PYTHON=/path/to/python3` chooses another one. (The pypaimon that tests install has no
# wheels for 3.14.)
PYTHON = $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		&& { echo "$$python"; break; }; done)

define NO_PYTHON
Tidelake needs Python 3.11 or newer with its venv module, and found none on the PATH.
Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13),
or pass its path: make PYTHON=/path/to/python3
endef
export NO_PYTHON

# Each run gets a separate folder: in pytest's default folder, one run would delete files that the brokers of another run
# still use. The folder is in memory if enough is free: most tests create many small files, and tests about fsync count
# calls, not writes to a disk.
MEMORY_FOLDER = $(shell [[ $$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) -gt 4000000 ]] && echo '-p /dev/shm')
WORKERS := 3
# How many days share the cases of test-interop; each day runs others.
DAYS := 1
pytest = scratch=$$(mktemp -d $(MEMORY_FOLDER)); trap 'rm -rf "$$scratch"' EXIT; \
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder --basetemp="$$scratch/pytest" $(1)

# Without a JDK and Maven the tests that need them are left out, and the end of the run lists these tests.
WITHOUT_JAVA = $(shell tools/require-java 2>/dev/null || echo TIDELAKE_WITHOUT_JAVA=1)

# pip prints about a hundred lines. Show only its progress; if it fails, show all lines. $(1): the packages to install.
define pip_install
@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; [[ -t 1 ]] && terminal=1 || terminal=0; \
if $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-color --editable $(1) 2>&1 \
	| tee "$$log" | awk -v terminal="$$terminal" "$$PIP_PROGRESS"; \
then true; else echo 'pip failed with this output:' >&2; cat "$$log" >&2; exit 1; fi
endef

define PIP_PROGRESS
/^Collecting / { packages++; doing = $$2; sub(/[<>=!~;,\[].*/, "", doing) }
/^ *Downloading .*\(/ { file = $$2; sub(/.*\//, "", file); sub(/-.*/, "", file); doing = file " " $$(NF - 1) " " $$NF }
/^Installing collected packages/ { doing = "unpacking" }
/^WARNING|^DEPRECATION/ { printf "%s%s\n", terminal ? "\r\033[K" : "", $$0 }
terminal { printf "\r\033[K   %d packages  %s", packages, doing; fflush() }
!terminal && packages >= 10 * (tens + 1) { tens++; printf "   %d packages\n", packages; fflush() }
END { printf "%s   %d packages checked\n", terminal ? "\r\033[K" : "", packages }
endef
export PIP_PROGRESS

comma := ,
INSTALLED := build/installed

title = @printf '\n\033[1m== %s\033[0m\n' $(1)

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.runtime ## write a small shop's changes to tables, live, in a minute
	@$(BIN)/tidelake demo

.PHONY: test
test: lint tools ## lint, and the tests that take less than ten minutes
	$(call title,'pytest')
	@$(if $(WITHOUT_JAVA),export $(WITHOUT_JAVA); )$(call pytest,)

.PHONY: test-interop
test-interop: $(VENV)/.development tools ## all cases against Java Paimon, Kafka, Spark and S3, and more random cases; DAYS=7: a seventh
	$(call title,'pytest -m interop or sampled')
	@tools/require-java
	@export TIDELAKE_TEST_DAYS=$(DAYS); $(call pytest,-m '(interop or sampled or hypothesis) and not long' --hypothesis-profile=thorough)

.PHONY: test-long
test-long: $(VENV)/.development tools ## the tests that take minutes each, and all random cases
	$(call title,'pytest -m long or hypothesis')
	@tools/require-java
	@$(call pytest,-m 'long or hypothesis' --hypothesis-profile=long)

# The tests in which others read our tables, and we theirs (tests/support/conformance.py).
CONFORMANCE := tests/golden/test_golden_tables.py tests/storage/commit/iceberg/test_readers.py \
	$(patsubst %,tests/interop/test_%.py,aggregate_functions changelogs cross_partition data_evolution data_files \
	deletion_vectors duckdb_iceberg dynamic_buckets file_indexes manifest_formats merge_engines order_of_rows \
	postponed_buckets row_tracking schema_evolution shared_tables spark_parquet table_life types variants)

.PHONY: conformance
conformance: $(VENV)/.development tools ## let all other readers read our tables, and write docs/conformance.md
	$(call title,'pytest of what others read')
	@tools/require-java
	@mkdir -p build; export TIDELAKE_CONFORMANCE=1 TIDELAKE_TEST_DAY=0; \
		$(call pytest,-m 'not long' --junitxml=build/conformance.xml $(CONFORMANCE))
	@$(BIN)/python docs/conformance.py build/conformance.xml

.PHONY: mutate
mutate: $(VENV)/.development ## make mistakes in modules that decide, and list those that no test notices
	@$(BIN)/python -m tests.mutation

.PHONY: lint
lint: $(VENV)/.development ## style, types, import directions
	$(call title,'ruff check')
	@$(BIN)/ruff check .
	$(call title,'ruff format --check')
	@$(BIN)/ruff format --check .
	$(call title,'mypy')
	@$(BIN)/mypy
	$(call title,'lint-imports')
	@$(BIN)/lint-imports

.PHONY: bench
bench: $(VENV)/.development tools ## measure rows per CPU-second and peak memory, also of other implementations
	@$(BIN)/python -m benchmarks

.PHONY: pictures
pictures: $(VENV)/.runtime ## draw the pictures of the README and the pages again; the terminal shows a run of the demo
	@$(BIN)/python docs/pictures.py
	@$(BIN)/python docs/page_pictures.py || true

.PHONY: docs
docs: $(VENV)/.development ## build the pages as a site, with search and the Python reference: build/site/index.html
	@$(BIN)/python docs/site.py

.PHONY: dist
dist: $(VENV)/.release ## build the wheel and the source distribution, and check them: dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl

.PHONY: try-dist
try-dist: ## install the wheel of dist/ into an empty environment, and run its demo there
	@rm -rf $(INSTALLED)
	@"$(PYTHON)" -m venv --without-pip $(INSTALLED)
	@"$(PYTHON)" -m pip --disable-pip-version-check --python $(INSTALLED)/bin/python install --quiet dist/*.whl
	@cd $(INSTALLED) && bin/tidelake --version && bin/tidelake demo --engine asyncio --records 5000 --pace 0

.PHONY: sbom
sbom: $(VENV)/.release ## list what the wheel installed (after `make try-dist`), as CycloneDX: build/sbom.json
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json \
		$(INSTALLED)/bin/python

.PHONY: release
release: $(VENV)/.release ## set the version, close its changelog, build, check, commit and tag: VERSION=0.2.0
	@$(BIN)/python tools/release.py "$(VERSION)"

.PHONY: clean
clean: ## remove all created files here (downloads in ~/.cache/tidelake stay)
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- what the targets depend on

$(VENV)/pyvenv.cfg:
	$(call title,'a virtual environment in $(VENV)')
	@[[ -n "$(PYTHON)" ]] || { echo "$$NO_PYTHON" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) && $(BIN)/python --version

$(VENV)/.runtime: pyproject.toml | $(VENV)/pyvenv.cfg
	$(call title,'installing tidelake with Spark (the first time: a minute or two)')
	$(call pip_install,'.[spark]')
	@touch $@

$(VENV)/.development: pyproject.toml | $(VENV)/pyvenv.cfg
	$(call title,'installing tidelake with Spark and the test tools (the first time: a minute or two)')
	$(call pip_install,'.[sketches$(comma)spark$(comma)dev]')
	@touch $@ $(VENV)/.runtime

$(VENV)/.release: pyproject.toml | $(VENV)/pyvenv.cfg
	$(call title,'installing the tools that build and check packages')
	$(call pip_install,'.[release]')
	@touch $@

.PHONY: tools
tools: $(VENV)/.development # Java Paimon, a Kafka broker, HDFS, pypaimon and DuckDB's Iceberg: tests compare with them
	$(call title,'putting Java Paimon$(comma) Kafka$(comma) HDFS$(comma) pypaimon and DuckDB into the cache')
	@if tools/require-java; then \
		tools/java-oracle/build >/dev/null; \
		tools/kafka/start-kafka --fetch-only >/dev/null; \
		tools/hdfs/fetch >/dev/null; \
		$(BIN)/python -m tests.support.spark_classes >/dev/null 2>&1 || { \
			printf 'The archive of Spark classes could not be built: Spark sessions start more slowly.\n' >&2; }; \
	else printf 'Continuing without them: tests that need them are left out.\n' >&2; fi
	@PYTHON=$(BIN)/python tools/pypaimon/build >/dev/null
	@PYTHON=$(BIN)/python tools/duckdb-iceberg/build >/dev/null
