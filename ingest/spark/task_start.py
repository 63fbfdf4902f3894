"""What each task of ours does in its Python worker before anything else."""

from __future__ import annotations

from pyspark import TaskContext

from ingest.allocators import keep_blocks_between_batches
from ingest.spark.package_version import check_version


def begin_task(version: str) -> None:
    """version: of this package in the driver. Raises UnsupportedFeature for another one than the worker's."""
    check_version(version)
    if TaskContext.get() is not None:  # else the process is not Spark's
        keep_blocks_between_batches()
