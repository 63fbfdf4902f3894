"""From source to tables: what is committed when, and what remains after each way to end a run."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest

from tests.ingest.pipeline.fakes import GONE, FakeDecoder, FakeSource, FakeTable, Gate, Rig, raw_batch, until
from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition, chain_breaks
from tidelake.errors import BadInput, CommitConflict, PositionRefused, RecordRefused, SourceUnavailable, WriterFenced
from tidelake.ingest import dead_letters
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.pipeline.progress_tracker import INTERVAL_MS
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Latest
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.base.threads import run_cpu_bound

T0, T1 = TopicPartition("log", 0), TopicPartition("log", 1)


def values(*offsets: int) -> list[tuple[int, str]]:
    return [(offset, f"v{offset}") for offset in offsets]


def is_gap_free(table: FakeTable) -> bool:
    return not chain_breaks([(snapshot.identifier, snapshot.position) for snapshot in table.snapshots])


async def until_waiting(rig: Rig) -> None:
    """Let the pipeline run until its checkpoint task sleeps on the clock (what keeps it registered always does)."""
    await asyncio.wait_for(rig.clock.sleeper(below_ms=INTERVAL_MS), 30)


async def until_due_in(rig: Rig, wait_ms: int) -> None:
    """Let the pipeline run until something of it is due in so long from now."""
    await asyncio.wait_for(rig.clock.sleeper_until(rig.clock.now_ms() + wait_ms), 30)


async def until_read(rig: Rig, records: int) -> None:
    await until(lambda: rig.pipeline.metrics.records == records)


async def cancelled(run: asyncio.Task[RunMetrics]) -> RunMetrics:
    return await asyncio.wait_for(run, 30)


# ---------------------------------------------------------------- the straight way


async def test_everything_up_to_the_end_is_committed_with_its_position() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0, 1]), raw_batch([0, 5], partition=1), raw_batch([2])]), [table])
    progress = await rig.pipeline.run()
    (snapshot,) = table.checkpoints
    assert sorted(snapshot.rows) == sorted(values(0, 1, 0, 5, 2))
    assert snapshot.position.ranges == {T0: OffsetRange(0, 3), T1: OffsetRange(0, 6)}
    assert snapshot.position.identity.cluster_id == "fake"
    assert (progress.ended, progress.records, progress.rows, progress.checkpoints) == ("end of source", 5, 5, 1)
    assert progress.snapshots == {"t": 2}  # the first one says that this process took over
    assert rig.source.was_closed


async def test_a_source_without_records_makes_no_snapshot() -> None:
    table = FakeTable("t")
    progress = await Rig(FakeSource([]), [table]).pipeline.run()
    assert (table.checkpoints, progress.checkpoints, progress.ended) == ([], 0, "end of source")


async def test_records_without_rows_make_no_snapshot() -> None:
    table = FakeTable("t")
    progress = await Rig(FakeSource([raw_batch([0, 1], [None, b"other/x"])]), [table]).pipeline.run()
    assert table.checkpoints == []
    assert progress.skipped == {"tombstone": 1, "table not configured": 1}


async def test_a_checkpoint_follows_the_interval() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [table], interval_ms=500)
    run = asyncio.create_task(rig.pipeline.run())
    await until_waiting(rig)
    rig.clock.advance(499)
    await until_waiting(rig)
    assert table.checkpoints == []
    gate = Gate()
    rig.sinks["t"].after_commit = gate
    rig.clock.advance(1)
    await gate.reached()
    assert table.rows == values(0)
    gate.open()
    rig.pipeline.stop()
    assert (await cancelled(run)).checkpoints == 1


async def test_a_checkpoint_follows_many_written_bytes() -> None:
    table = FakeTable("t")
    size = raw_batch([10, 11]).nbytes
    batches = [raw_batch([n, n + 1]) for n in range(10, 20, 2)]
    await Rig(FakeSource(batches), [table], bytes_max=2 * size).pipeline.run()
    assert [len(snapshot.rows) for snapshot in table.checkpoints] == [4, 4, 2]
    assert table.rows == values(*range(10, 20))
    assert is_gap_free(table)


async def test_a_table_without_rows_gets_no_snapshot() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source = FakeSource([raw_batch([0, 1], [b"a/x", b"a/y"])])
    await Rig(source, [a, b]).pipeline.run()
    source.batches.append(raw_batch([2, 3], [b"a/z", b"b/z"]))
    await Rig(source, [a, b]).pipeline.run()
    assert [snapshot.position.ranges[T0] for snapshot in a.checkpoints] == [OffsetRange(0, 2), OffsetRange(2, 4)]
    assert [snapshot.position.ranges[T0] for snapshot in b.checkpoints] == [OffsetRange(0, 4)]


async def test_the_position_of_a_table_contains_only_its_topics() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source = FakeSource([raw_batch([0], [b"a/x"], topic="a"), raw_batch([0], [b"b/x"], topic="b")])
    await Rig(source, [a, b], topics={"a": ["a"], "b": ["*"]}).pipeline.run()
    assert set(a.checkpoints[0].position.ranges) == {TopicPartition("a", 0)}
    assert set(b.checkpoints[0].position.ranges) == {TopicPartition("a", 0), TopicPartition("b", 0)}


async def test_a_partition_found_while_reading_starts_at_its_announced_offset() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0]), raw_batch([], partition=1, next_offset=3), raw_batch([4, 6], partition=1)])
    await Rig(source, [table]).pipeline.run()
    assert table.checkpoints[0].position.ranges == {T0: OffsetRange(0, 1), T1: OffsetRange(3, 7)}


async def test_the_position_passes_offsets_without_records() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0], next_offset=2), raw_batch([7]), raw_batch([], next_offset=9)])
    await Rig(source, [table]).pipeline.run()
    assert table.checkpoints[-1].position.ranges == {T0: OffsetRange(0, 9)}


async def test_the_source_is_informed_of_the_offsets_in_every_table() -> None:
    source = FakeSource([raw_batch([0, 1])])
    await Rig(source, [FakeTable("t")]).pipeline.run()
    assert source.confirmed == {T0: 2}


async def test_a_table_whose_records_have_ended_does_not_hold_these_offsets_back() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source = FakeSource([raw_batch([0, 1], [b"a/x", b"b/y"])])
    await Rig(source, [a, b]).pipeline.run()
    source.batches.append(raw_batch([2, 3], [b"a/z", b"a/z"]))
    await Rig(source, [a, b]).pipeline.run()
    assert b.checkpoints[-1].position.ends == {T0: 2}
    assert source.confirmed == {T0: 4}


# ---------------------------------------------------------------- starting again


async def test_a_second_run_continues_where_the_first_ended() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1])])
    await Rig(source, [table]).pipeline.run()
    source.batches.append(raw_batch([2, 3]))
    await Rig(source, [table]).pipeline.run()
    assert source.read_from == {T0: 2}
    assert [snapshot.identifier for snapshot in table.snapshots] == [1, 2, 3, 4]
    assert table.rows == values(0, 1, 2, 3)
    assert is_gap_free(table)


async def test_after_a_crash_between_two_tables_neither_loses_nor_repeats_a_row() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    batch = raw_batch([0, 1, 2, 3], [b"a/x", b"b/x", b"a/y", b"b/y"])
    source = FakeSource([batch])

    def fail() -> None:
        raise CommitConflict("somebody else was faster")

    first = Rig(source, [a, b])
    first.sinks["b"].at_commit = fail
    with pytest.raises(CommitConflict):
        await first.pipeline.run()
    assert (len(a.checkpoints), len(b.checkpoints)) == (1, 0)

    source.batches.append(raw_batch([4], [b"a/z"]))
    await Rig(source, [a, b]).pipeline.run()
    assert source.read_from == {T0: 0}
    assert a.rows == [(0, "x"), (2, "y"), (4, "z")]
    assert b.rows == [(1, "x"), (3, "y")]
    assert [s.identifier for s in a.checkpoints] == [2, 4]
    assert [s.identifier for s in b.checkpoints] == [4]
    assert is_gap_free(a)


@pytest.mark.parametrize("how", ["run", "plan"])
async def test_the_error_of_an_unreadable_table_is_raised_after_all_reads_ended(how: str) -> None:
    rig = Rig(FakeSource([]), [FakeTable("a"), FakeTable("b")])
    gate = Gate()
    rig.sinks["a"].at_read_state = boom
    rig.sinks["b"].at_read_state = gate
    looking = asyncio.create_task(getattr(rig.pipeline, how)())
    await gate.reached()
    for _ in range(50):
        await asyncio.sleep(0)
    assert (looking.done(), rig.sinks["b"].was_aborted, rig.source.was_closed) == (False, False, False)
    gate.open()
    with pytest.raises(OSError, match="disk full"):
        await looking
    assert rig.source.was_closed


async def test_another_source_is_refused() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0])])
    await Rig(source, [table]).pipeline.run()
    source.identity = SourceIdentity("another")
    with pytest.raises(PositionRefused, match="the cluster is another, not fake"):
        await Rig(source, [table]).pipeline.run()
    assert source.was_closed


async def test_a_start_position_that_may_change_is_published_first() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([5, 6])])
    source.first_offset = 6
    rig = Rig(source, [table], start=Latest())
    await rig.pipeline.run()
    assert [(s.identifier, s.rows, s.position.ranges[T0]) for s in table.snapshots] == [
        (1, [], OffsetRange(6, 6)),
        (2, values(6), OffsetRange(6, 7)),
    ]
    source.first_offset = 100
    await Rig(source, [table], start=Latest()).pipeline.run()
    assert source.read_from == {T0: 7}


async def test_a_new_table_receives_the_records_that_others_already_read() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source = FakeSource([raw_batch([0, 1, 2], [b"a/x", b"b/x", b"a/y"])])
    await Rig(source, [a]).pipeline.run()
    await Rig(source, [a, b]).pipeline.run()
    assert (a.rows, b.rows) == ([(0, "x"), (2, "y")], [(1, "x")])


# ---------------------------------------------------------------- backpressure


@pytest.mark.parametrize("step", ["at_write", "at_room"])
async def test_a_slow_table_pauses_the_source(step: str) -> None:
    table = FakeTable("t")
    size = raw_batch([0]).nbytes
    source = FakeSource([raw_batch([n]) for n in range(200)])
    rig = Rig(source, [table], queue_bytes=4 * size)
    gate = Gate()
    rig.sinks["t"].needs_room = True
    setattr(rig.sinks["t"], step, gate)
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    handed_out = -1
    while source.handed_out != handed_out:  # until nothing moves any more
        handed_out = source.handed_out
        await asyncio.to_thread(lambda: None)
        for _ in range(50):
            await asyncio.sleep(0)
    assert handed_out < 20
    gate.open()
    await run
    assert table.rows == values(*range(200))


@pytest.mark.parametrize(("interval_ms", "at_most_ms"), [(250, 50), (500, 100), (60_000, 100)])
@pytest.mark.parametrize("step", ["become files", "are published"])
async def test_decoding_is_delayed_while_rows_are_flushed_and_published(
    monkeypatch: pytest.MonkeyPatch, interval_ms: int, at_most_ms: int, step: str
) -> None:
    gate, may_come, decoded = Gate(), asyncio.Event(), list[int]()

    class SourceThatWaits(FakeSource):
        async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
            async for batch in super().read(positions):
                yield batch
                await may_come.wait()

    def decode(self: FakeDecoder, batch: RawBatch) -> DecodedBatch:
        decoded.extend(batch.offsets.tolist())
        return real(self, batch)

    real = FakeDecoder.decode
    monkeypatch.setattr(FakeDecoder, "decode", decode)
    table = FakeTable("t")
    batches = [raw_batch([n]) for n in range(4)]
    rig = Rig(SourceThatWaits(batches), [table], interval_ms=interval_ms, bytes_max=batches[0].nbytes)
    sink = rig.sinks["t"]
    sink.at_prepare = gate if step == "become files" else lambda: setattr(sink, "at_commit", gate)
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    may_come.set()
    await until_due_in(rig, at_most_ms)
    assert decoded == [0, 1, 2]  # not where others queue up behind it
    rig.clock.advance(at_most_ms)
    await until(lambda: decoded == [0, 1, 2, 3])  # with the rows still on their way
    gate.open()
    await asyncio.wait_for(run, 30)
    assert table.rows == values(0, 1, 2, 3)


async def test_a_flush_precedes_the_next_write_when_memory_is_short() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([n]) for n in range(4)]), [table])
    sink = rig.sinks["t"]

    def write() -> None:
        assert not sink.needs_room
        sink.needs_room = True

    sink.at_write = write
    await rig.pipeline.run()
    assert table.rows == values(*range(4))
    assert table.log == ["make room t"] * 4 + ["prepare t", "commit t 2"]


@pytest.mark.parametrize("step", ["at_lookup", "at_write", "at_room"])
async def test_steps_that_may_block_do_not_occupy_the_cpu_pool(step: str) -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0], [b"old"]), raw_batch([1], [b"same:0"])]), [table])
    gate = Gate()
    rig.sinks["t"].must_open_buckets = rig.sinks["t"].needs_room = True
    setattr(rig.sinks["t"], step, gate)
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    assert await asyncio.wait_for(run_cpu_bound(divmod, 7, 2), 30) == (3, 1)
    gate.open()
    await run
    assert [value for _, value in table.rows] == ["old", "old"]


async def test_a_table_may_be_created_while_others_flush() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])]), [table, FakeTable("other")])
    rig.sinks["t"].needs_room = True
    rig.sinks["t"].at_room = lambda: rig.sinks.update({"new": FakeTable("new").sink()})
    await rig.pipeline.run()
    assert table.rows == values(0)


# ---------------------------------------------------------------- stopping


async def test_the_first_stop_commits_what_was_read() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([n]) for n in range(5)], ends=False), [table])
    run = asyncio.create_task(rig.pipeline.run())
    await until_waiting(rig)
    read = rig.source.handed_out
    rig.pipeline.stop()
    progress = await cancelled(run)
    assert progress.ended == "stopped"
    assert table.rows == values(*range(read))
    assert rig.source.was_closed


async def test_the_second_stop_ends_at_once_and_nothing_is_lost() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([n]) for n in range(5)], ends=False)
    rig = Rig(source, [table])
    gate = Gate()
    rig.sinks["t"].at_prepare = gate
    run = asyncio.create_task(rig.pipeline.run())
    await until_waiting(rig)
    rig.pipeline.stop()
    await gate.reached()
    rig.pipeline.stop()
    gate.open()
    progress = await cancelled(run)
    assert (progress.ended, table.checkpoints) == ("stopped at once", [])
    assert rig.sinks["t"].was_cancelled
    assert rig.sinks["t"].was_aborted

    source.ends = True
    await Rig(source, [table]).pipeline.run()
    assert table.rows == values(*range(5))


async def test_a_stop_while_publishing_waits_until_the_outcome_is_known() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])]), [table])
    gate = Gate()
    rig.sinks["t"].at_commit = gate
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    rig.pipeline.stop()
    rig.pipeline.stop()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not run.done()
    gate.open()
    progress = await cancelled(run)
    assert progress.ended == "stopped at once"
    assert table.rows == values(0)
    source = FakeSource([raw_batch([0])])
    await Rig(source, [table]).pipeline.run()
    assert (source.read_from, table.rows) == ({T0: 1}, values(0))


async def test_a_stop_before_reading_commits_nothing() -> None:
    """Stopping a service that waits for its broker at the start interrupts no work."""
    source = FakeSource([raw_batch([0])])
    source.is_unreachable = True
    rig = Rig(source, [FakeTable("t")])
    run = asyncio.create_task(rig.pipeline.run())
    await source.was_opened.wait()
    rig.pipeline.stop()
    assert (await cancelled(run)).ended == "stopped"
    assert source.was_closed


async def test_an_external_cancellation_is_raised() -> None:
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [FakeTable("t")])
    run = asyncio.create_task(rig.pipeline.run())
    await until_waiting(rig)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert rig.source.was_closed


async def test_a_stop_during_cleanup_is_ignored() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])]), [table])
    gate = Gate()
    rig.sinks["t"].at_abort = gate
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    rig.pipeline.stop()
    rig.pipeline.stop()
    gate.open()
    assert (await cancelled(run)).ended == "end of source"
    assert (table.rows, rig.source.was_closed) == (values(0), True)


async def test_a_cancellation_during_cleanup_waits_for_the_cleanup() -> None:
    rig = Rig(FakeSource([raw_batch([0])]), [FakeTable("a"), FakeTable("b")])
    gate = Gate()
    rig.sinks["a"].at_abort = gate
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    run.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (rig.sinks["b"].was_aborted, rig.source.was_closed) == (True, True)


# ---------------------------------------------------------------- failing


def boom() -> None:
    raise OSError("disk full")


@pytest.mark.parametrize("step", ["at_write", "at_room", "at_prepare", "at_commit"])
async def test_a_failing_table_stops_the_pipeline_without_further_commits(step: str) -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([n]) for n in range(100)], ends=False), [table], queue_bytes=1, bytes_max=1)
    rig.sinks["t"].needs_room = True
    setattr(rig.sinks["t"], step, boom)
    with pytest.raises(OSError, match="disk full"):
        await asyncio.wait_for(rig.pipeline.run(), 30)
    assert table.checkpoints == []
    assert rig.sinks["t"].was_aborted
    assert rig.source.was_closed
    assert rig.source.handed_out < 20


async def test_cleanup_hides_no_error_and_skips_no_step() -> None:
    tables = [FakeTable("a"), FakeTable("b")]
    rig = Rig(FakeSource([raw_batch([0], [b"a/v0"]), raw_batch([1], [b"b/v1"])]), tables)

    def fenced() -> None:
        raise WriterFenced("another process took over")

    rig.sinks["a"].at_commit = fenced
    rig.sinks["a"].at_abort = boom
    with pytest.raises(WriterFenced, match="another process took over"):
        await rig.pipeline.run()
    assert (rig.sinks["b"].was_aborted, rig.source.was_closed) == (True, True)


async def test_refused_rows_are_named_by_their_records() -> None:
    rig = Rig(FakeSource([raw_batch([3, 4])]), [FakeTable("t")])

    def refuse() -> None:
        raise BadInput("t: column v is not null")

    rig.sinks["t"].at_route = refuse
    with pytest.raises(BadInput, match="topic log, partition 0, offsets 3 to 4: t: column v is not null"):
        await rig.pipeline.run()


async def test_records_before_a_source_error_are_committed() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1]), SourceUnavailable("gone"), raw_batch([2])])
    with pytest.raises(SourceUnavailable, match="gone"):
        await Rig(source, [table]).pipeline.run()
    assert table.rows == values(0, 1)


async def test_unverified_source_records_are_never_published() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0]), raw_batch([1, 2], [b"v1", b"bad"])])
    rig = Rig(source, [table], tolerance="all", bytes_max=1)
    answers = iter([None, PositionRefused("topic log was created again", ["start again"])])

    def check() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    source.at_check = check
    with pytest.raises(PositionRefused, match="topic log was created again"):
        await rig.pipeline.run()
    assert (table.rows, table.snapshots[-1].position.ends) == (values(0), {T0: 1})
    assert (await kept_dead_letters(rig), rig.sinks["t"].was_aborted) == ([], True)
    assert source.was_closed


@pytest.mark.parametrize("has_letter", [False, True], ids=["rows", "rows and a dead letter"])
async def test_rows_are_flushed_during_the_source_check_and_published_after_it(
    has_letter: bool,
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class SourceThatThinks(FakeSource):
        async def check_identity(self) -> None:
            asked.set()
            await answer.wait()

    table = FakeTable("t")
    rig = Rig(SourceThatThinks([bad_at(1, count=2) if has_letter else raw_batch([0])]), [table], tolerance="all")
    run = asyncio.create_task(rig.pipeline.run())
    await asked.wait()
    if has_letter:
        await asyncio.to_thread(lambda: None)
        assert await kept_dead_letters(rig) == []
    else:
        await until(lambda: "prepare t" in table.log)
    assert table.checkpoints == []
    answer.set()
    await run
    assert (table.rows, len(await kept_dead_letters(rig))) == (values(0), has_letter)


async def test_a_refusal_while_reading_lists_tables_like_a_refused_start() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1])])
    rig = Rig(source, [table])

    def recreated() -> None:
        source.identity = SourceIdentity("another")
        raise PositionRefused("the source was created again", ["start again"])

    source.at_check = recreated
    with pytest.raises(PositionRefused, match="t: the cluster is another, not fake"):
        await rig.pipeline.run()
    assert table.rows == []


async def test_a_table_that_fails_while_another_commits_leaves_that_one_committed() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    rig = Rig(FakeSource([raw_batch([0, 1], [b"a/x", b"b/x"])]), [a, b])
    gate = Gate()
    rig.sinks["a"].at_commit = gate
    rig.sinks["b"].at_commit = boom
    run = asyncio.create_task(rig.pipeline.run())
    await gate.reached()
    gate.open()
    with pytest.raises(OSError, match="disk full"):
        await run
    assert (a.rows, b.rows) == ([(0, "x")], [])


async def test_all_failing_tables_are_reported() -> None:
    rig = Rig(FakeSource([raw_batch([0, 1], [b"a/x", b"b/x"])]), [FakeTable("a"), FakeTable("b")])
    rig.sinks["a"].at_commit = rig.sinks["b"].at_commit = boom
    with pytest.raises(ExceptionGroup) as raised:
        await rig.pipeline.run()
    assert [str(error) for error in raised.value.exceptions] == ["disk full"] * 2


# ---------------------------------------------------------------- bad records


def bad_at(*bad: int, count: int = 5) -> RawBatch:
    return raw_batch(range(count), [b"bad" if n in bad else b"v%d" % n for n in range(count)])


async def kept_dead_letters(rig: Rig) -> list[dict[str, object]]:
    def read() -> list[dict[str, object]]:
        paths = [f"{rig.dead_letters_at}/{entry.name}" for entry in rig.io.list_directory(rig.dead_letters_at)]
        return [json.loads(text) for path in paths for text in rig.io.read(path).splitlines()]

    return await asyncio.to_thread(read)


async def test_a_bad_record_stops_the_pipeline_with_everything_before_it_committed() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1], partition=1), bad_at(3), raw_batch([5, 6])])
    message = "topic log, partition 0, offset 3: bad is no good. Fix the source, or set `errors.tolerance`"
    for _ in range(2):  # and again, every time it is started
        with pytest.raises(RecordRefused, match=message):
            await Rig(source, [table]).pipeline.run()
        assert sorted(table.rows) == sorted(values(0, 1, 0, 1, 2))
    assert table.checkpoints[-1].position.ranges[T0] == OffsetRange(0, 3)


@pytest.mark.parametrize("tolerance", ["all", 2, 3])
async def test_tolerated_records_become_dead_letters(tolerance: object) -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([bad_at(1, 3)]), [table], tolerance=tolerance)
    progress = await rig.pipeline.run()
    assert table.rows == values(0, 2, 4)
    assert [(letter["partition"], letter["offset"], letter["value"]) for letter in await kept_dead_letters(rig)] == [
        (0, 1, "bad"),
        (0, 3, "bad"),
    ]
    assert progress.dead_letters == 2


async def test_one_bad_record_above_the_tolerance_stops_the_pipeline() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([bad_at(1, 3)]), [table], tolerance=1)
    with pytest.raises(RecordRefused, match="offset 3"):
        await rig.pipeline.run()
    assert table.rows == values(0, 2)
    assert [letter["offset"] for letter in await kept_dead_letters(rig)] == [1]


async def test_each_restart_progresses_although_a_checkpoint_exceeds_the_tolerance() -> None:
    """No record gives a row, so no table stores a position for the next start."""
    table = FakeTable("t")
    source = FakeSource([bad_at(0, 1, 2, 3, 4)])
    dead_letters_at = Rig(source, [table]).dead_letters_at
    for stopped_at in (2, 4):
        rig = Rig(source, [table], tolerance=2, dead_letters_at=dead_letters_at)
        with pytest.raises(
            RecordRefused, match=rf"offset {stopped_at}: .* This run has kept 2 records as dead letters before"
        ):
            await rig.pipeline.run()
        assert [letter["offset"] for letter in await kept_dead_letters(rig)] == list(range(stopped_at))
    last = Rig(source, [table], tolerance=2, dead_letters_at=dead_letters_at)
    progress = await last.pipeline.run()
    assert [letter["offset"] for letter in await kept_dead_letters(last)] == [0, 1, 2, 3, 4]
    assert progress.dead_letters == 1


async def test_dead_letters_are_logged_at_once_and_counted_at_the_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelake.ingest")
    source = FakeSource([bad_at(1, 3), raw_batch(range(5, 8), [b"bad"] * 3)])
    await Rig(source, [FakeTable("t")], tolerance="all", bytes_max=1).pipeline.run()
    fields = [getattr(record, FIELDS, {}) for record in caplog.records]
    events = [(of.get("event"), of) for of in fields]
    names = [name for name, _ in events if name in ("a record becomes a dead letter", "checkpoint")]
    assert names == ["a record becomes a dead letter", "checkpoint", "checkpoint"]
    reported = dict(events)["a record becomes a dead letter"]
    assert (reported["offset"], reported["code"]) == (1, "BAD_RECORD")
    assert "reason" not in reported, "it may quote the record"
    counts = [(of["dead_letters"], of["dead_letters_of_run"]) for name, of in events if name == "checkpoint"]
    assert counts == [(2, 2), (3, 5)]


async def test_an_unknown_column_stops_the_pipeline_despite_tolerance() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0, 1], [b"v0", b"new column"])]), [table], tolerance="all")
    with pytest.raises(RecordRefused, match=r"offset 1: new column is no good\. Then start again"):
        await rig.pipeline.run()
    assert (table.rows, await kept_dead_letters(rig)) == (values(0), [])


async def test_a_dead_letter_is_durable_before_any_position_passes_its_record() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([bad_at(1)]), [table], tolerance="all")
    flush = rig.dead_letters.flush

    def logged() -> None:
        flush()
        table.log.append(f"{len(rig.io.list_directory(rig.dead_letters_at))} file of letters")

    rig.dead_letters.flush = logged  # type: ignore[method-assign]
    await rig.pipeline.run()
    assert table.log == ["1 file of letters", "prepare t", "commit t 2"]


async def test_many_dead_letters_are_flushed_before_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "BUFFER_BYTES_MAX", 1)
    rig = Rig(FakeSource([raw_batch([0, 1], [b"bad", b"bad"]), raw_batch([2, 3])]), [FakeTable("t")], tolerance="all")
    held = list[bool]()
    rig.sinks["t"].at_write = lambda: held.append(rig.dead_letters.should_flush)
    await rig.pipeline.run()
    assert held == [False]


async def test_records_reread_after_a_crash_have_one_dead_letter_each() -> None:
    table = FakeTable("t")
    source = FakeSource([bad_at(1, 3)])
    first = Rig(source, [table], tolerance="all")
    first.sinks["t"].at_commit = boom
    with pytest.raises(OSError, match="disk full"):
        await first.pipeline.run()
    assert table.checkpoints == []
    second = Rig(source, [table], tolerance="all", dead_letters_at=first.dead_letters_at)
    await second.pipeline.run()
    assert [letter["offset"] for letter in await kept_dead_letters(second)] == [1, 3]
    assert table.rows == values(0, 2, 4)


# ---------------------------------------------------------------- values that did not change


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([[b"old", b"same:0"]], id="in the same batch"),
        pytest.param([[b"old"], [b"same:0"]], id="in an earlier batch"),
        pytest.param([[b"old", b"same:0", b"same:1"]], id="through another that left it out"),
    ],
)
async def test_an_unavailable_value_keeps_the_previous_value(batches: Sequence[Sequence[bytes]]) -> None:
    table = FakeTable("t")
    offset, source = 0, FakeSource([])
    for cells in batches:
        source.batches.append(raw_batch(range(offset, offset + len(cells)), list(cells)))
        offset += len(cells)
    await Rig(source, [table]).pipeline.run()
    assert [value for _, value in table.rows] == ["old"] * offset


async def test_an_unavailable_value_without_a_row_makes_a_bad_record() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1, 2], [b"v0", b"same:99", b"v2"])])
    with pytest.raises(RecordRefused, match="offset 1: a value did not change, and the row that holds it is not in"):
        await Rig(source, [table]).pipeline.run()
    assert table.rows == values(0)
    rig = Rig(source, [table], tolerance="all")
    await rig.pipeline.run()
    assert table.rows == values(0, 2)
    assert [letter["offset"] for letter in await kept_dead_letters(rig)] == [1]


# ---------------------------------------------------------------- values that another partition has

MOVED = raw_batch([0, 1, 2], [b"v0", b"moved:50", b"v2"])  # the second row came from key 50
ORIGIN = raw_batch([50, 51], [b"old", b"gone:50"], partition=1)
NEXT = raw_batch([3], [b"v3"])
ALL_ROWS = [(0, "v0"), (50, "old"), (50, GONE), (1, "old"), (2, "v2"), (3, "v3")]


async def test_a_partition_waits_for_a_value_from_another_partition() -> None:
    table = FakeTable("t")
    source = FakeSource([MOVED, NEXT, raw_batch([0], [b"w0"], partition=1), ORIGIN])
    progress = await Rig(source, [table], tolerance="none").pipeline.run()
    assert table.rows == [(0, "v0"), (0, "w0"), *ALL_ROWS[1:]]
    assert table.checkpoints[-1].position.ranges == {T0: OffsetRange(0, 4), T1: OffsetRange(0, 52)}
    assert (progress.records, progress.rows) == (7, 7)


async def test_the_position_of_a_waiting_partition_stays_before_the_record() -> None:
    table = FakeTable("t")
    source = FakeSource([MOVED, NEXT, ORIGIN])
    await Rig(source, [table], bytes_max=1).pipeline.run()  # a checkpoint after each batch
    assert table.rows == ALL_ROWS
    assert [s.position.ranges[T0] for s in table.checkpoints[:2]] == [OffsetRange(0, 1), OffsetRange(1, 4)]
    assert is_gap_free(table)


async def test_partitions_may_wait_for_one_another_alternately() -> None:
    table = FakeTable("t")
    left = raw_batch([0, 1, 2], [b"moved:10", b"v1", b"gone:1"])
    right = raw_batch([10, 11, 12], [b"v10", b"gone:10", b"moved:1"], partition=1)
    await Rig(FakeSource([left, right]), [table]).pipeline.run()
    assert table.rows == [(10, "v10"), (10, GONE), (0, "v10"), (1, "v1"), (1, GONE), (12, "v1")]


async def test_a_missing_value_fails_at_the_end_of_the_source() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([MOVED, NEXT]), [table], tolerance="all")
    await rig.pipeline.run()
    assert table.rows == values(0, 2, 3)
    assert [letter["offset"] for letter in await kept_dead_letters(rig)] == [1]


async def test_a_value_missing_after_the_time_limit_fails() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([MOVED, NEXT], ends=False), [table], tolerance="all", waiting_ms_max=5_000, interval_ms=60_000)
    run = asyncio.create_task(rig.pipeline.run())
    await until_waiting(rig)
    gate = Gate()
    rig.sinks["t"].at_write = gate
    rig.clock.advance(5_000)
    await gate.reached()
    gate.open()
    rig.pipeline.stop()
    await cancelled(run)
    assert table.rows == values(0, 2, 3)


async def test_the_last_record_that_fails_has_a_dead_letter() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1], [b"v0", b"moved:50"])], ends=False)
    rig = Rig(source, [table], tolerance="all", waiting_ms_max=5_000, interval_ms=1_000)
    run = asyncio.create_task(rig.pipeline.run())
    await until_due_in(rig, 1_000)
    rig.clock.advance(1_000)  # what came before it is committed
    await until_due_in(rig, 4_000)
    rig.clock.advance(4_000)
    await until_waiting(rig)
    rig.pipeline.stop()
    progress = await cancelled(run)
    assert (table.rows, progress.dead_letters) == (values(0), 1)
    assert [letter["offset"] for letter in await kept_dead_letters(rig)] == [1]


async def test_a_partition_waits_only_once_for_many_missing_values_of_one_batch() -> None:
    table = FakeTable("t")
    lost = [raw_batch([n, n + 1], [b"moved:%d" % (100 + n), b"moved:%d" % (200 + n)]) for n in range(0, 6, 2)]
    rig = Rig(FakeSource([*lost, raw_batch([6])], ends=False), [table], tolerance="all", waiting_ms_max=5_000)
    run = asyncio.create_task(rig.pipeline.run())
    await until_read(rig, 7)
    await until_due_in(rig, 5_000)
    gate = Gate()
    rig.sinks["t"].at_write = gate
    rig.clock.advance(5_000)
    await gate.reached()
    gate.open()
    rig.pipeline.stop()
    progress = await cancelled(run)
    assert (table.rows, progress.dead_letters) == (values(6), 6)


async def test_a_failed_batch_is_looked_up_once_for_all_its_records() -> None:
    table = FakeTable("t")
    n = 30
    lost = [b"moved:%d" % (100 + i) if i % 2 else b"same:50" for i in range(1, n + 1)]
    source = FakeSource([raw_batch([50], [b"old"], partition=1), raw_batch(range(n), lost)])
    rig, looks = Rig(source, [table], tolerance="all"), list[None]()
    rig.sinks["t"].at_lookup = lambda: looks.append(None)
    progress = await rig.pipeline.run()
    assert (len(table.rows), progress.dead_letters) == (1 + n // 2, n // 2)
    assert len(looks) == 2, "as it came, and when it was given up"


async def test_a_record_behind_a_failed_one_still_gets_values_from_other_partitions() -> None:
    table = FakeTable("t")
    left = raw_batch([0, 1, 2, 3], [b"moved:99", b"v1", b"gone:1", b"moved:10"])
    right = raw_batch([10, 11, 12], [b"v10", b"moved:1", b"gone:10"], partition=1)
    rig = Rig(FakeSource([left, right]), [table], tolerance="all")
    await rig.pipeline.run()
    assert table.rows == [(10, "v10"), (1, "v1"), (1, GONE), (11, "v1"), (10, GONE), (3, "v10")]
    assert [letter["offset"] for letter in await kept_dead_letters(rig)] == [0]


async def test_a_later_batch_waits_just_as_long() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0], [b"moved:50"]), raw_batch([0], partition=1), raw_batch([1], [b"moved:51"])])
    source.batches.append(raw_batch([2], partition=2))
    rig = Rig(source, [table], tolerance="all", waiting_ms_max=5_000, interval_ms=60_000)
    later = Gate()
    rig.sinks["t"].at_write = later
    source.ends = False
    run = asyncio.create_task(rig.pipeline.run())
    await later.reached()  # the first batch waits, the third one comes 3 s after it
    rig.clock.advance(3_000)
    later.open()
    await until_read(rig, 4)
    await until_due_in(rig, 2_000)
    rig.clock.advance(2_000)
    await until(lambda: rig.pipeline.metrics.dead_letters == 1)
    await until_due_in(rig, 3_000)
    rig.clock.advance(2_999)
    assert rig.pipeline.metrics.dead_letters == 1
    rig.clock.advance(1)
    await until(lambda: rig.pipeline.metrics.dead_letters == 2)
    rig.pipeline.stop()
    await cancelled(run)


async def test_a_partition_continues_only_after_the_delete_record_of_the_moved_row() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    others = [raw_batch([n], [b"a/x"], partition=1) for n in range(20)]
    others += [raw_batch([50, 51], [b"b/x", b"b/gone:50"], partition=2)]
    leaves = [raw_batch([50], [b"a/x"], partition=1), raw_batch([51], [b"a/gone:50"], partition=1)]
    source = FakeSource([raw_batch([0, 1], [b"a/v0", b"a/moved:50"]), *others, *leaves])
    rig, looks = Rig(source, [a, b]), list[None]()
    rig.sinks["a"].at_lookup = lambda: looks.append(None)
    await rig.pipeline.run()
    assert (len(a.rows), a.rows[-1], len(looks)) == (24, (1, "x"), 1)


async def test_a_row_under_the_old_key_is_used_only_after_its_delete_record() -> None:
    table = FakeTable("t")
    there, leaves = raw_batch([50], [b"old"], partition=1), raw_batch([51], [b"gone:50"], partition=1)
    await Rig(FakeSource([there, MOVED, leaves]), [table], bytes_max=1).pipeline.run()
    assert table.rows == [(50, "old"), (0, "v0"), (50, GONE), (1, "old"), (2, "v2")]


async def test_the_bytes_of_pending_batches_are_bounded() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([MOVED, NEXT, ORIGIN], ends=True), [table], waiting_bytes_max=MOVED.nbytes)
    with pytest.raises(RecordRefused, match="offset 1: a value did not change"):
        await rig.pipeline.run()
    assert table.rows == values(0)


async def test_a_failed_moved_row_is_reported_with_both_keys() -> None:
    table = FakeTable("t")
    message = r"under its old key are unknown: no record with header `left` has arrived \(old key 50, new"
    with pytest.raises(RecordRefused, match=message):
        await Rig(FakeSource([MOVED]), [table]).pipeline.run()


async def test_pending_records_are_reread_after_a_stop() -> None:
    table = FakeTable("t")
    source = FakeSource([MOVED, NEXT], ends=False)
    rig = Rig(source, [table])
    run = asyncio.create_task(rig.pipeline.run())
    await until_waiting(rig)
    rig.pipeline.stop()
    await cancelled(run)
    assert table.rows == values(0)
    source.batches.append(ORIGIN)
    source.ends = True
    await Rig(source, [table]).pipeline.run()
    assert table.rows == ALL_ROWS
    assert is_gap_free(table)
