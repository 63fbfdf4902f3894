"""Driver and tasks run one version of this package."""

from __future__ import annotations

import pytest

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.spark.task_start import check_version, package_version


def test_a_task_of_another_version_than_the_driver_s_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match=r"on a Spark executor: the driver runs 99\.0"):
        check_version("99.0")


@pytest.mark.parametrize("driver", [package_version(), "unknown"])
def test_the_same_or_an_unknown_version_is_accepted(driver: str) -> None:
    check_version(driver)
