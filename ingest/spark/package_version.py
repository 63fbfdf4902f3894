"""Checks that driver and tasks run the same version of this package: their messages have no stable format."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from tidelake.storage.base.errors import UnsupportedFeature

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
            "Give the executors the driver's environment: see docs/spark.md",
        )
