"""A pipeline that commits nothing becomes unready within two intervals, with the reason. An idle pipeline is ready."""

from __future__ import annotations

import asyncio
import re

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Gate, Rig, raw_batch, until
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.ingest.pipeline.pipeline import RunState

INTERVAL_MS = 1_000


def codes(rig: Rig) -> list[str]:
    return [reason.code for reason in not_ready(rig.pipeline.observed)]


def reason(rig: Rig) -> str:
    (found,) = not_ready(rig.pipeline.observed)
    return found.reason


async def test_a_pipeline_is_ready_from_its_first_read_to_its_end() -> None:
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [FakeTable("t")], interval_ms=INTERVAL_MS)
    assert codes(rig) == ["not_running"]
    run = asyncio.create_task(rig.pipeline.run())
    await until(lambda: rig.pipeline.metrics.records == 1)
    assert codes(rig) == []
    rig.pipeline.stop()
    await run
    assert (codes(rig), reason(rig)) == (["not_running"], "the pipeline is ended")


async def test_a_hanging_commit_makes_the_pipeline_unready_within_two_intervals_and_names_the_table() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [table], interval_ms=INTERVAL_MS)
    gate = rig.sinks["t"].at_commit = Gate()
    run = asyncio.create_task(rig.pipeline.run())
    await until(lambda: rig.pipeline.metrics.rows == 1)
    await rig.clock.sleeper(below_ms=INTERVAL_MS + 1)
    rig.clock.advance(INTERVAL_MS)
    await gate.reached()
    assert codes(rig) == []
    rig.clock.advance(INTERVAL_MS + 1)
    assert codes(rig) == ["commits_stalled"]
    assert re.fullmatch(
        r"nothing was committed for 2\.0 s, and the limit is 2 s; commits under way: t; "
        r"now: .*checkpoint: publish for 1\.0 s.*",
        reason(rig),
    )
    gate.open()
    await until(lambda: codes(rig) == [])
    rig.pipeline.stop()
    await run


async def test_a_pipeline_that_waits_for_records_stays_ready() -> None:
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [FakeTable("t")], interval_ms=INTERVAL_MS)
    run = asyncio.create_task(rig.pipeline.run())
    await until(lambda: rig.pipeline.metrics.rows == 1)
    await rig.clock.sleeper(below_ms=INTERVAL_MS + 1)
    rig.clock.advance(INTERVAL_MS)
    await until(lambda: rig.pipeline.metrics.checkpoints == 1)
    rig.clock.advance(100 * INTERVAL_MS)
    assert codes(rig) == []
    rig.pipeline.stop()
    await run


async def test_records_in_the_log_that_are_never_delivered_count_as_a_stall() -> None:
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [FakeTable("t")], interval_ms=INTERVAL_MS)
    observed = rig.pipeline.observed
    run = asyncio.create_task(rig.pipeline.run())
    await until(lambda: rig.pipeline.metrics.rows == 1)
    await rig.clock.sleeper(below_ms=INTERVAL_MS + 1)
    rig.clock.advance(INTERVAL_MS)
    await until(lambda: rig.pipeline.metrics.checkpoints == 1)
    (partition,) = observed.partitions
    observed.set_end_offsets({partition: 9})
    observed.source_failed("no answer within 5 s")
    rig.clock.advance(2 * INTERVAL_MS + 1)
    assert codes(rig) == ["commits_stalled"]
    assert reason(rig).endswith("the source: no answer within 5 s")
    observed.set_end_offsets({partition: 1})
    assert (codes(rig), reason(rig)) == (
        ["source_unreachable"],
        "the source has not answered for 2.0 s: no answer within 5 s",
    )
    observed.source_answered()
    assert codes(rig) == []
    rig.pipeline.stop()
    await run


def test_quarantined_tables_are_named_and_many_are_counted() -> None:
    observed = Rig(FakeSource([]), [FakeTable("t")]).pipeline.observed
    observed.state = RunState.RUNNING.name
    observed.problems = lambda: {f"db.t{number}": "quarantined: offset 3 is bad" for number in range(8)}
    found = not_ready(observed)
    assert [one.code for one in found] == ["table_held_back"] * 6
    assert found[0].reason == "db.t0: quarantined: offset 3 is bad"
    assert found[-1].reason == "3 more tables are held back"
    assert [table for one in found for table in one.tables] == sorted(observed.problems())
