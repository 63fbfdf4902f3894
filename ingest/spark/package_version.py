"""Driver and tasks must run the same version of this package: what they send each other is of no other's form."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from storage.errors import UnsupportedFeature

PACKAGE = "tidelake"


def package_version() -> str:
    """`unknown` where the package was shipped as files, without its metadata."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def check_version(driver: str) -> None:
    """In a task. Raises UnsupportedFeature for another version than the driver's."""
    own = package_version()
    if own != driver and "unknown" not in (own, driver):
        raise UnsupportedFeature(
            f"{PACKAGE} {own} on a Spark executor",
            f"the driver runs {driver}",
            "Give executors the driver's environment: docs/spark.md says how",
        )
