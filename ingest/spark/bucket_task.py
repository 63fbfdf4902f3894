"""The task that writes buckets: parts of some buckets in, commit messages out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction.compact_manager import compact_manager_factory
from ingest.formats.base import KeyChange, KeyChanges, TableRows, Target, UnavailableValues
from ingest.spark.batch_rows import (
    DEAD_LETTER_COLUMN,
    KEY_CHANGE_COLUMN,
    OLD_KEY_PREFIX,
    ORDER_PREFIX,
    TIME_COLUMN,
    UNAVAILABLE_COLUMN,
    BatchStatistics,
    order_columns,
)
from ingest.spark.shuffle import (
    BUCKET_COLUMN,
    PayloadKind,
    buckets_of,
    concat,
    from_ipc,
    payload_row,
    statistics_to_json,
)
from ingest.tables.moved_rows import MovedRows, MovedRowsBudget
from ingest.tables.unavailable_values import fill_unavailable
from storage.errors import BadInput
from storage.format import KIND_COLUMN, RowKind
from storage.lookup.row_lookup import lookup_newest_rows
from storage.merge.normalized_keys import align_keys, normalize_column
from storage.merge.sort_order import merge_order
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext
from storage.write.bucket_router import BucketKey
from storage.write.row_converter import RowConverter
from storage.write.table_writer import TableWriter


@dataclass(frozen=True, slots=True)
class _LatestRows:
    """A `RowLookup` in a snapshot."""

    context: TableContext
    snapshot: Snapshot | None

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        return lookup_newest_rows(self.context, self.snapshot, keys, ())


class _ValueInOtherTask(Exception):
    """A value that did not change is neither in the table nor among this task's rows."""


@dataclass(frozen=True)
class BucketTask:
    """The reduce side: for `mapInArrow` after the shuffle. What is no rows goes through to the driver.

    batch_id: the commit identifier.
    has_order, is_converted: see `BatchInput`.
    keeps_dead_letters: see `RawRecords`.
    is_single_task: whether this task gets all rows of the batch. If not, and a value that did not change is not found,
        it may lie with the rows of another bucket: then the task says so instead of giving up.

    A task that is tried again writes other files: only the messages that reach the driver count.
    """

    context: TableContext
    batch_id: int
    has_order: bool
    is_converted: bool
    keeps_dead_letters: bool = False
    is_single_task: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        keys: dict[BucketKey, int] = {}
        for batch in batches:
            for kind, payload in zip(batch.column("kind").to_pylist(), batch.column("payload"), strict=True):
                if kind == PayloadKind.ROWS:
                    rows = from_ipc(payload.as_buffer())
                    parts.append(renumbered(rows, [keys.setdefault(key, len(keys)) for key in buckets_of(rows)]))
                else:
                    yield payload_row(0, PayloadKind(kind), payload.as_py())
        if parts:
            statistics = BatchStatistics()
            try:
                yield payload_row(0, PayloadKind.MESSAGES, self._write(concat(parts), list(keys), statistics))
            except _ValueInOtherTask:
                yield payload_row(0, PayloadKind.SINGLE_TASK, b"")
            if statistics.dead_letters:
                yield payload_row(0, PayloadKind.STATISTICS, statistics_to_json(statistics))

    def _write(self, rows: pa.RecordBatch, keys: Sequence[BucketKey], statistics: BatchStatistics) -> bytes:
        context = self.context
        rows = self._filled(self._in_order(rows), statistics)
        if not self.is_converted:
            carried = [BUCKET_COLUMN]
            converter = RowConverter(context.schema, context.options, context.name, carried, context.location)
            rows = converter.to_table_schema(rows)
        writer = TableWriter(context, compactor_factory=compact_manager_factory())
        try:
            buckets = rows.column(BUCKET_COLUMN).to_numpy()
            writer.write_routed(rows.drop_columns([BUCKET_COLUMN]), keys, buckets)
            return pickle.dumps(writer.prepare_commit(self.batch_id, is_last=True))
        finally:
            writer.abort()

    def _in_order(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Oldest first. Without an order, a key may occur only once (unless a sequence field decides in the table)."""
        schema, options = self.context.schema, self.context.options
        if self.has_order:
            words = [normalize_column(rows.column(name), nullable=True) for name in order_columns(rows.schema.names)]
            order, _ = merge_order(align_keys([words])[0])
            rows = rows.take(pa.array(order))
            return _by_time(rows) if TIME_COLUMN in rows.schema.names else rows
        if schema.has_primary_key and not options.sequence_fields:
            self._check_keys_differ(rows)
        return rows

    def _check_keys_differ(self, rows: pa.RecordBatch) -> None:
        words = [normalize_column(rows.column(name), nullable=True) for name in self.context.schema.primary_keys]
        order, is_last = merge_order(align_keys([words])[0])
        if not is_last.all():
            twice = rows.select(self.context.schema.primary_keys).slice(int(order[np.flatnonzero(~is_last)[0]]), 1)
            raise BadInput(
                f"{self.context.name}: key {twice.to_pylist()[0]} occurs twice in one batch, and it is unknown "
                "which row is newer: a shuffle loses arrival order. Pass order_by=[…] to sink(), set the table option "
                "sequence.field, or keep one row a key in the query"
            )

    def _filled(self, rows: pa.RecordBatch, statistics: BatchStatistics) -> pa.RecordBatch:
        """Without order columns, with unavailable values looked up; rows whose values are nowhere are set aside."""
        table_columns = [*self.context.schema.names, KIND_COLUMN]
        if UNAVAILABLE_COLUMN not in rows.schema.names:
            return rows.select([*table_columns, BUCKET_COLUMN])
        table_rows = rows.select(table_columns)
        flagged = np.flatnonzero(rows.column(UNAVAILABLE_COLUMN).is_valid().to_numpy(zero_copy_only=False))
        missing = rows.column(UNAVAILABLE_COLUMN).take(pa.array(flagged)).to_pylist()
        names = sorted({name for row in missing for name in row})
        keys = rows.select([OLD_KEY_PREFIX + name for name in self.context.schema.primary_keys])
        unavailable = UnavailableValues(
            flagged,
            {name: np.array([name in row for row in missing]) for name in names},
            keys.take(pa.array(flagged)).rename_columns(list(self.context.schema.primary_keys)),
        )
        target = Target(self.context.name, self.context.schema)
        lookup = _LatestRows(self.context, self.context.snapshots.latest())
        batch = TableRows(target, table_rows, _record_numbers(rows), unavailable, _key_changes(rows))
        # A row that left its key in another batch is not known: its record is refused.
        moved = MovedRows(self.context.name, MovedRowsBudget())
        found = fill_unavailable(batch, unavailable, lookup, moved, np.zeros(len(rows), np.bool_))
        filled, lost = found.rows.append_column(BUCKET_COLUMN, rows.column(BUCKET_COLUMN)), found.lost
        if not lost.any():
            return filled
        if not self.is_single_task:
            raise _ValueInOtherTask
        lost_rows = rows.filter(pa.array(lost))
        reasons = [found.reasons[row] for row in np.flatnonzero(lost).tolist()]
        if not self.keeps_dead_letters:
            topic, partition, offset = (lost_rows.column(f"{ORDER_PREFIX}{i}")[0].as_py() for i in range(3))
            raise BadInput(
                f"topic {topic}, partition {partition}, offset {offset}: {reasons[0]}. Set REPLICA IDENTITY FULL at "
                "the source, or pass dead_letters=… to sink() to keep such records aside and go on"
            )
        for dead_letter, reason in zip(lost_rows.column(DEAD_LETTER_COLUMN).to_pylist(), reasons, strict=True):
            statistics.dead_letters.append(
                msgspec.json.encode(msgspec.json.decode(dead_letter) | {"reason": reason}).decode()
            )
        return filled.filter(pa.array(~lost))


def renumbered(rows: pa.RecordBatch, numbers: Sequence[int]) -> pa.RecordBatch:
    """Rows of a blob, each with the number of its bucket among those of the task.

    numbers: of the blob's buckets.
    """
    found = np.array(numbers, np.int32)[rows.column(BUCKET_COLUMN).to_numpy()]
    at = rows.schema.get_field_index(BUCKET_COLUMN)
    return rows.set_column(at, BUCKET_COLUMN, pa.array(found)).replace_schema_metadata(None)


def _record_numbers(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Rising numbers, equal for the rows of one record: those lie beside one another."""
    columns = [rows.column(name) for name in order_columns(rows.schema.names)]
    codes = [column.dictionary_encode().indices.to_numpy() for column in columns]
    is_new = np.logical_or.reduce([np.diff(code, prepend=code[:1]) != 0 for code in codes])
    return np.cumsum(is_new)


def _key_changes(rows: pa.RecordBatch) -> KeyChanges | None:
    if KEY_CHANGE_COLUMN not in rows.schema.names:
        return None
    column = rows.column(KEY_CHANGE_COLUMN)
    places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    return KeyChanges(places, [KeyChange(**half) for half in column.take(pa.array(places)).to_pylist()])


def _by_time(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Partitions woven into one another by time; inside a partition the order stays, even where its clock ran
    backwards. A row that moved from one partition to another is seen leaving first, whatever the times.

    rows: partition after partition, by offset.
    """
    topics = rows.column(f"{ORDER_PREFIX}0").dictionary_encode().indices.to_numpy().astype(np.int64)
    partitions = topics << 32 | rows.column(f"{ORDER_PREFIX}1").to_numpy()
    times = rows.column(TIME_COLUMN).to_numpy().copy()
    edges = np.flatnonzero(np.diff(partitions, prepend=-1, append=-1))
    halves = _matched(rows)
    for _ in range(len(halves) + 1):
        for start, stop in pairwise(edges.tolist()):
            np.maximum.accumulate(times[start:stop], out=times[start:stop])
        too_early = [(left, came) for left, came in halves if times[came] <= times[left]]
        for left, came in too_early:
            times[came] = times[left] + 1
        if not too_early:
            break
    return rows if len(edges) <= 2 else rows.take(pa.array(np.argsort(times, kind="stable")))


def _matched(rows: pa.RecordBatch) -> list[tuple[int, int]]:
    """Halves of key changes that lie in different partitions: the row that leaves, and the one that comes."""
    changes = _key_changes(rows)
    if changes is None:
        return []
    kinds = rows.column(KIND_COLUMN).to_numpy()
    partitions = rows.column(f"{ORDER_PREFIX}1").to_numpy()
    by_id: dict[bytes, tuple[list[int], list[int]]] = {}
    for row, change in zip(changes.rows.tolist(), changes.changes, strict=True):
        by_id.setdefault(change.id, ([], []))[int(kinds[row] != RowKind.DELETE)].append(row)
    pairs = [pair for left, came in by_id.values() for pair in zip(left, came, strict=False)]
    return [(left, came) for left, came in pairs if partitions[left] != partitions[came]]
