"""Kept records are read back unchanged, however their process ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.offsets import SourceIdentity, SourcePosition, TopicPartition
from tidelake.checkpoint.table_state import SnapshotSummary
from tidelake.errors import CorruptFile
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.quarantine.own_position import join_log
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.quarantine.record_log import RecordLog, directory_of, kept_records
from tidelake.ingest.raw_batch import RawBatch, timestamp_types_of
from tidelake.ingest.settings import QuarantineSettings
from tidelake.ingest.tables.moved_rows import MovedRowsByTable
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.storage.fileio.memory import MemoryFileIO

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
DIRECTORY = "memory://record-log/t"
CLUSTER = SourceIdentity("c", {"a": "id"})


def batch(partition: TopicPartition, offsets: Sequence[int], next_offset: int) -> RawBatch:
    at = np.array(offsets, np.int64)
    keys = pa.array([None if offset % 2 else b"k" for offset in offsets], pa.binary())
    values = pa.array([b"v%d" % offset for offset in offsets], pa.binary())
    headers = {1: (("h", b"1"), ("h", None))} if len(offsets) > 1 else {}
    types = timestamp_types_of([(None, "CreateTime", "LogAppendTime")[offset % 3] for offset in offsets])
    return RawBatch(*partition, at, at + 5, keys, values, next_offset, headers, types)


def opened(io: MemoryFileIO) -> RecordLog:
    log = RecordLog.open(io, DIRECTORY, "t")
    assert log is not None
    return log


@pytest.fixture
def io() -> MemoryFileIO:
    found = MemoryFileIO()
    found.delete_directory(DIRECTORY)
    return found


def test_records_are_read_back_in_order_with_keys_headers_and_nulls(io: MemoryFileIO) -> None:
    log = RecordLog(io, DIRECTORY, "t", {P0: 2})
    batches = [batch(P0, [3, 5, 6], 7), batch(P1, [0], 4), batch(P0, [8], 9)]
    for one in batches:
        log.append(TopicPartition(one.topic, one.partition), one, one.next_offset)
    log.flush(CLUSTER)
    again = opened(io)
    assert (again.starts, again.ends, again.identity) == ({P0: 2, P1: 0}, {P0: 9, P1: 4}, CLUSTER)
    for kept, one in zip(again.read_after({}), batches, strict=True):
        assert (kept.topic, kept.partition, kept.next_offset) == (one.topic, one.partition, one.next_offset)
        assert kept.offsets.tolist() == one.offsets.tolist()
        assert kept.timestamps_ms.tolist() == one.timestamps_ms.tolist()
        assert kept.keys == one.keys
        assert kept.values == one.values
        assert kept.headers == one.headers
        assert np.array_equal(kept.timestamp_types, one.timestamp_types)  # type: ignore[arg-type]


def test_the_kept_records_of_a_part_of_a_batch_end_where_the_part_ends() -> None:
    """A truncate divides a batch. With the end of the whole batch, the records behind it would count as written."""
    whole = batch(P0, [10, 12], 13)
    decoded = DecodedBatch((), (), {}, {SourceTable("t", "s", None, "t"): 0})
    router = cast(TableRouter, SimpleNamespace(tables_for=lambda source: ("t",), sharing=lambda table: ()))
    ends = ((9, 11), (11, 13))
    parts = [kept_records("t", whole, decoded, start, stop, router, lambda *_: None) for start, stop in ends]
    assert [(part.offsets.tolist(), part.next_offset) for part in parts if part is not None] == [([10], 11), ([12], 13)]


def test_a_segment_of_an_earlier_release_has_no_timestamp_types(io: MemoryFileIO) -> None:
    log = RecordLog(io, DIRECTORY, "t", {P0: 0})
    log.append(P0, batch(P0, [1, 2], 3), 3)
    log.flush(CLUSTER)
    (entry,) = io.list_directory(DIRECTORY)
    path = f"{DIRECTORY}/{entry.name}"
    reader = pa.ipc.open_stream(io.read(path))
    rows, metadata = reader.read_next_batch_with_custom_metadata()
    before = rows.drop_columns(["timestamp_type"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, before.schema) as writer:
        writer.write_batch(before, custom_metadata=metadata)
    io.delete(path)
    io.write(path, bytes(sink.getvalue()))
    (kept,) = opened(io).read_after({})
    assert (kept.offsets.tolist(), kept.timestamp_types) == ([1, 2], None)


def test_unflushed_records_are_not_read_back(io: MemoryFileIO) -> None:
    log = RecordLog(io, DIRECTORY, "t", {P0: 0})
    log.append(P0, batch(P0, [0], 1), 1)
    log.flush(CLUSTER)
    log.append(P0, batch(P0, [1], 2), 2)
    assert opened(io).ends == {P0: 1}


def test_without_records_the_end_moves_only_on_request(io: MemoryFileIO) -> None:
    log = RecordLog(io, DIRECTORY, "t", {P0: 0})
    log.append(P0, None, 100)
    log.flush(CLUSTER)
    assert RecordLog.open(io, DIRECTORY, "t") is None
    log.flush(CLUSTER, force=True)
    assert opened(io).ends == {P0: 100}


def test_a_disconnected_segment_of_a_fenced_process_is_ignored(io: MemoryFileIO) -> None:
    first = RecordLog(io, DIRECTORY, "t", {P0: 0})
    first.append(P0, batch(P0, [0], 1), 1)
    first.flush(CLUSTER)
    second, late = opened(io), opened(io)
    for log, end in ((second, 5), (late, 3)):
        log.append(P0, batch(P0, [end - 1], end), end)
        log.flush(CLUSTER)
    assert opened(io).ends in ({P0: 5}, {P0: 3})  # either is what the source holds
    assert len(list(opened(io).read_after({}))) == 2


def test_records_committed_to_the_table_are_trimmed(io: MemoryFileIO) -> None:
    log = RecordLog(io, DIRECTORY, "t", {P0: 0})
    for offset in range(3):
        log.append(P0, batch(P0, [offset], offset + 1), offset + 1)
        log.flush(CLUSTER)
    log.trim({P0: 2})
    assert opened(io).starts == {P0: 2}
    assert [b.offsets.tolist() for b in opened(io).read_after({P0: 2})] == [[2]]


def test_a_damaged_segment_is_named(io: MemoryFileIO) -> None:
    io.write(f"{DIRECTORY}/0000000001-00000000.arrow", b"no such thing")
    with pytest.raises(CorruptFile, match=r"0000000001.*records of a quarantined table"):
        RecordLog.open(io, DIRECTORY, "t")


@pytest.mark.parametrize(
    ("position", "newest", "joins"),
    [
        pytest.param({P0: 5}, 1, {P0: 5}, id="the table is inside the log"),
        pytest.param({P0: 2}, 1, {P0: 4}, id="before it, and as it was when the log began: nothing came between"),
        pytest.param({P0: 2}, 2, None, id="before it, and another snapshot came"),
        pytest.param({}, None, None, id="the table is a new one"),
        pytest.param({P0: 7, P1: 3}, 2, {P0: 7, P1: 3}, id="a partition that the log doesn't know"),
    ],
)
def test_a_log_is_used_only_if_it_begins_at_or_before_the_table_position(
    io: MemoryFileIO, position: dict[TopicPartition, int], newest: int | None, joins: dict[TopicPartition, int] | None
) -> None:
    log = RecordLog(io, DIRECTORY, "t", {P0: 4}, 1, "list-1")
    log.append(P0, batch(P0, [4, 6], 8), 8)
    log.flush(CLUSTER)
    snapshot = None if newest is None else SnapshotSummary(newest, "s", "u", 1, f"list-{newest}", {})
    joined = join_log(opened(io), SourcePosition().with_partitions(position), snapshot)
    assert (None if joined is None else joined.position.ends) == joins
    assert joined is None or joined.read_from.ends == {**joined.position.ends, P0: 8}


@pytest.mark.parametrize(("position", "joins"), [({P0: 2}, None), ({P0: 6}, {P0: 6})], ids=["before it", "inside it"])
def test_a_log_whose_first_segment_was_deleted_says_nothing_about_the_records_before_it(
    io: MemoryFileIO, position: dict[TopicPartition, int], joins: dict[TopicPartition, int] | None
) -> None:
    """By a process that was about to be fenced, and took the log for one that nobody needs."""
    log = RecordLog(io, DIRECTORY, "t", {P0: 2}, 1, "list-1")
    for offset in (4, 7):
        log.append(P0, batch(P0, [offset], offset + 1), offset + 1)
        log.flush(CLUSTER)
    io.delete(sorted(f"{DIRECTORY}/{entry.name}" for entry in io.list_directory(DIRECTORY))[0])
    joined = join_log(
        opened(io), SourcePosition().with_partitions(position), SnapshotSummary(1, "s", "u", 1, "list-1", {})
    )
    assert (None if joined is None else joined.position.ends) == joins


def test_who_deletes_a_log_leaves_the_segments_of_a_process_that_took_over(io: MemoryFileIO) -> None:
    """The table had all records when the first process decided to delete; then the second one put it in quarantine."""
    first = RecordLog(io, DIRECTORY, "t", {P0: 0})
    first.append(P0, batch(P0, [0], 1), 1)
    first.flush(CLUSTER)
    second = RecordLog(io, DIRECTORY, "t", {P0: 1})
    second.append(P0, batch(P0, [1], 2), 2)
    second.flush(CLUSTER)
    first.delete()
    assert [b.offsets.tolist() for b in opened(io).read_after({})] == [[1]]
    second.delete()
    assert not io.list_directory(DIRECTORY)


def test_a_deleted_log_leaves_no_file_that_was_not_in_use(io: MemoryFileIO) -> None:
    """One segment was written by a fenced process and fits nowhere, one failed although it is there."""
    log, fenced = RecordLog(io, DIRECTORY, "t", {P0: 0}), RecordLog(io, DIRECTORY, "t", {P0: 0})
    for one in (log, fenced):
        one.append(P0, batch(P0, [0], 1), 1)
        one.flush(CLUSTER)
    log = opened(io)
    log.append(P0, batch(P0, [1], 2), 2)
    create = io.create_if_absent

    def created_and_failed(path: str, data: bytes) -> bool:
        create(path, data)
        raise ConnectionResetError(path)

    io.create_if_absent = created_and_failed  # type: ignore[method-assign]
    with pytest.raises(ConnectionResetError):
        log.flush(CLUSTER)
    io.create_if_absent = create  # type: ignore[method-assign]
    log.flush(CLUSTER)
    log.delete()
    assert not io.list_directory(DIRECTORY)


def test_a_start_deletes_only_kept_records_that_it_found_before_it_took_over(io: MemoryFileIO) -> None:
    """A process that is about to be fenced may come to this point after the next one kept records of the same table."""
    unneeded = RecordLog(io, directory_of("memory://quarantine", "t"), "t", {P0: 0})
    unneeded.store_start(CLUSTER)
    tables = SimpleNamespace(router=SimpleNamespace(tables=("t", "u")))
    quarantine = Quarantine(
        cast(PipelineTables, tables),
        io,
        "memory://quarantine",
        QuarantineSettings(),
        ManualClock(),
        cast(MovedRowsByTable, None),
    )
    quarantine.open_logs(["t", "u"])
    for table in ("t", "u"):
        RecordLog(io, directory_of("memory://quarantine", table), table, {P0: 5}).store_start(CLUSTER)
    asyncio.run(quarantine.restore({}))
    left = {table: quarantine.open_logs([table])[table] for table in ("t", "u")}
    assert {table: log.starts for table, log in left.items()} == {"t": {P0: 5}, "u": {P0: 5}}
