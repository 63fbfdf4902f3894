"""A micro-batch's Arrow batches as rows of the table, each with what orders it.

    [table columns] [_VALUE_KIND] [_order_0 …] [_time] [_unchanged, _dead_letter, _old_<key> …] [_key_change]

The order columns decide which row of a key is the newest before sequence numbers are given: a shuffle forgets arrival
order.
`_time` is the records' own, epoch milliseconds. The next ones are there only for rows whose unavailable values must be
looked up, `_dead_letter` for the case that they can't; the last for rows that are halves of key changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from checkpoint.offsets import OffsetRange, TopicPartition
from ingest.dead_letters import dead_letter_members
from ingest.formats.base import DecodeFailure, Decoder, FailureKind, Format, TableRows, Target
from ingest.formats.source_table import SourceTable
from ingest.raw_batch import Headers, RawBatch
from ingest.sources.change_log_record import BadLine, PartitionRecords, parse_records
from ingest.tables.unavailable_values import NO_OLD_ROW
from storage.errors import BadInput
from storage.table import TableContext
from storage.write.row_converter import RowConverter

ORDER_PREFIX: Final = "_order_"
TIME_COLUMN: Final = "_time"
UNAVAILABLE_COLUMN: Final = "_unchanged"
DEAD_LETTER_COLUMN: Final = "_dead_letter"
OLD_KEY_PREFIX: Final = "_old_"
KEY_CHANGE_COLUMN: Final = "_key_change"
_KEY_CHANGE: Final = pa.struct(
    [("id", pa.binary()), ("is_exact", pa.bool_()), ("old_key", pa.string()), ("new_key", pa.string())]
)


@dataclass(slots=True)
class BatchStatistics:
    """What a task met: offsets by partition, the source tables they came from, and dead letters (lines of JSON)."""

    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)
    dead_letters: list[str] = field(default_factory=list)

    def add(self, batch: RawBatch) -> None:
        if len(batch):
            self.include(
                TopicPartition(batch.topic, batch.partition),
                OffsetRange(int(batch.offsets[0]), int(batch.offsets[-1]) + 1),
            )

    def include(self, partition: TopicPartition, found: OffsetRange) -> None:
        known = self.ranges.get(partition, found)
        self.ranges[partition] = OffsetRange(min(known.start, found.start), max(known.end, found.end))


class BatchInput(Protocol):
    """How a micro-batch's columns are read. Pickles; executors call `rows`."""

    @property
    def has_order(self) -> bool:
        """Whether rows come with something that says which of two is newer."""
        ...

    @property
    def is_converted(self) -> bool:
        """Whether rows come as `RowConverter` makes them."""
        ...

    def rows(
        self, batch: pa.RecordBatch, context: TableContext, statistics: BatchStatistics
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class TypedColumns:
    """Columns of the table by name, optionally `_VALUE_KIND`.

    order_by: columns, the last decides last; may be extra ones.
    """

    order_by: tuple[str, ...] = ()
    is_converted = True

    @property
    def has_order(self) -> bool:
        return bool(self.order_by)

    def rows(
        self, batch: pa.RecordBatch, context: TableContext, statistics: BatchStatistics
    ) -> Iterator[pa.RecordBatch]:
        missing = [name for name in self.order_by if name not in batch.schema.names]
        if missing:
            raise BadInput(f"order_by names {missing[0]!r}; the stream has {', '.join(batch.schema.names)}")
        carried = [f"{ORDER_PREFIX}{i}" for i in range(len(self.order_by))]
        orders = batch.select(self.order_by).columns
        batch = batch.drop_columns([name for name in self.order_by if name not in context.schema.by_name])
        for name, order in zip(carried, orders, strict=True):
            batch = batch.append_column(name, order)
        yield RowConverter(context.schema, context.options, context.name, carried, context.location).to_table_schema(
            batch
        )


@dataclass(frozen=True)
class RawRecords:
    """Change records: Kafka's columns (topic, partition, offset, timestamp, key, value, headers), or `value` with the
    lines of a change-log folder.

    format: of the records.
    match: patterns over source tables whose records are meant; None takes the records of whichever single table comes.
    keeps_dead_letters: records that can't be decoded become dead letters; else the first one stops the query.
    source_types, rounded_columns: see `ingest.formats.base.Target`.
    """

    format: Format
    match: tuple[str, ...] | None = None
    keeps_dead_letters: bool = False
    source_types: Mapping[str, str] = field(default_factory=dict)
    rounded_columns: tuple[str, ...] = ()
    has_order = True
    is_converted = False  # a row may have cells that are looked up first

    def rows(
        self, batch: pa.RecordBatch, context: TableContext, statistics: BatchStatistics
    ) -> Iterator[pa.RecordBatch]:
        decoder = self._decoder(context, statistics)
        for raw in raw_batches(batch, self.format.KEPT_HEADERS):
            statistics.add(raw)
            decoded = decoder.decode(raw)
            self._set_aside(raw, decoded.failures, statistics)
            for table in decoded.tables:
                yield _ordered(table, raw)

    def _decoder(self, context: TableContext, statistics: BatchStatistics) -> Decoder:
        target = Target.of(context, self.source_types, self.rounded_columns)

        def target_of(source: SourceTable) -> Target | None:
            if self.match is not None and not any(source.matches(pattern) for pattern in self.match):
                return None
            statistics.sources.add(str(source))
            return target

        return self.format.decoder(target_of)

    def _set_aside(self, raw: RawBatch, failures: Sequence[DecodeFailure], statistics: BatchStatistics) -> None:
        """What the table can't hold stops the query in any case: as dead letters, good rows would be lost."""
        for failure in failures:
            if failure.kind is FailureKind.SCHEMA_CHANGE:
                continue  # the table is left as it is; a column that it then lacks stops the query
            if failure.kind in (FailureKind.UNKNOWN_COLUMN, FailureKind.NARROW_COLUMN):
                raise BadInput(f"{failure.describe(raw)}. Then start again: reading goes on with this record")
            if not self.keeps_dead_letters:
                raise BadInput(
                    f"{failure.describe(raw)}. Fix the record at the source, or pass dead_letters=… to sink() to keep "
                    "such records aside and go on"
                )
            statistics.dead_letters.append(dead_letter_line(raw, failure))


def dead_letter_line(raw: RawBatch, failure: DecodeFailure) -> str:
    return msgspec.json.encode(dead_letter_members(raw, failure)).decode()


def _ordered(table: TableRows, raw: RawBatch) -> pa.RecordBatch:
    rows, n = table.rows, table.rows.num_rows
    orders = [
        pa.array([raw.topic], pa.string()).take(pa.array(np.zeros(n, np.int64))),
        pa.array(np.full(n, raw.partition, np.int32)),
        pa.array(table.offsets),
    ]
    times = pa.array(raw.timestamps_ms[np.searchsorted(raw.offsets, table.offsets)])
    columns = [*rows.columns, *orders, times]
    names = [*rows.schema.names, *(f"{ORDER_PREFIX}{i}" for i in range(3)), TIME_COLUMN]
    if table.unavailable is not None:
        unavailable = table.unavailable
        at = np.full(n, -1)
        at[unavailable.rows] = np.arange(len(unavailable.rows))
        position = pa.array(at, mask=at < 0)
        missing = [
            [name for name, flags in unavailable.columns.items() if flags[i]] for i in range(len(unavailable.rows))
        ]
        columns.append(pa.array(missing, pa.list_(pa.string())).take(position))
        columns.append(pa.array(_dead_letter_lines(table, raw, unavailable.rows), pa.string()).take(position))
        names += [UNAVAILABLE_COLUMN, DEAD_LETTER_COLUMN]
        columns += [column.take(position) for column in unavailable.keys.columns]
        names += [OLD_KEY_PREFIX + name for name in unavailable.keys.schema.names]
    if table.key_changes is not None:
        halves = dict(zip(table.key_changes.rows.tolist(), table.key_changes.changes, strict=True))
        columns.append(pa.array([asdict(halves[row]) if row in halves else None for row in range(n)], _KEY_CHANGE))
        names.append(KEY_CHANGE_COLUMN)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _dead_letter_lines(table: TableRows, raw: RawBatch, rows: NDArray[np.int64]) -> list[str]:
    """What becomes of these rows' records if their values can't be found."""
    numbers = np.searchsorted(raw.offsets, table.offsets[rows])
    return [
        dead_letter_line(
            raw, DecodeFailure(int(number), int(raw.offsets[number]), FailureKind.UNKNOWN_VALUE, NO_OLD_ROW)
        )
        for number in numbers
    ]


# ---------------------------------------------------------------- Spark's columns as raw batches


def raw_batches(batch: pa.RecordBatch, kept_headers: frozenset[str]) -> Iterator[RawBatch]:
    """kept_headers: see `Format`.

    Raises BadInput for other columns, and for a line that is no record.
    """
    names = set(batch.schema.names)
    if {"topic", "partition", "offset", "value"} <= names:
        yield from _from_kafka_columns(batch, kept_headers)
    elif names == {"value"} and pa.types.is_string(batch.schema.field("value").type):
        yield from _from_lines(batch.column("value"), kept_headers)
    else:
        raise BadInput(
            "raw records are Kafka's columns (topic, partition, offset, key, value) or a text column `value` with the "
            f"lines of a change log; the stream has {', '.join(batch.schema.names)}. "
            "For columns of the table leave `format` out"
        )


def _from_lines(lines: pa.StringArray, kept_headers: frozenset[str]) -> Iterator[RawBatch]:
    block = _joined(lines.drop_null())
    try:
        for records in parse_records(block, kept_headers):
            yield _in_offset_order(records).batch(0)
    except BadLine as bad:
        raise BadInput(
            f"not a record of a change log: {block[bad.offset : bad.offset + 80]!r} ({bad.reason})"
        ) from None


def _joined(lines: pa.StringArray) -> bytes:
    """As in the file, without a Python object a line."""
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines.cast(pa.large_string()))
    text = pc.binary_join(whole, pa.scalar("\n", pa.large_string()))[0]
    return bytes(text.as_buffer())


def _in_offset_order(records: PartitionRecords) -> PartitionRecords:
    """Spark packs files into a task by size, not by age."""
    order = np.argsort(records.offsets, kind="stable")
    if np.all(order[:-1] < order[1:]):
        return records
    new_place = np.argsort(order)
    return PartitionRecords(
        records.partition,
        records.offsets[order],
        records.timestamps_ms[order],
        records.keys.take(pa.array(order)),
        records.values.take(pa.array(order)),
        {int(new_place[row]): headers for row, headers in records.headers.items()},
    )


def _from_kafka_columns(batch: pa.RecordBatch, kept_headers: frozenset[str]) -> Iterator[RawBatch]:
    """One batch a topic partition, in offset order."""
    topics = batch.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy().astype(np.int64) << 32 | batch.column("partition").to_numpy()
    order = np.lexsort((batch.column("offset").to_numpy(), codes))
    codes, batch = codes[order], batch.take(pa.array(order))
    edges = np.flatnonzero(np.diff(codes, prepend=-1, append=-1))  # where each partition starts, then n; no code is -1
    for start, stop in pairwise(edges.tolist()):
        rows = batch.slice(start, stop - start)
        offsets = rows.column("offset").to_numpy()
        yield RawBatch(
            topics.dictionary[int(codes[start]) >> 32].as_py(),
            rows.column("partition")[0].as_py(),
            offsets,
            _milliseconds(rows),
            _binary(rows, "key"),
            _binary(rows, "value"),
            int(offsets[-1]) + 1,
            _headers(rows, kept_headers),
        )


def _milliseconds(rows: pa.RecordBatch) -> NDArray[np.int64]:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, -1, np.int64)
    times = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
    milliseconds: NDArray[np.int64] = times.cast(pa.int64()).fill_null(-1).to_numpy()
    return milliseconds


def _binary(rows: pa.RecordBatch, name: str) -> pa.BinaryArray:
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary())
    return rows.column(name).cast(pa.binary())


def _headers(rows: pa.RecordBatch, names: frozenset[str]) -> dict[int, Headers]:
    """Present only where the stream was read with Kafka's headers."""
    if not names or "headers" not in rows.schema.names:
        return {}
    found: dict[int, Headers] = {}
    for row, headers in enumerate(rows.column("headers").to_pylist()):
        kept = tuple((h["key"], h["value"]) for h in headers or () if h["key"] in names)
        if kept:
            found[row] = kept
    return found


def order_columns(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(ORDER_PREFIX)]
