"""Converts a micro-batch's Arrow batches to rows of the table, with columns for their order.

    [table columns] [_VALUE_KIND] [_order_0 …] [_time] [_unchanged, _dead_letter, _old_<key> …] [_key_change]

`_order_…`: they decide which row of a key is the newest, until rows have sequence numbers: a shuffle loses the order of
    arrival.
`_time`: the time of the record, epoch milliseconds.
`_unchanged`, `_dead_letter`, `_old_<key>`: only for rows whose unavailable values must be looked up. `_dead_letter` is
    used if they are not found.
`_key_change`: only for rows that are halves of key changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.routing import takes_topic
from tidelake.errors import BadInput
from tidelake.ingest.dead_letters import dead_letter_members
from tidelake.ingest.formats.base import (
    DecodedBatch,
    DecodeFailure,
    Decoder,
    FailureKind,
    OpenedFormat,
    TableRows,
    Target,
    TargetOf,
)
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.table_rows import slice_by_offset
from tidelake.ingest.monitoring.partition_progress import record_times
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.spark.batch_statistics import BatchStatistics, SchemaNeed, TruncateRecord
from tidelake.ingest.spark.batch_truncates import TRUNCATE_REMEDY, Truncation
from tidelake.ingest.spark.first_records import FirstRecord
from tidelake.ingest.spark.raw_columns import raw_batches
from tidelake.ingest.tables.routed_decoder import RoutedDecoder
from tidelake.ingest.tables.table_lineage import SourceLineage, TableLineage, TruncateMarker
from tidelake.ingest.tables.table_router import Route, TableRouter, router_of
from tidelake.ingest.tables.table_targets import ColumnDecisions
from tidelake.ingest.tables.truncate_filter import TruncateFilter
from tidelake.ingest.tables.unavailable_values import NO_OLD_ROW_REASON
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.row_converter import RowConverter

ORDER_PREFIX: Final = "_order_"
TIME_COLUMN: Final = "_time"
UNAVAILABLE_COLUMN: Final = "_unchanged"
DEAD_LETTER_COLUMN: Final = "_dead_letter"
OLD_KEY_PREFIX: Final = "_old_"
KEY_CHANGE_COLUMN: Final = "_key_change"
_KEY_CHANGE: Final = pa.struct(
    [("id", pa.binary()), ("is_exact", pa.bool_()), ("old_key", pa.string()), ("new_key", pa.string())]
)


class RowReader(Protocol):
    """Reads the Arrow batches of one task."""

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of tables, each part with its table's number."""
        ...


class BatchInput(Protocol):
    """How a micro-batch's columns are read for a table. It can be pickled."""

    @property
    def has_order(self) -> bool:
        """Whether rows have columns that decide which of two is newer."""
        ...

    @property
    def is_converted(self) -> bool:
        """Whether rows are already converted by `RowConverter`."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether the rows replace the rows in their buckets."""
        ...

    @property
    def rewritten(self) -> Sequence[pa.RecordBatch]:
        """Rows of earlier batches that are written again."""
        ...


@dataclass(frozen=True)
class TypedColumns:
    """Columns of the table by name, optionally with `_VALUE_KIND`.

    order_by: columns that order the rows, the most significant first. They need not be columns of the table.
    replaces: see `BatchInput`.
    names: the columns' names, if those of the batch were replaced.
    """

    order_by: tuple[str, ...] = ()
    replaces: bool = False
    names: tuple[str, ...] = ()
    is_converted = True
    rewritten = ()

    @property
    def has_order(self) -> bool:
        return bool(self.order_by)


@dataclass(frozen=True)
class RawRecords:
    """Change records: Kafka's columns (topic, partition, offset, timestamp, key, value, headers), or `value` with the
    lines of a change-log folder.

    format: the format of the records.
    match: patterns of source tables whose records are written. None: records of any source table, but only of one.
    keeps_dead_letters: records that can't be decoded become dead letters. Otherwise the first one stops the query.
    source_types: see `tidelake.ingest.formats.base.Target`.
    rounded_columns: see `tidelake.ingest.formats.base.Target`.
    key_from_records: see `tidelake.ingest.formats.base.Target.of`.
    key_columns: see `tidelake.ingest.formats.base.Target`.
    topics: patterns of topics whose records are written.
    decisions: for a query whose tables follow their sources: the schema needs of records are sent to the driver.
        None: the first record that needs a schema change stops the query.
    new_columns: columns that the table got for records of the query. Each has the offset of its first record, for each
        partition with such a record. For an update before it, the column is not an unavailable value: it did not exist.
    document_ids: the ids of MongoDB's documents in the table, as `DocumentIds.to_members` returns them.
    is_history: see `tidelake.ingest.formats.base.Target`.
    deleted_at_column: see `tidelake.ingest.formats.base.Target`.
    withholds: records of the table must not be kept or shown, because it masks columns.
    applies_truncates: truncates are sent to the driver. Otherwise the first one stops the query, unless the format
        skips it.
    truncation: the truncate of the batch whose earlier rows are left out.
    marker: the truncate before the batch, while rows from before it may arrive. See `SourceLineage`.
    """

    format: OpenedFormat
    match: tuple[str, ...] | None = None
    keeps_dead_letters: bool = False
    source_types: Mapping[str, str] = field(default_factory=dict)
    rounded_columns: tuple[str, ...] = ()
    topics: tuple[str, ...] = ("*",)
    decisions: ColumnDecisions | None = None
    new_columns: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    key_from_records: bool = True
    key_columns: tuple[str, ...] = ()
    document_ids: Mapping[str, Any] = field(default_factory=dict)
    is_history: bool = False
    deleted_at_column: str = ""
    withholds: bool = False
    applies_truncates: bool = False
    truncation: Truncation | None = None
    marker: TruncateMarker | None = None
    has_order = True
    is_converted = False  # rows may have unavailable values, which are looked up first

    @property
    def replaces(self) -> bool:
        return self.truncation is not None

    @property
    def rewritten(self) -> Sequence[pa.RecordBatch]:
        if self.truncation is None:
            return []
        time_ms = self.truncation.time_ms
        return [
            _with_order(rows.rows, partition, rows.offsets, np.full(len(rows.offsets), time_ms))
            for partition, rows in self.truncation.kept
        ]

    @property
    def late_rows(self) -> TruncateMarker | None:
        """The truncate whose earlier rows may arrive in other partitions."""
        return self.marker if self.truncation is None else self.truncation.marker


@dataclass(frozen=True)
class PipelineRecords:
    """The records of a pipeline, and how they find their tables. It can be pickled.

    format: the format of the records.
    entries: the configured entries, with one for each known table of the entries that stand for many.
    existing: the names of tables that exist. Others are created for the first record that belongs to them.
    keeps_dead_letters: see `RawRecords`; for records without a table.
    withholds: see `RawRecords`; for records without a table.
    """

    format: OpenedFormat
    entries: tuple[TableSettings, ...]
    existing: frozenset[str] = frozenset()
    keeps_dead_letters: bool = False
    withholds: bool = False


def open_reader(
    tables: Sequence[tuple[TableContext, BatchInput]],
    statistics: BatchStatistics,
    pipeline: PipelineRecords | None = None,
) -> RowReader:
    """Open the reader in a task.

    tables: several tables, or none, are possible only for raw records of one format. A table's number is its index.
    statistics: gets the statistics that the rows don't contain.
    pipeline: see `RawReader`.
    """
    if tables and isinstance(tables[0][1], TypedColumns):
        return _TypedReader(tables[0][0], tables[0][1])
    return RawReader([(context, one) for context, one in tables if isinstance(one, RawRecords)], statistics, pipeline)


class _TypedReader:
    def __init__(self, context: TableContext, columns: TypedColumns) -> None:
        self._context = context
        self._order_by = columns.order_by
        self._names = columns.names
        self._carried = [f"{ORDER_PREFIX}{i}" for i in range(len(self._order_by))]
        self._converter = RowConverter(context.schema, context.options, context.name, self._carried, context.location)

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._names:
            batch = batch.rename_columns(self._names)
        missing = [name for name in self._order_by if name not in batch.schema.names]
        if missing:
            raise BadInput(f"order_by names {missing[0]!r}; the stream has {', '.join(batch.schema.names)}")
        orders = batch.select(self._order_by).columns
        by_name = self._context.schema.by_name
        batch = batch.drop_columns([name for name in self._order_by if name not in by_name])
        for name, order in zip(self._carried, orders, strict=True):
            batch = batch.append_column(name, order)
        yield 0, self._converter.to_table_schema(batch)


class RawReader:
    """Reads raw records. A record is decoded once for each of its tables.

    tables: the tables that the batch is decoded for; the pipeline may have others.
    pipeline: the pipeline whose records these are; None for records of these tables only. Then none is created.
    """

    def __init__(
        self,
        tables: Sequence[tuple[TableContext, RawRecords]],
        statistics: BatchStatistics,
        pipeline: PipelineRecords | None = None,
    ) -> None:
        self._inputs = [one for _, one in tables]
        self._statistics = statistics
        self._pipeline = pipeline
        self._numbers = {context.name: number for number, (context, _) in enumerate(tables)}
        self._takes_all = pipeline is None and len(tables) == 1 and self._inputs[0].match is None
        if pipeline is None:
            router = TableRouter([Route(context.name, one.match or ("*",), one.topics) for context, one in tables])
        else:
            router = router_of(pipeline.entries)
        self._router = router
        for context, one in tables:
            target = Target.of(
                context,
                one.source_types,
                one.rounded_columns,
                key_from_records=one.key_from_records,
                key_columns=one.key_columns,
            )
            target = replace(
                target,
                document_ids=DocumentIds.of(one.document_ids),
                is_history=one.is_history,
                deleted_at_column=one.deleted_at_column,
            )
            router.add_target(target if one.decisions is None else one.decisions.applied(target))
        self._needs: set[tuple[int, str]] = set()
        self._format = self._inputs[0].format if pipeline is None else pipeline.format
        lineage = TableLineage(lambda _: ())
        lineage.restore({context.name: SourceLineage(truncate=one.late_rows) for context, one in tables})
        self._late_rows = TruncateFilter(lineage, self._format.CAPABILITIES.order_of)
        self._decoder: Decoder
        if self._takes_all:
            (only,) = self._numbers
            self._decoder = self._new_decoder(lambda source: router.target(only))
        else:
            self._decoder = RoutedDecoder(router, self._new_decoder)

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        for raw in raw_batches(batch, self._format.KEPT_HEADERS):
            if not (self._router.tables_of(raw.topic) or self._router.templates.take_topic(raw.topic)):
                continue
            self._statistics.add(raw)
            decoded = self.decode(raw)
            self._note_first_records(decoded, raw)
            for failure in decoded.failures:
                self._handle_failure(raw, failure)
            for table in decoded.tables:
                number = self._numbers[table.target.name]
                one = self._inputs[number]
                if len(table.offsets):
                    self._statistics.table(number).topics.add(raw.topic)
                kept = self._after_truncate(table, raw, number)
                self._statistics.table(number).add_times(record_times(raw, kept.offsets, epoch_ms()))
                rows = _without_later_columns(kept, raw, one.new_columns)
                yield number, _ordered(rows, raw, withholds=one.withholds)

    def decode(self, raw: RawBatch) -> DecodedBatch:
        return self._decoder.decode(raw)

    def _new_decoder(self, target_of: TargetOf) -> Decoder:
        def noted(source: SourceTable) -> Target | None:
            target = target_of(source)
            if target is not None:
                statistics = self._statistics.table(self._numbers[target.name])
                statistics.sources.add(str(source))
                statistics.document_ids = [target.document_ids]
                if self._router.templates:
                    self._statistics.sources.add(source)
            return target

        return self._format.decoder(noted)

    def _note_first_records(self, decoded: DecodedBatch, raw: RawBatch) -> None:
        """Report the records for which tables are created."""
        if self._pipeline is None:
            return
        for source, row in decoded.creating.items():
            if not self._pipeline.existing.issuperset(self._router.tables_for(source)):
                self._statistics.add_first_record(FirstRecord.of(source, raw, row))

    def _after_truncate(self, table: TableRows, raw: RawBatch, number: int) -> TableRows:
        """Remove the rows from before a truncate."""
        one, statistics = self._inputs[number], self._statistics.table(number)
        if one.truncation is not None and one.truncation.partition == (raw.topic, raw.partition):
            return slice_by_offset(table, one.truncation.offset, None)
        if one.late_rows is None or not one.late_rows.is_behind(raw.topic, raw.partition):
            return table
        rows, undecided = self._late_rows.drop(raw, table)
        for failure in undecided:
            self._handle_failure(raw, replace(failure, target=table.target))
        if len(rows.offsets):
            statistics.past_truncate.add(raw.partition)
        return rows

    def _handle_failure(self, raw: RawBatch, failure: DecodeFailure) -> None:
        """Handle a failed record. Records that need a schema change don't become dead letters: rows would be lost."""
        name = self._table_of(failure)
        if name is not None and name not in self._numbers and self._is_existing(name):
            return  # the batch is in that table already
        known = None if name is None else self._numbers.get(name)
        number = self._number_of_topic(raw) if known is None else known
        if number is None:
            self._handle_failure_without_table(raw, failure)
            return
        if self._inputs[number].withholds if known is not None else self._withholds_unknown:
            failure = failure.withheld()
        decisions = self._inputs[number].decisions
        if failure.shadow is not None:  # renames and drops need an order, which a batch lacks; columns come with rows
            return
        if failure.kind in (FailureKind.UNKNOWN_COLUMN, FailureKind.NARROW_COLUMN, FailureKind.SCHEMA_CHANGE):
            if decisions is not None:
                partition = TopicPartition(raw.topic, raw.partition)
                self._report_need(number, SchemaNeed(failure.describe(raw), partition, failure))
            elif failure.kind is not FailureKind.SCHEMA_CHANGE:  # that is ignored; a later record may need a column
                raise BadInput(f"{failure.describe(raw)}. Then start again: reading continues with this record")
        elif failure.kind is FailureKind.TRUNCATE and self._inputs[number].applies_truncates and failure.target:
            self._statistics.table(number).add_truncate(TruncateRecord.of(failure, raw))
        elif not failure.kind.is_tolerable:
            raise BadInput(f"{failure.describe(raw)}. {TRUNCATE_REMEDY}")
        elif not self._inputs[number].keeps_dead_letters:
            raise BadInput(f"{failure.describe(raw)}. {bad_record_remedy(self._inputs[number])}")
        else:
            self._statistics.table(number).dead_letters.append(dead_letter_line(raw, failure))

    def _handle_failure_without_table(self, raw: RawBatch, failure: DecodeFailure) -> None:
        """Handle a failed record of a topic for which no table exists yet."""
        assert self._pipeline is not None
        if not failure.kind.is_tolerable:
            return  # it changes a table that does not exist
        if self._pipeline.withholds:
            failure = failure.withheld()
        if not self._pipeline.keeps_dead_letters:
            raise BadInput(f"{failure.describe(raw)}. {_BAD_RECORD_REMEDY}")
        self._statistics.dead_letters.append(dead_letter_line(raw, failure))

    @property
    def _withholds_unknown(self) -> bool:
        of_pipeline = self._pipeline is not None and self._pipeline.withholds
        return of_pipeline or any(one.withholds for one in self._inputs)

    def _is_existing(self, name: str) -> bool:
        return self._pipeline is not None and name in self._pipeline.existing

    def _report_need(self, number: int, need: SchemaNeed) -> None:
        what = (number, repr((need.failure.needed, need.failure.statements)))
        if what not in self._needs:
            self._needs.add(what)
            self._statistics.table(number).needs.append(need)

    def _table_of(self, failure: DecodeFailure) -> str | None:
        """Return the name of the record's table; None if it is unknown."""
        if failure.table_name is not None or failure.source is None or self._takes_all:
            return failure.table_name
        return next(iter(self._router.tables_for(failure.source)), None)

    def _number_of_topic(self, raw: RawBatch) -> int | None:
        """Return the number of the first table of the topic, which gets the dead letters of unknown tables."""
        return next((number for number, one in enumerate(self._inputs) if takes_topic(one.topics, raw.topic)), None)


_BAD_RECORD_REMEDY: Final = (
    "Fix the source, or set `errors.tolerance: all` to continue and keep such records as dead letters"
)


def bad_record_remedy(rows: RawRecords) -> str:
    """Return the remedy for a bad record, with the names of the called API."""
    if rows.decisions is not None:
        return _BAD_RECORD_REMEDY
    return (
        "Fix the record at the source, or pass dead_letters=… to sink() to continue and keep such records as dead "
        "letters"
    )


def dead_letter_line(raw: RawBatch, failure: DecodeFailure) -> str:
    return msgspec.json.encode(dead_letter_members(raw, failure)).decode()


def _without_later_columns(
    table: TableRows, raw: RawBatch, new_columns: Mapping[str, Mapping[TopicPartition, int]]
) -> TableRows:
    """Remove unavailable marks of columns that did not exist at the record. See `RawRecords.new_columns`."""
    if table.unavailable is None or not new_columns:
        return table
    partition, offsets = TopicPartition(raw.topic, raw.partition), table.offsets[table.unavailable.rows]
    flags = {
        name: of & (offsets >= new_columns.get(name, {}).get(partition, 0))
        for name, of in table.unavailable.columns.items()
    }
    return replace(table, unavailable=table.unavailable.only(flags))


def _ordered(table: TableRows, raw: RawBatch, *, withholds: bool) -> pa.RecordBatch:
    n = table.rows.num_rows
    times_ms = raw.timestamps_ms[np.searchsorted(raw.offsets, table.offsets)]
    rows = _with_order(table.rows, TopicPartition(raw.topic, raw.partition), table.offsets, times_ms)
    columns, names = list(rows.columns), list(rows.schema.names)
    if table.unavailable is not None:
        unavailable = table.unavailable
        at = np.full(n, -1)
        at[unavailable.rows] = np.arange(len(unavailable.rows))
        position = pa.array(at, mask=at < 0)
        missing = [
            [name for name, flags in unavailable.columns.items() if flags[i]] for i in range(len(unavailable.rows))
        ]
        columns.append(pa.array(missing, pa.list_(pa.string())).take(position))
        columns.append(
            pa.array(_dead_letter_lines(table, raw, unavailable.rows, withholds=withholds), pa.string()).take(position)
        )
        names += [UNAVAILABLE_COLUMN, DEAD_LETTER_COLUMN]
        columns += [column.take(position) for column in unavailable.keys.columns]
        names += [OLD_KEY_PREFIX + name for name in unavailable.keys.schema.names]
    if table.key_changes is not None:
        halves = dict(zip(table.key_changes.rows.tolist(), table.key_changes.changes, strict=True))
        columns.append(pa.array([asdict(halves[row]) if row in halves else None for row in range(n)], _KEY_CHANGE))
        names.append(KEY_CHANGE_COLUMN)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _with_order(
    rows: pa.RecordBatch, partition: TopicPartition, offsets: NDArray[np.int64], times_ms: NDArray[np.int64]
) -> pa.RecordBatch:
    """Append the columns for the order of the rows, and for their time."""
    n = rows.num_rows
    orders = [
        pa.array([partition.topic], pa.string()).take(pa.array(np.zeros(n, np.int64))),
        pa.array(np.full(n, partition.partition, np.int32)),
        pa.array(offsets),
    ]
    names = [*rows.schema.names, *(f"{ORDER_PREFIX}{i}" for i in range(3)), TIME_COLUMN]
    return pa.RecordBatch.from_arrays([*rows.columns, *orders, pa.array(times_ms)], names=names)


def _dead_letter_lines(table: TableRows, raw: RawBatch, rows: NDArray[np.int64], *, withholds: bool) -> list[str]:
    """Return the dead letters of these rows' records, in case their values are not found."""
    numbers = np.searchsorted(raw.offsets, table.offsets[rows])
    failures = (
        DecodeFailure(int(number), int(raw.offsets[number]), FailureKind.UNKNOWN_VALUE, NO_OLD_ROW_REASON)
        for number in numbers
    )
    return [dead_letter_line(raw, failure.withheld() if withholds else failure) for failure in failures]


def order_columns(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(ORDER_PREFIX)]
