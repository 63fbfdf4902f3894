"""A record that stops a pipeline can be skipped: exactly this one, and it becomes a dead letter."""

from __future__ import annotations

import pytest

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Rig, raw_batch
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("record", [b"bad", b"new column"])
async def test_a_skipped_record_becomes_a_dead_letter_and_the_others_are_written(record: bytes) -> None:
    table, source = FakeTable("t"), FakeSource([raw_batch([0, 1, 2], [b"a", record, b"b"], topic="t")])
    rig = Rig(source, [table], skip=[(T0, 1)])
    metrics = await rig.pipeline.run()
    assert table.rows == [(0, "a"), (2, "b")]
    assert metrics.dead_letters == 1
    assert not metrics.unused_skips


async def test_the_next_bad_record_stops_the_pipeline() -> None:
    table, source = FakeTable("t"), FakeSource([raw_batch([0, 1, 2], [b"a", b"bad", b"bad"], topic="t")])
    with pytest.raises(RecordRefused, match="offset 2"):
        await Rig(source, [table], skip=[(T0, 1)]).pipeline.run()
    assert table.rows == [(0, "a")]


async def test_a_skipped_good_record_is_written_and_reported() -> None:
    table, source = FakeTable("t"), FakeSource([raw_batch([0], [b"a"], topic="t")])
    metrics = await Rig(source, [table], skip=[(T0, 0)]).pipeline.run()
    assert table.rows == [(0, "a")]
    assert metrics.unused_skips == {(T0, 0)}
