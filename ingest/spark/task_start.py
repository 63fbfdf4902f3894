"""The first step of each of our tasks in its Python worker."""

from __future__ import annotations

from pyspark import TaskContext

from tidelake.ingest.allocators import keep_blocks_between_batches
from tidelake.ingest.spark.package_version import check_version


def begin_task(version: str) -> None:
    """Begin a task: check the version, and set the allocator.

    version: the version of this package in the driver.

    Raises UnsupportedFeature if the worker has another version.
    """
    check_version(version)
    if TaskContext.get() is not None:  # otherwise the process is not a Spark worker
        keep_blocks_between_batches()
