"""How the workers of pytest-xdist share a run, and what makes each of them quicker.

One worker runs all tests of a module (`--dist loadfile`), and all modules that need the same slow service: otherwise
each worker would start its own Spark, Java and Kafka, whose first seconds are the most expensive ones.
"""

from __future__ import annotations

import gc
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

SERVICE_OF_NAME: Final = {"SparkSession": "Spark", "JavaOracle": "Java Paimon", "KafkaBroker": "Kafka"}
"""The type of a service's fixture, which the modules that use it name. The first one counts."""


@cache
def group_of(module: Path) -> str:
    """Returns the service that a test module needs, or its own path."""
    text = module.read_text(encoding="utf-8")
    return next((service for name, service in SERVICE_OF_NAME.items() if name in text), str(module))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - not there without pytest-xdist

    class BySharedService(LoadFileScheduling):  # type: ignore[misc]  # xdist exports it without a type
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath / super()._split_scope(nodeid))

    return BySharedService(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collected tests and their modules stay until the end: no garbage collection has to look at them again."""
    gc.collect()
    gc.freeze()
