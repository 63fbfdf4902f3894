"""What each of our tasks does first in its Python worker: check the version, and set the allocator.

Messages between driver and tasks have no stable format, so both must run the same version of this package.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from pyspark import TaskContext

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.allocators import keep_blocks_between_batches

PACKAGE = "tidelake"


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
    """Begin a task: check the version, and set the allocator.

    version: the version of this package in the driver.

    Raises UnsupportedFeature if the worker has another version.
    """
    check_version(version)
    if TaskContext.get() is not None:  # otherwise the process is not a Spark worker
        keep_blocks_between_batches()
