"""Checkpoints and commits are OpenTelemetry spans if its package is installed, and cost nothing otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import pytest

from tests.ingest.pipeline.test_truncates import TruncatingWorld
from tidelake.ingest.monitoring import tracing


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The started spans. A fake replaces the package and has only the one function that is called."""
    found: list[tuple[str, dict[str, Any]]] = []

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name: str, attributes: dict[str, Any]) -> Iterator[None]:
            found.append((name, attributes))
            yield

    package, module = ModuleType("opentelemetry"), ModuleType("opentelemetry.trace")
    module.get_tracer = lambda scope: Tracer()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", package)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    tracing.cached_tracer.cache_clear()
    yield found
    tracing.cached_tracer.cache_clear()


async def test_each_checkpoint_and_each_tables_commit_is_a_span(spans: list[tuple[str, dict[str, Any]]]) -> None:
    world = TruncatingWorld(bytes_max=1_000_000)
    world.add("a", 1)
    world.add("b", 2)
    await world.run()
    names = [name for name, _ in spans]
    assert names.count("tidelake.checkpoint") == 1
    assert {actual["tidelake.table"] for name, actual in spans if name == "tidelake.commit"} == {"shop.a", "shop.b"}
    assert all(isinstance(actual["tidelake.identifier"], int) for name, actual in spans if name == "tidelake.commit")


def test_without_the_package_no_spans_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    tracing.cached_tracer.cache_clear()
    assert isinstance(tracing.span("checkpoint"), nullcontext)
    tracing.cached_tracer.cache_clear()
