"""The task that writes buckets: it receives chunks of some shuffle partitions, and returns commit messages."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.scheduler import InlineScheduler
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import WITHHELD_REASON, TableRows, Target, UnavailableValues
from tidelake.ingest.spark.batch_rows import (
    DEAD_LETTER_COLUMN,
    OLD_KEY_PREFIX,
    ORDER_PREFIX,
    UNAVAILABLE_COLUMN,
    BatchInput,
    RawRecords,
    TypedColumns,
    bad_record_remedy,
)
from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.chunk_store import ChunkStore
from tidelake.ingest.spark.ordering.record_streams import MergedSlice, merged_slices, slices_of
from tidelake.ingest.spark.ordering.row_order import (
    Order,
    check_order_is_known,
    key_changes,
    ordering_columns,
    record_numbers,
    source_order,
)
from tidelake.ingest.spark.shuffling.key_groups import has_dynamic_buckets
from tidelake.ingest.spark.shuffling.shuffle import BUCKET_COLUMN, PayloadKind, buckets_of, concat, payload_row
from tidelake.ingest.spark.shuffling.task_plan import TaskPlan
from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.ingest.tables.moved_rows import MovedRows, MovedRowsBudget
from tidelake.ingest.tables.soft_deletes import with_soft_deletes
from tidelake.ingest.tables.unavailable_values import fill_unavailable
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.restored_table import RestoredState
from tidelake.storage.write.row_converter import RowConverter
from tidelake.storage.write.table_writer import TableWriter

ROW_BATCH_BYTES: Final = 8 << 20  # bytes of rows that are read together
_WRITE_BUFFER_BYTES: Final = 32 << 20  # unless the table's option sets it; small, as each core runs a task
_WRITE_BUFFER_OPTION: Final = "write-buffer-size"


@dataclass(frozen=True, slots=True)
class _LatestRows:
    """A `RowLookup` that reads a snapshot."""

    context: TableContext
    snapshot: Snapshot | None

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        return lookup_newest_rows(self.context, self.snapshot, keys, ())


@dataclass(frozen=True)
class BucketTask:
    """The reduce side of the shuffle, for `mapInArrow`.

    tables: see `open_reader`.
    batch_id: the commit identifier.
    version: the version of this package in the driver.

    Rows are read after all have arrived, one group of shuffle partitions after the other, oldest first. Until then,
    chunks that don't fit into memory are in a file. A task that is retried writes other files: only messages in the
    driver count.
    """

    tables: Sequence[tuple[TableContext, BatchInput]]
    batch_id: int
    version: str = field(default_factory=package_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(self.version)
        plan = TaskPlan()
        statistics = BatchStatistics()
        with ChunkStore() as store:
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("table_number", "shuffle_partition", "kind"))
                for number, shuffle_partition, kind, payload in zip(*columns, batch.column("payload"), strict=True):
                    if kind == PayloadKind.ROWS:
                        store.add(number, shuffle_partition, payload.as_buffer())
                    elif kind == PayloadKind.PLAN:
                        plan = TaskPlan.of_payload(payload.as_py())
            for number, shuffle_partitions in store.chunks().items():
                context, rows_of = self.tables[number]
                # An index chose the buckets: the task that assigned them has checked the rows.
                table = TableTask(context, rows_of, statistics.table(number), is_checked=has_dynamic_buckets(context))
                groups = grouped(shuffle_partitions, plan.groups)
                yield payload_row(
                    number, 0, PayloadKind.MESSAGES, table.write(groups, self.batch_id, plan.restored.get(number))
                )
            shuffle_partitions = groups = None  # type: ignore[assignment] # they refer to the store's file
        if any(of.dead_letters for of in statistics.tables.values()):
            yield payload_row(0, 0, PayloadKind.STATISTICS, statistics.to_payload())


def grouped(
    shuffle_partitions: Mapping[int, list[pa.RecordBatch]], groups: Sequence[Sequence[int]]
) -> list[list[pa.RecordBatch]]:
    """Return the groups of chunks that are read together."""
    first = {shuffle_partition: group[0] for group in groups for shuffle_partition in group}
    found: dict[int, list[pa.RecordBatch]] = {}
    for shuffle_partition, chunks in shuffle_partitions.items():
        found.setdefault(first.get(shuffle_partition, shuffle_partition), []).extend(chunks)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class TableTask:
    """The work of a task in one table.

    statistics: gets the dead letters.
    is_checked: whether an earlier task has checked that the order of the rows is known, and has looked up rows.
    """

    context: TableContext
    input: BatchInput
    statistics: BatchTableStatistics
    is_checked: bool = False

    def write(self, groups: Sequence[Sequence[pa.RecordBatch]], batch_id: int, restored: RestoredState | None) -> bytes:
        """Write the rows, and return pickled commit messages.

        groups: groups of chunks. No two groups have rows of the same bucket.
        restored: see `TaskPlan`.
        """
        context = self.context
        keys: dict[BucketId, int] = {}
        for chunk in (chunk for group in groups for chunk in group):
            for key in buckets_of(chunk):
                keys.setdefault(key, len(keys))
        writer = TableWriter(
            context,
            memory=MemoryBudget(_write_buffer_bytes(context)),
            compactor_factory=compact_manager_factory(InlineScheduler()),
            replaces=self.input.replaces,
            restored=restored if restored is not None and restored.covers(keys) else None,
        )
        converter = RowConverter(context.schema, context.options, context.name, [BUCKET_COLUMN], context.location)
        try:
            for group in groups:
                chunks = [renumbered(chunk, [keys[key] for key in buckets_of(chunk)]) for chunk in group]
                for rows in self.row_batches(chunks):
                    written = rows if self.input.is_converted else converter.to_table_schema(rows)
                    buckets = written.column(BUCKET_COLUMN).to_numpy()
                    writer.write_routed(written.drop_columns([BUCKET_COLUMN]), list(keys), buckets)
            return pickle.dumps(writer.prepare_commit(batch_id, is_last=True))
        finally:
            writer.abort()

    def row_batches(self, chunks: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with the table's columns and `_bucket`, oldest first."""
        # With unavailable values, all rows are read at once: any of them may have such a value. The same with deletes
        # that keep their rows, which any earlier one of the batch may be.
        is_whole = any(UNAVAILABLE_COLUMN in chunk.schema.names for chunk in chunks)
        is_whole |= bool(self._deleted_at_column) and any(map(_has_deletes, chunks))
        nbytes = sum(chunk.nbytes for chunk in chunks)
        count = sum(chunk.num_rows for chunk in chunks)
        size = max(1, count if is_whole or nbytes <= ROW_BATCH_BYTES else count * ROW_BATCH_BYTES // nbytes)
        for parts, order in self._in_source_order(chunks, size):
            for start in range(0, len(order), size):
                if size < count:
                    pa.default_memory_pool().release_unused()  # of earlier batches, which the pool would keep
                yield self._with_soft_deletes(self._filled(_gather(parts, order[start : start + size])))

    def _in_source_order(
        self, chunks: Sequence[pa.RecordBatch], size: int
    ) -> Iterator[tuple[Sequence[pa.RecordBatch], Order]]:
        """Yield some rows at a time, with their order; all at once if they must be sorted."""
        in_order = None
        if isinstance(self.input, TypedColumns) and not self.is_checked:
            check_order_is_known(chunks, self.context)
        if size < sum(chunk.num_rows for chunk in chunks):
            if self.input.has_order:
                in_order = merged_slices(chunks, size)
            else:
                in_order = (MergedSlice([part]) for part in slices_of(chunks, size))
        if in_order is None:
            names = list(dict.fromkeys(name for chunk in chunks for name in chunk.schema.names))
            columns = ordering_columns(names)
            yield chunks, source_order(concat([_selected(chunk, columns) for chunk in chunks]))
            return
        for merged in in_order:
            parts = [chunks[part.chunk].slice(part.start, part.stop - part.start) for part in merged.slices]
            yield parts, np.arange(sum(map(len, parts))) if merged.order is None else merged.order

    @property
    def _deleted_at_column(self) -> str:
        """The column with the time of a delete, if deleted rows stay; "" if not.

        After an earlier task of the table it has no more work: deletes are then those of rows that left a partition.
        """
        return self.input.deleted_at_column if isinstance(self.input, RawRecords) and not self.is_checked else ""

    def _lookup(self) -> _LatestRows:
        return _LatestRows(self.context, None if self.input.replaces else self.context.snapshots.latest())

    def _with_soft_deletes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Replace deletes by updates of the deleted rows, if these stay in the table. See `with_soft_deletes`."""
        if not self._deleted_at_column or not _has_deletes(rows):
            return rows
        target = replace(Target.of(self.context, {}), deleted_at_column=self._deleted_at_column)
        part = TableRows(target, rows.drop_columns([BUCKET_COLUMN]), np.arange(rows.num_rows))
        found = with_soft_deletes(part, self._lookup())
        buckets = rows.column(BUCKET_COLUMN).take(pa.array(found.offsets))  # a row has the bucket of its key
        return found.rows.append_column(BUCKET_COLUMN, buckets)

    def _filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fill in unavailable values, and remove order columns. Rows whose values are not found become dead letters."""
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
        target = Target.of(self.context, {})
        lookup = self._lookup()
        batch = TableRows(target, table_rows, record_numbers(rows), unavailable, key_changes(rows))
        # A row that was deleted under its old key in another batch is unknown, so its record is refused.
        moved = MovedRows(self.context.name, MovedRowsBudget())
        found = fill_unavailable(batch, unavailable, lookup, moved, np.zeros(len(rows), np.bool_))
        filled, lost = found.rows.append_column(BUCKET_COLUMN, rows.column(BUCKET_COLUMN)), found.lost
        if not lost.any():
            return filled
        kept = filled.filter(pa.array(~lost))
        if not found.reasons:
            return kept
        lost_rows = rows.take(pa.array(list(found.reasons)))
        is_withheld = isinstance(self.input, RawRecords) and self.input.withholds
        reasons = [WITHHELD_REASON if is_withheld else reason for reason in found.reasons.values()]
        if not (isinstance(self.input, RawRecords) and self.input.keeps_dead_letters):
            topic, partition, offset = (lost_rows.column(f"{ORDER_PREFIX}{i}")[0].as_py() for i in range(3))
            remedy = bad_record_remedy(self.input) if isinstance(self.input, RawRecords) else "Correct the rows"
            raise BadInput(
                f"topic {topic}, partition {partition}, offset {offset}: {reasons[0]}. {remedy}; with REPLICA "
                "IDENTITY FULL the source sends all values"
            )
        for dead_letter, reason in zip(lost_rows.column(DEAD_LETTER_COLUMN).to_pylist(), reasons, strict=True):
            self.statistics.dead_letters.append(
                msgspec.json.encode(msgspec.json.decode(dead_letter) | {"reason": reason}).decode()
            )
        return kept


def renumbered(rows: pa.RecordBatch, numbers: Sequence[int]) -> pa.RecordBatch:
    """Return the rows of a chunk, with the numbers of their buckets in the task.

    numbers: the task's numbers of the chunk's buckets.
    """
    found = np.array(numbers, np.int32)[rows.column(BUCKET_COLUMN).to_numpy()]
    at = rows.schema.get_field_index(BUCKET_COLUMN)
    return rows.set_column(at, BUCKET_COLUMN, pa.array(found)).replace_schema_metadata(None)


def _has_deletes(rows: pa.RecordBatch) -> bool:
    return bool(np.any(rows.column(KIND_COLUMN).to_numpy(zero_copy_only=False) == RowKind.DELETE))


def _write_buffer_bytes(context: TableContext) -> int:
    configured = context.options.write_buffer_size_bytes
    return configured if _WRITE_BUFFER_OPTION in context.options else min(configured, _WRITE_BUFFER_BYTES)


def _selected(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Select those of the columns that the rows have."""
    return rows.select([name for name in names if name in rows.schema.names])


def _gather(parts: Sequence[pa.RecordBatch], order: Order) -> pa.RecordBatch:
    """Return rows by their numbers, which count through all parts."""
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    if len(order) == starts[-1]:
        whole = concat(parts)
        return whole if np.all(order[:-1] < order[1:]) else whole.take(pa.array(order))
    owners = np.searchsorted(starts, order, side="right") - 1
    by_part = np.argsort(owners, kind="stable")
    edges = np.searchsorted(owners[by_part], np.arange(len(parts) + 1))
    pieces = [
        part.take(pa.array(order[by_part[start:stop]] - first))
        for part, first, start, stop in zip(parts, starts[:-1], edges[:-1], edges[1:], strict=True)
        if stop > start
    ]
    return concat(pieces).take(pa.array(np.argsort(by_part)))
