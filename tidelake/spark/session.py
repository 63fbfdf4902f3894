"""A Spark session for the command line: on this machine, on a cluster, or the one that spark-submit set up.

Arguments of spark-submit override ours: master, driver's address, web page, time zone, interpreters.

Source: PySpark `core/context.py` (`_ensure_initialized`), `java_gateway.py` (`PYSPARK_GATEWAY_PORT`); of the JVM's
flags Spark `launcher/SparkSubmitCommandBuilder.java`, `SparkLauncher.DRIVER_DEFAULT_JAVA_OPTIONS`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelake.errors import BadInput, TidelakeError
from tidelake.ingest.allocators import WORKER_ENVIRONMENT
from tidelake.storage.base import env
from tidelake.storage.base.log_output import worker_environment

SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
    **{f"spark.executorEnv.{name}": os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()},
}
_LOCAL_SESSION_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    # No other host has to reach a local driver, and a host without a resolvable name would not start.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_ARROW_FLAGS: Final = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
_JVM_FLAGS: Final = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")
_JVM_ENVIRONMENT: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_DEFAULT_MASTER: Final = "local[*]"
_INTERPRETERS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def start_session(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """Start a session, or return the one of spark-submit.

    master: None is that of spark-submit, otherwise this machine
    settings: override all others

    Python workers on this machine run this interpreter, which has the packages that they import. All workers log in the
    format and from the level of this process.

    Raises BadInput if spark-submit has another master. Raises TidelakeError if Spark doesn't start; standard error
    contains the reason. An interrupt waits until the JVM is up, then ends it: a JVM whose parent ends earlier would run
    forever.
    """
    _silence_pyspark()
    submitted = _submitted_settings()
    master = _master(master, submitted)
    if _is_one_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if not any(key in submitted for key in _INTERPRETERS) and not (submitted and "PYSPARK_PYTHON" in os.environ):
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = {**SETTINGS, **(_LOCAL_SESSION_OPTIONS if _is_one_machine(master) else {}), **jvm_flags()}
    options |= {f"spark.executorEnv.{name}": os.environ.get(name, text) for name, text in worker_environment().items()}
    builder = SparkSession.builder.appName(_app_name(submitted) or name).master(master)
    for key, value in {**{k: v for k, v in options.items() if k not in submitted}, **settings}.items():
        builder = builder.config(key, value)
    # In another thread: PySpark changes the signal handler when it starts in the main thread.
    with env.ThreadPoolExecutor(1) as other_thread:
        starting = other_thread.submit(builder.getOrCreate)
        try:
            return starting.result()
        except PySparkException as error:
            raise TidelakeError(f"Spark did not start: {error}") from None
        except KeyboardInterrupt:
            starting.result().stop()
            raise


def jvm_flags(*, also: str = "") -> dict[str, str]:
    """Return settings that make Spark's JVMs read Arrow's vectors without repeated checks of bounds and nulls.

    These checks cost a seventh of a read by a Python source. Spark's own code checks for null before it reads a value.

    Spark puts the flags before `spark.driver.extraJavaOptions` and `spark.executor.extraJavaOptions`, which therefore
    override them, and stay unchanged. A setting of the user is left out, and so is a flag that the environment names.

    also: a text with settings, in addition to the file that Spark reads by itself
    """
    text = _defaults_file() + also
    environment = " ".join(os.environ.get(name, "") for name in _JVM_ENVIRONMENT)
    flags = [flag for flag in _ARROW_FLAGS if flag.partition("=")[0] not in environment]
    return {key: " ".join(flags) for key in _JVM_FLAGS if flags and key not in text}


def _defaults_file() -> str:
    """Return the text of Spark's defaults file.

    Source: Spark `launcher/CommandBuilderUtils.java`, `AbstractCommandBuilder.java` (`getConfDir`).
    """
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _submitted_settings() -> dict[str, str]:
    """Return the settings of the JVM that spark-submit started; empty without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # no public function reads that JVM's settings before a context exists
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def _app_name(submitted: Mapping[str, str]) -> str | None:
    """Return the name given to spark-submit. Without one, spark-submit uses the script's name."""
    given = submitted.get("spark.app.name", "")
    return None if given.endswith(".py") else given or None


def _master(asked: str | None, submitted: Mapping[str, str]) -> str:
    given = submitted.get("spark.master")
    if asked is not None and given is not None and asked != given:
        raise BadInput(f"--master {asked}, but spark-submit got {given}. Leave out --master of `tidelake spark run`")
    return given or asked or _DEFAULT_MASTER


def _is_one_machine(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _silence_pyspark() -> None:
    """Silence what PySpark logs in addition to raised errors."""
    # Only its conversion to Arrow is used.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # some of py4j logs to the root logger
