"""Logged durations of checkpoints, and parallel flushing and publishing of tables."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Rig, raw_batch
from tests.support.manual_clock import ManualClock
from tidelake.ingest.pipeline.run_metrics import CheckpointTimer
from tidelake.storage.base.logs import FIELDS

Event: TypeAlias = Mapping[str, Any]


async def run(
    caplog: pytest.LogCaptureFixture, *, prepare_ms: int, publish_ms: int, checkpoints: int = 1
) -> tuple[list[Event], list[Event]]:
    """The events `checkpoint`, and `checkpoint_late`, of checkpoints 1,000 ms apart that take so long."""
    batches = [raw_batch([n]) for n in range(checkpoints)]
    rig = Rig(FakeSource(batches), [FakeTable("t")], interval_ms=1_000, bytes_max=1)
    loop = asyncio.get_running_loop()

    def takes(duration_ms: int) -> None:
        passed = threading.Event()
        loop.call_soon_threadsafe(rig.clock.advance, duration_ms)
        loop.call_soon_threadsafe(passed.set)
        assert passed.wait(30)

    rig.sinks["t"].at_prepare = lambda: takes(prepare_ms)
    rig.sinks["t"].at_commit = lambda: takes(publish_ms)
    with caplog.at_level(logging.INFO):
        await asyncio.wait_for(rig.pipeline.run(), 60)
    events = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    of = {name: [event for event in events if event["event"] == name] for name in ("checkpoint", "checkpoint_late")}
    return of["checkpoint"], of["checkpoint_late"]


async def test_a_punctual_checkpoint_logs_its_duration(caplog: pytest.LogCaptureFixture) -> None:
    checkpoints, late = await run(caplog, prepare_ms=300, publish_ms=700)
    assert [(event["took_ms"], event["late_ms"]) for event in checkpoints] == [(1_000, 0)]
    assert late == []


async def test_a_late_checkpoint_logs_its_delay_and_the_slowest_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoints, late = await run(caplog, prepare_ms=300, publish_ms=1_900)
    assert [(event["took_ms"], event["late_ms"]) for event in checkpoints] == [(2_200, 1_200)]
    (warning,) = late
    reported = {name: warning[name] for name in ("late_ms", "interval_ms", "prepare_ms", "publish_ms", "tables")}
    assert reported == {"late_ms": 1_200, "interval_ms": 1_000, "prepare_ms": 300, "publish_ms": 1_900, "tables": 1}
    assert "checkpoint.interval_ms" in warning["remedy"]


@pytest.mark.parametrize(
    ("steps", "reported", "remedy"),
    [
        pytest.param([("publish", 9)], {"publish_ms": 9_000}, "raise checkpoint.interval_ms", id="tables"),
        pytest.param(
            [("source", 68), ("source", 0), ("publish", 1)],
            {"source_ms": 68_000, "publish_ms": 1_000},
            "look at the brokers",
            id="the source, asked twice",
        ),
        pytest.param(
            [("quarantine", 3), ("publish", 4), ("quarantine", 2)],
            {"quarantine_ms": 5_000, "publish_ms": 4_000},
            "repair these tables",
            id="tables in quarantine, before and after",
        ),
        pytest.param([("dead_letters", 5), ("publish", 4)], {"dead_letters_ms": 5_000}, "dead letters", id="letters"),
        pytest.param([("moved_rows", 5), ("publish", 4)], {"moved_rows_ms": 5_000}, "key changes", id="moved rows"),
        pytest.param([("progress", 5), ("publish", 4)], {"progress_ms": 5_000}, "progress file", id="progress"),
    ],
)
def test_a_late_checkpoint_blames_the_step_that_took_longest_in_all(
    steps: list[tuple[str, int]], reported: dict[str, int], remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    timer = CheckpointTimer(1_000, clock)
    timer.begin()
    for name, seconds in steps:
        with timer.step(name):
            clock.advance(seconds * 1_000)
    timer.end(tables=1)
    (record,) = caplog.records
    event = getattr(record, FIELDS)
    assert {name: event[name] for name in reported} == reported
    assert remedy in event["remedy"]


async def test_late_checkpoints_are_logged_once_a_minute_with_their_count(caplog: pytest.LogCaptureFixture) -> None:
    checkpoints, late = await run(caplog, prepare_ms=0, publish_ms=20_000, checkpoints=7)
    assert [event["late_ms"] for event in checkpoints] == [19_000] * 7
    assert [warning["late_checkpoints"] for warning in late] == [1, 3, 3]


async def test_tables_flush_in_parallel_and_then_publish_in_parallel() -> None:
    """Each step of a table waits for the same step of the other one."""
    tables = [FakeTable("a"), FakeTable("b")]
    rig = Rig(FakeSource([raw_batch([0, 1], [b"a/x", b"b/x"])]), tables)
    for step in ("at_prepare", "at_commit"):
        both = threading.Barrier(2, timeout=30)
        for sink in rig.sinks.values():
            setattr(sink, step, both.wait)
    await asyncio.wait_for(rig.pipeline.run(), 60)
    assert [len(table.checkpoints) for table in tables] == [1, 1]
