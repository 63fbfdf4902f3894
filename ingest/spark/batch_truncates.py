"""Truncates in a batch: the commit of the batch replaces all rows of the table by those from after the truncate.

A batch is one commit, also with a truncate in it. So a repeated batch is recognized as without one, and no reader sees
a state that the source did not have at the end of the batch.

1. The tasks that decode report truncates. None of the batch's rows is written yet.
2. The driver decides about the truncate that counts, as `tidelake ingest run` decides (`TruncatePlanner`).
3. The batch is decoded again, without the rows that the truncate removed, and written in place of the table's rows.

With several partitions, rows from before the truncate may come in later batches. The table's lineage says which
partitions may still have some, until each of them has delivered a row from after it. The tasks drop them. Rows from
after the truncate that earlier batches have written are read again, and are part of the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused
from tidelake.ingest.formats.base import DecodedBatch, TableRows
from tidelake.ingest.formats.format_capabilities import SourceOrder, SourceOrderOf
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Source
from tidelake.ingest.spark.batch_statistics import BatchTableStatistics, TruncateRecord
from tidelake.ingest.tables.table_lineage import SourceLineage, TableLineage, TruncateMarker
from tidelake.ingest.tables.truncate_handler import InexactTruncate, SourceReader, TruncatePlanner

TRUNCATE_REMEDY = "Decide whether to keep the rows. `truncates: skip` of the format skips all such records"


@dataclass(frozen=True, slots=True)
class Truncation:
    """The truncate of a batch's table that counts. Tasks get it.

    partition: the partition of its record.
    offset: the offset of its record. Earlier rows of the partition are removed.
    time_ms: the time of its record, epoch milliseconds.
    marker: removes rows of other partitions; None if none of them can be from before the truncate.
    reason: describes the record, for messages.
    kept: rows of earlier batches from after the truncate, which are written again, with their partitions.
    """

    partition: TopicPartition
    offset: int
    time_ms: int
    marker: TruncateMarker | None
    reason: str
    kept: Sequence[tuple[TopicPartition, TableRows]] = ()


@dataclass(frozen=True, slots=True)
class TruncateSource:
    """The source of a query whose truncates are applied.

    partitions: returns all partitions of the source that Spark knows when it plans the batch, with records or without.
    open: opens the source, to read records again.
    """

    partitions: Callable[[], Collection[TopicPartition]]
    open: Callable[[], Source]


@dataclass(frozen=True, slots=True)
class TruncatedTable:
    """A table with truncates in a batch.

    lineage: the table's lineage before the batch.
    written: the table's position before the batch.
    shared_with: commit users that write other records to the table.
    holds_rows: whether the table has rows, of any writer.
    order_of: see `FormatCapabilities`.
    decode: decodes records for this table.
    """

    name: str
    lineage: SourceLineage
    written: Mapping[TopicPartition, int]
    shared_with: Collection[str]
    holds_rows: Callable[[], bool]
    order_of: SourceOrderOf | None
    decode: Callable[[RawBatch], DecodedBatch]


def plan_truncation(
    table: TruncatedTable, found: BatchTableStatistics, read: Collection[TopicPartition], source: TruncateSource
) -> Truncation | None:
    """Return the truncate that counts. None if it has no effect: the table is empty, or a later truncate came first.

    found: the statistics of the decoded batch.
    read: the partitions with records in the batch.

    Raises RecordRefused if emptying the table would not be exact.
    """
    record = _last(list(found.truncates.values()), table.order_of)
    lineage = TableLineage(lambda _: found.sources)
    lineage.restore({table.name: table.lineage.with_names(topics=found.topics)})
    reader = None if table.order_of is None else SourceReader(source.open, table.order_of, table.decode)
    planner = TruncatePlanner(lambda _: table.holds_rows(), lineage, are_applied=True, reader=reader)
    partitions = frozenset({*table.written, *read, *source.partitions()})
    try:
        if table.shared_with:
            raise InexactTruncate(
                f"{table.name} also has rows of {', '.join(sorted(table.shared_with))}, which would be deleted, too"
            )
        plan = asyncio.run(planner.plan(record.failure, record.raw, _Known(partitions, table.written)))
    except InexactTruncate as error:
        refused = f"{record.failure.describe(record.raw)}. {TRUNCATE_REMEDY}"
        because = f". The truncate can't be applied: {error}" if str(error) else ""
        raise RecordRefused(f"{refused}{because}", record.failure) from error
    if plan.is_outdated:
        return None
    reason = f"{record.failure.source} was truncated"
    time_ms = int(record.raw.timestamps_ms[0])
    return Truncation(record.partition, record.failure.offset, time_ms, plan.truncate, reason, plan.kept)


def lineage_after(before: SourceLineage, found: BatchTableStatistics, truncation: Truncation | None) -> SourceLineage:
    """Return the lineage of a table after a batch, without document ids.

    before: the lineage before the batch.
    """
    marker = before.truncate if truncation is None else truncation.marker
    if marker is not None:
        behind = marker.behind - found.past_truncate
        marker = replace(marker, behind=behind) if behind else None
    names = before.with_names(tables=found.sources, topics=found.topics)
    return SourceLineage(names.tables, names.topics, marker, names.altered, names.ids)


@dataclass(frozen=True, slots=True)
class _Known:
    """Implements `KnownPartitions` for one table."""

    partitions: frozenset[TopicPartition]
    written: Mapping[TopicPartition, int]

    def partitions_of(self, table: str) -> frozenset[TopicPartition]:
        return self.partitions

    def written_position_of(self, table: str) -> Mapping[TopicPartition, int]:
        return self.written


def _last(records: list[TruncateRecord], order_of: SourceOrderOf | None) -> TruncateRecord:
    """Return the last truncate at the source. If that is unknown, return one that shows it.

    records: the last one of each partition.
    """
    last, *others = records
    if not others:
        return last
    last_order = _order(last, order_of)
    for record in others:
        order = _order(record, order_of)
        if order is None or last_order is None:
            return record if order is None else last
        is_later = last_order.is_before(order)
        if is_later is None:
            raise RecordRefused(
                f"{record.failure.describe(record.raw)}. {TRUNCATE_REMEDY}. The truncate can't be applied: a truncate "
                f"in {last.partition} is in another log of the source, and the two have no common order",
                record.failure,
            )
        if is_later:
            last, last_order = record, order
    return last


def _order(record: TruncateRecord, order_of: SourceOrderOf | None) -> SourceOrder | None:
    return None if order_of is None else order_of(record.raw.values[0].as_py())
