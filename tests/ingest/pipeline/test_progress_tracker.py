"""The progress file of a pipeline, and its use at a restart."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Gate, Rig, raw_batch, until
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tidelake.checkpoint.idle_progress import IdleProgress, ProgressEntry
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition, chain_breaks
from tidelake.ingest.pipeline.progress_tracker import INTERVAL_MS, REFRESH_MS, ProgressFile, progress_path
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.fileio.memory import MemoryFileIO

T0 = TopicPartition("log", 0)


class Notebook(ProgressFile):
    """A progress file that remembers all that was ever written to it."""

    def __init__(self) -> None:
        self.io = FaultyFileIO(MemoryFileIO())
        self.path = progress_path(f"memory://lake/{uuid4().hex}", "shop")
        super().__init__(self.io, self.path)
        self.history: list[IdleProgress] = []

    def write(self, progress: IdleProgress) -> None:
        super().write(progress)
        self.history.append(progress)


async def now(notebook: Notebook) -> IdleProgress:
    return await asyncio.to_thread(notebook.read)


def for_a(first: int, count: int = 3) -> RawBatch:
    return raw_batch(range(first, first + count), [b"a/x"] * count)


async def test_an_idle_table_is_not_reread_from_its_last_row() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source, notebook = FakeSource([raw_batch([0], [b"b/x"]), for_a(1, 9)]), Notebook()
    await Rig(source, [a, b], progress=notebook).pipeline.run()
    assert b.snapshots[-1].position.ends[T0] == 10  # one checkpoint
    source.batches.append(for_a(10, 5))
    await Rig(source, [a, b], progress=notebook).pipeline.run()
    assert b.snapshots[-1].rows == []
    source.batches.append(for_a(15, 5))
    rig = Rig(source, [a, b], progress=notebook)
    await rig.pipeline.run()
    assert source.read_from == {T0: 15}
    assert (await now(notebook)).reached.ends == {T0: 20}
    assert chain_breaks([(s.identifier, s.position) for s in b.snapshots]) == []
    assert b.snapshots[-1].position.ranges[T0] == OffsetRange(10, 15)


async def test_without_the_progress_file_records_are_reread_without_duplicates() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source = FakeSource([raw_batch([0], [b"b/x"]), for_a(1, 9)])
    for _ in range(3):
        await Rig(source, [a, b], progress=Notebook()).pipeline.run()
    assert (len(a.rows), len(b.rows)) == (9, 1)


async def test_the_progress_of_a_table_not_yet_created_is_kept() -> None:
    a, later = FakeTable("a"), FakeTable("b")
    source, notebook = FakeSource([for_a(0, 5)]), Notebook()
    first = Rig(source, [a, later], progress=notebook)
    del first.sinks["b"]
    await first.pipeline.run()
    assert (await now(notebook)).tables["b"] == ProgressEntry()
    again = Rig(source, [a, later], progress=notebook)
    del again.sinks["b"]
    await again.pipeline.run()
    assert source.read_from == {T0: 5}


async def test_an_entry_is_removed_before_its_table_gets_a_snapshot() -> None:
    """Otherwise the file would still claim that no record came since an older snapshot."""
    a, b = FakeTable("a"), FakeTable("b")
    notebook = Notebook()
    rig = Rig(FakeSource([for_a(0)]), [a, b], progress=notebook)
    seen: list[IdleProgress] = []
    rig.sinks["a"].at_commit = lambda: seen.append(notebook.history[-1])
    await rig.pipeline.run()
    assert [sorted(progress.tables) for progress in notebook.history] == [["a", "b"], ["b"], ["a", "b"]]
    (then,) = seen
    assert (sorted(then.tables), then.active) == (["b"], {"a": ProgressEntry(1, 1, "list-1")})


async def test_a_removed_entry_stays_removed_when_other_tables_are_written() -> None:
    """Otherwise nothing would show that the pipeline ever wrote to the table, once its snapshots expire."""
    a, b = FakeTable("a"), FakeTable("b")
    notebook = Notebook()
    rig = Rig(FakeSource([for_a(0)], ends=False), [a, b], progress=notebook)
    await noted_once(rig)
    noted = notebook.history[-2]  # the last one is written at the end
    assert (sorted(noted.tables), noted.active) == (["b"], {"a": ProgressEntry(1, 2, "list-2")})


async def test_the_progress_of_a_temporarily_unconfigured_table_is_kept() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source, notebook = FakeSource([for_a(0)]), Notebook()
    for tables in ([a, b], [b], [b]):
        await Rig(source, tables, progress=notebook).pipeline.run()
    progress = await now(notebook)
    assert (sorted(progress.tables), progress.active) == (["b"], {"a": ProgressEntry(1, 2, "list-2")})
    await Rig(source, [a, b], progress=notebook).pipeline.run()
    assert (await now(notebook)).active == {}


async def test_a_busy_table_causes_no_progress_write_per_checkpoint() -> None:
    notebook = Notebook()
    await Rig(
        FakeSource([for_a(n) for n in range(0, 60, 3)]), [FakeTable("a")], bytes_max=1, progress=notebook
    ).pipeline.run()
    assert len(notebook.history) == 3  # at the start, struck out, at the end


async def test_the_progress_of_idle_tables_is_written_periodically() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    notebook = Notebook()
    rig = Rig(FakeSource([for_a(0)], ends=False), [a, b], progress=notebook)
    await noted_once(rig)
    noted = notebook.history[-2]  # the last one is written at the end
    assert (noted.reached.ends, sorted(noted.tables)) == ({T0: 3}, ["b"])


async def test_a_table_that_a_bootstrap_holds_back_is_not_noted_as_idle() -> None:
    """No snapshot has its rows yet: after a crash they would be skipped."""
    notebook = Notebook()
    rig = Rig(FakeSource([for_a(0)], ends=False), [FakeTable("a"), FakeTable("b"), FakeTable("c")], progress=notebook)
    rig.sinks["c"].is_held_back = True
    await noted_once(rig)
    assert sorted(notebook.history[-2].tables) == ["b"]


async def noted_once(rig: Rig) -> None:
    """Runs until table a has a snapshot and the others are noted, and then to its end."""
    run = asyncio.create_task(rig.pipeline.run())
    await asyncio.wait_for(rig.clock.sleeper(below_ms=INTERVAL_MS), 30)
    gate = Gate()
    rig.sinks["a"].after_commit = gate
    rig.clock.advance(INTERVAL_MS)
    await gate.reached()
    gate.open()
    rig.pipeline.stop()
    await run


async def test_a_failed_progress_write_does_not_stop_the_pipeline() -> None:
    a = FakeTable("a")
    notebook = Notebook()
    notebook.io.fail_call(1, Fault.BEFORE)  # the first is the read of a file that isn't there
    await Rig(FakeSource([for_a(0)]), [a], progress=notebook).pipeline.run()
    assert len(a.rows) == 3


async def test_a_failed_removal_of_an_entry_stops_the_commit() -> None:
    a = FakeTable("a")
    notebook = Notebook()
    notebook.io.fail_call(2, Fault.BEFORE)
    with pytest.raises(OSError, match="injected"):
        await Rig(FakeSource([for_a(0)]), [a], progress=notebook).pipeline.run()
    assert a.rows == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":2}', b"\xff"])
async def test_a_torn_progress_file_is_ignored(data: bytes) -> None:
    a = FakeTable("a")
    notebook = Notebook()
    await asyncio.to_thread(notebook.io.write, notebook.path, data)
    await Rig(FakeSource([for_a(0)]), [a], progress=notebook).pipeline.run()
    assert len(a.rows) == 3
    assert sorted((await now(notebook)).tables) == ["a"]


async def test_the_newest_own_snapshot_is_kept_from_expiry_from_the_start_to_the_end() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])]), [table])
    at_commit: list[int | None] = []
    rig.sinks["t"].at_commit = lambda: at_commit.append(table.registered_id)
    await rig.pipeline.run()
    assert (at_commit, table.registered_id) == ([1], 2)


async def test_the_consumer_is_renewed_before_it_expires_while_the_source_is_silent() -> None:
    """Some expire consumers by the age of their file (`consumer.expiration-time`)."""
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])], ends=False), [table])
    start_ms, reported = rig.clock.now_ms(), list[tuple[int, int]]()

    def register(snapshot_id: int) -> None:
        reported.append((rig.clock.now_ms() - start_ms, snapshot_id))

    rig.sinks["t"].register = register  # type: ignore[method-assign]
    run = asyncio.create_task(rig.pipeline.run())
    await asyncio.wait_for(rig.clock.sleeper(below_ms=INTERVAL_MS), 30)
    rig.clock.advance(rig.interval_ms)
    await until(lambda: rig.pipeline.metrics.checkpoints == 1)
    rig.clock.advance(INTERVAL_MS - rig.interval_ms)
    for _ in range(INTERVAL_MS, INTERVAL_MS + REFRESH_MS, INTERVAL_MS):
        await asyncio.wait_for(rig.clock.sleeper(), 30)
        rig.clock.advance(INTERVAL_MS)
    await asyncio.wait_for(rig.clock.sleeper(), 30)
    rig.pipeline.stop()
    await run
    assert reported == [(0, 1), (INTERVAL_MS, 2), (INTERVAL_MS + REFRESH_MS, 2)]


async def test_a_failed_consumer_registration_does_not_stop_the_pipeline() -> None:
    table = FakeTable("t")
    rig = Rig(FakeSource([raw_batch([0])]), [table])

    def refuse(snapshot_id: int) -> None:
        raise OSError("read-only folder")

    rig.sinks["t"].register = refuse  # type: ignore[method-assign]
    await rig.pipeline.run()
    assert len(table.rows) == 1
