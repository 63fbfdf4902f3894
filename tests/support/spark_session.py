"""A real Spark on this machine, shared by the test session. Without Spark it fails with the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_classes import short_lived_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure() -> None:
    """Every driver that this process or one of its children starts, and the daemons of a cluster."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(name, short_lived_jvm())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, UTC, loopback only, no web page; its own folder for whatever it leaves behind."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - tests without Spark don't wait for its import

    here = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = str(_interpreter(here / "python"))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tidelake tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(here / "local"))
        .config("spark.sql.warehouse.dir", str(here / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def _interpreter(path: Path) -> Path:
    """What workers run: python3 from the PATH lacks our packages.

    Spark puts its zip ahead of the packages, and from a zip each worker compiles pyspark again: half of its start.
    The installed pyspark is the same, and compiled.
    """
    import pyspark  # noqa: PLC0415 - as above

    packages = Path(pyspark.__file__).parent.parent
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec "{sys.executable}" "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path
