"""External services of tests (Java Paimon, a Kafka broker, Spark, an S3 server): how they are shared, and when tests
are left out.

A part is known by its fixture, or by `@pytest.mark.needs("Spark")` where a test starts it in a process of its own. A
worker of pytest-xdist starts a part once, when the first of its modules needs it; which worker has which modules stands
in workers.py.

Where there is no JDK, `make test` sets TIDELAKE_WITHOUT_JAVA. Tests whose part needs one are then left out, and so are
those that need a program which is not installed (Prometheus, Chromium: packages of Debian), a small disk where users
may mount none, or glibc. The end of the run says how many, by part. Nothing else leaves a test out: ruff bans that.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

import pytest

PART_OF_FIXTURE: Final = {
    "hdfs": "HDFS",
    "hive_metastore": "Hive metastore",
    "java_oracle": "Java Paimon",
    "spark": "Spark",
    "kafka_broker": "Kafka",
    "private_kafka_broker": "Kafka",
    "s3_server": "S3 server",
    "unreliable_s3": "S3 server",
    "pypaimon": "pypaimon",
    "postgresql": "PostgreSQL",
    "debezium": "Debezium",
}
NEEDS_JAVA: Final = frozenset({"HDFS", "Hive metastore", "Java Paimon", "Spark", "Kafka", "S3 server", "Debezium"})
PROGRAMS: Final = {"Prometheus": "prometheus", "Chromium": "chromium", "PostgreSQL": "initdb"}
UNSHARE: Final = ("unshare", "--user", "--map-root-user", "--mount", "--")
"""The command before another one that may then mount file systems, which only it sees."""
WITHOUT_JAVA: Final = "TIDELAKE_WITHOUT_JAVA"

_LEFT_OUT = pytest.StashKey[Counter[str]]()
_OF_WORKER: Final = "tests left out"


def _may_mount() -> bool:
    return (
        shutil.which(UNSHARE[0]) is not None
        and subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
    )


SYSTEM_PYTHON: Final = "/usr/bin/python3"
"""The interpreter for which Debian has packages. It imports ours if it has our version."""


def _has_pytorch() -> bool:
    """Whether the system's Python has our version and PyTorch. Importing it would take seconds."""
    program = "import sys, importlib.util as u; print(sys.version_info[:2], u.find_spec('torch') is not None)"
    if shutil.which(SYSTEM_PYTHON) is None:
        return False
    run = subprocess.run([SYSTEM_PYTHON, "-c", program], capture_output=True, text=True, check=False)
    return run.stdout.strip() == f"{sys.version_info[:2]} True"


OPENLINEAGE_SPEC: Final = "TIDELAKE_OPENLINEAGE_SPEC"
"""Names the folder `spec` of OpenLineage's repository. Its schemas are not ours to keep."""

FEATURES: Final[dict[str, tuple[Callable[[], bool], str]]] = {
    "a small disk": (_may_mount, "a system that lets users have mount namespaces"),
    "glibc": (lambda: platform.libc_ver()[0] == "glibc", "glibc"),
    "PyTorch": (_has_pytorch, "Debian's package python3-torch, and its version of Python"),
    "OpenLineage's schemas": (lambda: OPENLINEAGE_SPEC in os.environ, f"its folder `spec` in {OPENLINEAGE_SPEC}"),
    "pyright": (lambda: find_spec("pyright") is not None, "pyright, of the extra dev"),
}
"""What only some systems have: a check, and what the end of the run says that is needed."""


def parts_of(item: pytest.Item) -> list[str]:
    """In the order of the table above."""
    fixtures = set(getattr(item, "fixturenames", ()))
    marked = {part for mark in item.iter_markers("needs") for part in mark.args}
    of_fixtures = [p for fixture, p in PART_OF_FIXTURE.items() if fixture in fixtures or p in marked]
    return list(dict.fromkeys([*of_fixtures, *(p for p in PROGRAMS if p in marked)]))


def _features_of(item: pytest.Item) -> list[str]:
    return [part for mark in item.iter_markers("needs") for part in mark.args if part in FEATURES]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {part for part, program in PROGRAMS.items() if shutil.which(program) is None}
    if os.environ.get(WITHOUT_JAVA):
        missing |= NEEDS_JAVA
    missing |= {part for part in {p for item in items for p in _features_of(item)} if not FEATURES[part][0]()}
    kept, left_out = [], []
    for item in items:
        parts = [*parts_of(item), *_features_of(item)]
        if lacking := [part for part in parts if part in missing]:
            left_out.append(item)
            config.stash[_LEFT_OUT][lacking[0]] += 1
            continue
        kept.append(item)
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of a worker of pytest-xdist
    if output is not None:
        left_out = session.config.stash[_LEFT_OUT]
        output[_OF_WORKER] = dict(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects, and so leaves out, the same tests."""
    left_out: Counter[str] = Counter(getattr(node, "workeroutput", {}).get(_OF_WORKER, {}))
    if left_out:
        node.config.stash[_LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if counts := config.stash[_LEFT_OUT]:
        terminalreporter.section("left out, for want of what they need", sep="=", yellow=True)
        for part, count in sorted(counts.items()):
            terminalreporter.line(f"{count:>6} tests with {part}: {_needed_for(part)}")


def _needed_for(part: str) -> str:
    if part in FEATURES:
        return FEATURES[part][1]
    return f"the program {PROGRAMS[part]}" if part in PROGRAMS else "a JDK 17 and Maven"
