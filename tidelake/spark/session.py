"""A Spark session on this machine, for the command line."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage.errors import TidelakeError

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Nobody else need reach a driver that runs alone; and a host without a resolvable name would not start.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
}


def start_session(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """settings: over ours. Python workers run this very interpreter, which has the packages they import.

    Raises TidelakeError when Spark doesn't start; standard error says why.
    An interrupt waits until the JVM is up, then ends it: one that loses us earlier would stay for ever.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _quieten()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    with ThreadPoolExecutor(1) as other_thread:  # PySpark takes the signal over when it starts in the main one
        starting = other_thread.submit(builder.getOrCreate)
        try:
            return starting.result()
        except PySparkException as error:
            raise TidelakeError(f"Spark did not start: {error}") from None
        except KeyboardInterrupt:
            starting.result().stop()
            raise


def _quieten() -> None:
    """What PySpark says besides what it raises."""
    # We take Arrow's ways through it.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # some of it logs under no name
