"""Handles a truncate of a source table: it empties the table if this is exact, and otherwise stops the table.

Rows from before the truncate at the source are removed, rows from after it stay. In a topic with one partition, the
order of the records decides. In a topic with several partitions, the records' places in the source's log decide, if
records contain them:

- rows from before the truncate that arrive later are dropped on arrival (`truncate_filter`);
- rows from after the truncate that the table already has are read again, and written in the commit that empties it.

All rows of the table must come from the truncated source table.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, TableRows
from tidelake.ingest.formats.format_capabilities import SourceOrder, SourceOrderOf
from tidelake.ingest.formats.table_rows import keep_records
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.ranges import RangeUnavailable, read_ranges
from tidelake.ingest.sources.source import AtTimestamp, Source
from tidelake.ingest.tables.table_lineage import TableLineage, TruncateMarker
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.truncate_filter import orders_of
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import run_cpu_bound, run_uncancellable

# Reading again begins at the time of the truncate minus _LOOKBACK_MS, and some records before that. The next larger
# number of records is used if these don't show that this is early enough.
_LOOKBACK_MS: Final = 2_000
_LOOKBACK_RECORDS: Final = (100, 10_000, 1_000_000)
_BYTES_MAX: Final = 64 << 20  # bytes of rows that are written again

_log = get_logger(__name__)


class KnownPartitions(Protocol):
    """The needed methods of `tidelake.checkpoint.coordinator.CheckpointCoordinator`."""

    def partitions_of(self, table: str) -> frozenset[TopicPartition]: ...
    def written_position_of(self, table: str) -> Mapping[TopicPartition, int]: ...


class InexactTruncate(Exception):
    """Emptying the table would not be exact. The message has the reason; "" without a specific reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Truncation:
    """The plan of a truncate.

    failure: the record of the truncate.
    kept: rows of other partitions from after the truncate, which are written again, with their partitions.
    truncate: the marker for later rows; None if no row from before the truncate can arrive any more.
    is_outdated: nothing is to be done: a later truncate arrived before, or the table has no rows yet.
    """

    failure: DecodeFailure
    kept: Sequence[tuple[TopicPartition, TableRows]] = ()
    truncate: TruncateMarker | None = None
    is_outdated: bool = False


@dataclass(frozen=True, slots=True)
class SourceReader:
    """The functions to read records again.

    open_source: opens an additional source.
    order_of: reads the order of a record at its source.
    decode: decodes records like the pipeline.
    """

    open_source: Callable[[], Source]
    order_of: SourceOrderOf
    decode: Callable[[RawBatch], DecodedBatch]


class TruncatePlanner:
    """Plans truncates.

    holds_rows: returns whether a table has rows in its newest snapshot, of any writer. Blocks.
    lineage: the lineage of the tables.
    are_applied: whether the configuration allows truncates.
    reader: reads records again. None if records don't contain their order at the source.
    """

    def __init__(
        self,
        holds_rows: Callable[[str], bool],
        lineage: TableLineage,
        *,
        are_applied: bool,
        reader: SourceReader | None = None,
    ) -> None:
        self._holds_rows = holds_rows
        self._lineage = lineage
        self._are_applied = are_applied
        self._reader = reader

    async def plan(self, failure: DecodeFailure, raw: RawBatch, known: KnownPartitions) -> Truncation:
        """Plan a truncate. Raises InexactTruncate if emptying the table is not exact, and the source's errors."""
        if not self._are_applied or failure.target is None or failure.source is None:
            raise InexactTruncate("")
        if setting := failure.target.keeps_deleted_rows:
            raise InexactTruncate(f"{failure.target.name} keeps deleted rows (`{setting}`), and a truncate drops them")
        table, topic = failure.target.name, raw.topic
        self._check_single_source(table, failure, topic)
        others = sorted(p for p in known.partitions_of(table) if p.topic == topic and p.partition != raw.partition)
        if not others:
            return Truncation(failure)
        at = self._order(raw, failure.row)
        if at is None and await self._has_no_rows(table):
            return Truncation(failure, is_outdated=True)
        if at is None:
            raise InexactTruncate(
                f"topic {topic} has {len(others) + 1} partitions, and the order of a truncate among them is unknown, "
                "as its records have no position in the source's log (`source.sequence` of PostgreSQL)"
            )
        before = self._lineage.truncate_marker(table)
        if before is not None and at.is_before(before.at):
            return Truncation(failure, is_outdated=True)  # a later truncate arrived first
        written = known.written_position_of(table)
        ends = {p: written[p] for p in others if p in written}
        kept, ahead = await self._rows_behind(table, at, int(raw.timestamps_ms[failure.row]), ends)
        behind = frozenset(p.partition for p in others if p not in ahead)
        return Truncation(failure, kept, TruncateMarker(at, behind, topic) if behind else None)

    def _check_single_source(self, table: str, failure: DecodeFailure, topic: str) -> None:
        lineage = self._lineage.of(table)
        if lineage.tables is None or lineage.topics is None:
            raise InexactTruncate(
                f"it is unknown whether all rows of {table} are those of {failure.source}: an earlier release wrote "
                "to the table, or it has many source tables"
            )
        if others := sorted(lineage.tables - {str(failure.source)}):
            raise InexactTruncate(f"{table} also has rows of {', '.join(others)}, which would be deleted, too")
        if others := sorted(lineage.topics - {topic}):
            raise InexactTruncate(
                f"rows of {table} also came from topic {', '.join(others)}, and topics have no common order"
            )

    async def _has_no_rows(self, table: str) -> bool:
        """Return whether the table has no rows, so that the truncate has no effect.

        A table that is created later has no rows at the truncate either. So the result doesn't depend on how records
        are divided into batches.
        """
        if self._lineage.of(table).topics:
            return False
        return not await run_uncancellable(self._holds_rows, table)

    def _order(self, raw: RawBatch, row: int) -> SourceOrder | None:
        value = raw.values[row].as_py()
        return None if self._reader is None else self._reader.order_of(value)

    async def _rows_behind(
        self, table: str, at: SourceOrder, time_ms: int, ends: Mapping[TopicPartition, int]
    ) -> tuple[list[tuple[TopicPartition, TableRows]], set[TopicPartition]]:
        """Return the table's rows after `at` of records below `ends`, and the partitions that have such records."""
        assert self._reader is not None
        source = self._reader.open_source()
        kept: list[tuple[TopicPartition, TableRows]] = []
        ahead: set[TopicPartition] = set()
        try:
            bounds = await source.bounds(list(await source.open(list(ends)) | ends.keys()))
            search_start = await _offsets_at(source, ends, time_ms - _LOOKBACK_MS)
            for partition, end in ends.items():
                found = await self._read_rows_after(source, bounds, table, at, partition, search_start[partition], end)
                if found:
                    ahead.add(partition)
                kept += [(partition, rows) for rows in found]
                if sum(rows.rows.nbytes for _, rows in kept) > _BYTES_MAX:
                    raise InexactTruncate(
                        f"other partitions have more than {_BYTES_MAX} bytes of rows after the truncate"
                    )
        finally:
            await source.close()
        return kept, ahead

    async def _read_rows_after(
        self,
        source: Source,
        bounds: Mapping[TopicPartition, OffsetRange],
        table: str,
        at: SourceOrder,
        partition: TopicPartition,
        search_start: int,
        end: int,
    ) -> list[TableRows]:
        """Return the rows after `at` of a partition's records below `end`.

        search_start: the approximate offset where these records begin
        """
        oldest = bounds[partition].start if partition in bounds else 0
        for earlier in _LOOKBACK_RECORDS:
            start = max(oldest, min(search_start, end) - earlier)
            batches = read_ranges(source, bounds, {partition: OffsetRange(min(start, end), end)})
            try:
                found = await self._rows_after(batches, table, at, partition, is_whole=start == 0)
            except RangeUnavailable as gone:
                raise InexactTruncate(f"{partition} no longer has the records after the truncate: {gone}") from gone
            if found is not None:
                return found
            if start == oldest:
                break
        raise InexactTruncate(
            f"it is unknown which records of {partition} are older than the truncate: those from {start} to {end} are "
            "all newer, and older ones no longer exist or are too many"
        )

    async def _rows_after(
        self,
        batches: AsyncGenerator[RawBatch, None],
        table: str,
        at: SourceOrder,
        partition: TopicPartition,
        *,
        is_whole: bool,
    ) -> list[TableRows] | None:
        """Return the rows after `at` in the batches; None if the batches may begin too late, after `at` already.

        is_whole: the partition has no records before the batches.
        """
        assert self._reader is not None
        found: list[TableRows] = []
        is_early = is_whole
        async with aclosing(batches):
            async for raw in batches:
                decoded = await run_cpu_bound(self._reader.decode, raw)
                for rows in decoded.tables:
                    if rows.target.name != table or not len(rows.offsets):
                        continue
                    orders = orders_of(raw, rows, self._reader.order_of)
                    sides = [None if order is None else order.is_before(at) for order in orders]
                    if None in sides:
                        raise InexactTruncate(
                            f"a record of {partition} doesn't show whether it is older than the truncate"
                        )
                    is_early = is_early or sides[0] is True
                    if not is_early:
                        return None
                    keep = np.array([side is False for side in sides])
                    if keep.any():
                        found.append(_whole(keep_records(rows, keep), partition))
        return found if is_early else None


class TruncateHandler(TruncatePlanner):
    """Plans and carries out truncates.

    sinks: the tables that are written, by name; it may change.
    lineage, are_applied, reader: see `TruncatePlanner`.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        lineage: TableLineage,
        *,
        are_applied: bool,
        reader: SourceReader | None = None,
    ) -> None:
        super().__init__(lambda table: sinks[table].holds_rows(), lineage, are_applied=are_applied, reader=reader)
        self._sinks = sinks

    def execute(self, truncation: Truncation) -> None:
        """Carry out the plan: the table's next snapshot has no rows from before the truncate. Blocks."""
        assert truncation.failure.target is not None
        table = truncation.failure.target.name
        sink = self._sinks[table]
        sink.truncate()
        for _, rows in truncation.kept:
            sink.writer.add(sink.writer.route(rows.rows))
            if sink.writer.needs_room:
                sink.writer.make_room()
        self._lineage.set_truncate_marker(table, truncation.truncate)
        _log.warning(
            "table emptied",
            table=table,
            reason=f"{truncation.failure.source} was truncated",
            offset=truncation.failure.offset,
            rows_from_after_it=sum(len(rows.offsets) for _, rows in truncation.kept),
        )


async def _offsets_at(source: Source, ends: Mapping[TopicPartition, int], time_ms: int) -> Mapping[TopicPartition, int]:
    try:
        return await source.offsets(list(ends), AtTimestamp(time_ms))
    except BadInput:  # the source can't search by time
        return ends


def _whole(rows: TableRows, partition: TopicPartition) -> TableRows:
    if rows.unavailable is not None:
        raise InexactTruncate(f"rows of {partition} after the truncate lack values that did not change")
    return rows
