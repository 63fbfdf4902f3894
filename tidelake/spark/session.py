"""A Spark session for the command line: on this machine, on a cluster, or the one that spark-submit set up.

Arguments of spark-submit win over ours: master, driver's address, web page, time zone, interpreters.

Source: PySpark `core/context.py` (`_ensure_initialized`), `java_gateway.py` (`PYSPARK_GATEWAY_PORT`); of the JVM's
flags Spark `launcher/SparkSubmitCommandBuilder.java`, `SparkLauncher.DRIVER_DEFAULT_JAVA_OPTIONS`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.allocators import WORKER_ENVIRONMENT
from storage.errors import BadInput, TidelakeError

SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
    **{f"spark.executorEnv.{name}": os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()},
}
_ON_THIS_MACHINE: Final = {
    "spark.ui.enabled": "false",
    # No other host need reach a driver that runs alone; and a host without a resolvable name would not start.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_ARROW_FLAGS: Final = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
_JVM_FLAGS: Final = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")
_JVM_ENVIRONMENT: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_DEFAULT_MASTER: Final = "local[*]"
_INTERPRETERS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def start_session(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """master: None is that of spark-submit, else this machine
    settings: over all others

    Python workers on this machine run this very interpreter, which has the packages they import.

    Raises BadInput when spark-submit was given another master. Raises TidelakeError when Spark doesn't start; standard
    error says why. An interrupt waits until the JVM is up, then ends it: one whose parent ends earlier would stay
    forever.
    """
    _quieten()
    submitted = _submitted_settings()
    master = _master(master, submitted)
    if _is_one_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if not any(key in submitted for key in _INTERPRETERS) and not (submitted and "PYSPARK_PYTHON" in os.environ):
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    ours = {**SETTINGS, **(_ON_THIS_MACHINE if _is_one_machine(master) else {}), **jvm_flags()}
    builder = SparkSession.builder.appName(_app_name(submitted) or name).master(master)
    for key, value in {**{k: v for k, v in ours.items() if k not in submitted}, **settings}.items():
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


def jvm_flags(*, also: str = "") -> dict[str, str]:
    """Settings with which the JVMs of Spark read Arrow's vectors without looking twice at bounds and nulls: a seventh
    of what a read by a Python source costs. Spark's own code asks whether a value is null before it takes it.

    Spark puts them before `spark.driver.extraJavaOptions` and `spark.executor.extraJavaOptions`, which therefore win,
    and stay what they are. A setting of the user is left out, and so is a flag that the environment names.
    also: a text with settings, in addition to the file that Spark reads by itself
    """
    text = _defaults_file() + also
    environment = " ".join(os.environ.get(name, "") for name in _JVM_ENVIRONMENT)
    flags = [flag for flag in _ARROW_FLAGS if flag.partition("=")[0] not in environment]
    return {key: " ".join(flags) for key in _JVM_FLAGS if flags and key not in text}


def _defaults_file() -> str:
    """Source: Spark `launcher/CommandBuilderUtils.java`, `AbstractCommandBuilder.java` (`getConfDir`)."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _submitted_settings() -> dict[str, str]:
    """Of the JVM that spark-submit started; none without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # nothing public asks that JVM before there is a context
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def _app_name(submitted: Mapping[str, str]) -> str | None:
    """spark-submit takes the script's name for it where it was given none."""
    given = submitted.get("spark.app.name", "")
    return None if given.endswith(".py") else given or None


def _master(asked: str | None, submitted: Mapping[str, str]) -> str:
    given = submitted.get("spark.master")
    if asked is not None and given is not None and asked != given:
        raise BadInput(
            f"--master {asked}, but spark-submit was given {given}. Leave --master of `tidelake spark run` out"
        )
    return given or asked or _DEFAULT_MASTER


def _is_one_machine(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _quieten() -> None:
    """What PySpark says besides what it raises."""
    # We take Arrow's ways through it.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # some of it logs under no name
