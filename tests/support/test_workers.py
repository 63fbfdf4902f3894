"""Which test modules share a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workers import SERVICE_OF_NAME, group_of

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("service", SERVICE_OF_NAME.values())
def test_modules_that_need_a_service_are_one_group(service: str) -> None:
    assert sum(group_of(module) == service for module in TESTS.rglob("test_*.py")) > 5


def test_a_module_of_two_services_is_in_the_group_of_the_slower_one(tmp_path: Path) -> None:
    module = tmp_path / "test_both.py"
    module.write_text("def test_both(kafka_broker: KafkaBroker, spark: SparkSession) -> None: ...\n")
    assert group_of(module) == "Spark"


def test_any_other_module_is_a_group_of_its_own(tmp_path: Path) -> None:
    module = tmp_path / "test_alone.py"
    module.write_text("def test_alone() -> None: ...\n")
    assert group_of(module) == str(module)
