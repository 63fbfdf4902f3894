"""What each of our tasks does first in its Python worker: check the version, set the allocator, set up its log.

Messages between driver and tasks have no stable format, so both must run the same version of this package.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from pyspark import TaskContext

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.allocators import keep_blocks_between_batches
from tidelake.storage.base.log_output import LOG_FORMAT_VARIABLE, LOG_LEVEL_VARIABLE, LogFormat, set_up_logging

PACKAGE = "tidelake"
_LEVELS = ("debug", "info", "warning", "error")


def package_version() -> str:
    """Return the version; `unknown` if the package was shipped as files without its metadata."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def check_version(driver: str) -> None:
    """Check the version in a task. Raises UnsupportedFeature if it differs from the driver's."""
    own = package_version()
    if own != driver and "unknown" not in (own, driver):
        raise UnsupportedFeature(
            f"{PACKAGE} {own} on a Spark executor",
            f"the driver runs {driver}",
            "Give the executors the driver's environment: see `tidelake help spark`",
        )


def begin_task(version: str) -> None:
    """Begin a task: check the version, set the allocator, set up the log of the worker.

    version: the version of this package in the driver.

    Raises UnsupportedFeature if the worker has another version.
    """
    check_version(version)
    if TaskContext.get() is not None:  # otherwise the process is not a Spark worker
        keep_blocks_between_batches()
        log_as_configured()


@cache
def log_as_configured() -> None:
    """Set up the log of a Python worker of Spark, as its environment says.

    The variables are `TIDELAKE_LOG_FORMAT` and `TIDELAKE_LOG_LEVEL`. Every line names its task. Without these variables
    nothing is set up: warnings go to standard error, as text.

    Raises BadInput for other values.
    """
    log_format, level = os.environ.get(LOG_FORMAT_VARIABLE), os.environ.get(LOG_LEVEL_VARIABLE)
    if log_format is None and level is None:
        return
    for variable, value, allowed in (
        (LOG_FORMAT_VARIABLE, log_format, tuple(map(str, LogFormat))),
        (LOG_LEVEL_VARIABLE, level, _LEVELS),
    ):
        if value is not None and value not in allowed:
            raise BadInput(
                f"{variable} = {value!r} in the environment of Spark's Python workers: expected {', '.join(allowed)}. "
                f"Correct the setting spark.executorEnv.{variable}"
            )
    set_up_logging(level or "info", LogFormat(log_format or LogFormat.JSON), fields=_task_fields)


def _task_fields() -> dict[str, object]:
    task = TaskContext.get()
    if task is None:  # a process of the driver that plans for a data source
        return {}
    return {"stage": task.stageId(), "task": task.taskAttemptId(), "partition": task.partitionId()}
