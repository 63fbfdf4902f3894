"""Writes the rows of a decoded batch to the tables, and handles its failures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, FailureKind, KeyChange, TableRows
from tidelake.ingest.monitoring.partition_progress import newest_time_ms
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.quarantine.failures import ANY_TABLE, TableScope, failures_of
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.moved_rows.moved_rows import MovedRow, MovedRowsByTable
from tidelake.ingest.tables.table_rows import drop_records, slice_by_offset
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.truncate_filter import TruncateFilter
from tidelake.ingest.tables.unavailable_values import (
    AwaitedRow,
    FilledRows,
    fill_unavailable,
    key_change_halves,
    rows_leaving_key,
)
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.errors import BadInput
from tidelake.storage.write.bucket_router import RoutedRows


@dataclass(frozen=True, slots=True, eq=False)
class StagedBatch:
    """A batch that is ready to be written: completely, or up to a record that can't be written.

    parts: the rows of each table, with their buckets.
    key_changes: for each table, the halves of key changes in their order. The half that deletes the old key has the
        row's values.
    dead_letters: the records that become dead letters.
    opens_buckets: whether a table must read existing files before it accepts the rows.
    next_offset: see `WriteResult`; valid after the batch is written.
    refused: see `WriteResult`.
    refused_by: see `WriteResult`.
    awaited: see `WriteResult`.
    """

    raw: RawBatch
    parts: Sequence[tuple[TableRows, RoutedRows]]
    key_changes: Mapping[str, Sequence[KeyChange | MovedRow]]
    dead_letters: Sequence[DecodeFailure]
    opens_buckets: bool
    next_offset: int
    refused: RecordRefused | None
    refused_by: str | None
    awaited: AwaitedRow | None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of writing a batch.

    next_offset: all records of the partition below it are in the tables
    rows: number of rows written
    dead_letters: number of records that became dead letters
    refused: the record at `next_offset` stops the pipeline; neither it nor any later record was written
    refused_by: the table of that record, if known
    awaited: the record at `next_offset` needs a row that no record has deleted under its old key yet
    unblocked: partitions whose awaited row was in this batch
    is_memory_short: call `make_room` before the next write
    tables: (name, rows, newest time of their records in epoch ms) of each table with rows
    dead_letter_codes: error codes of the dead letters that no earlier run had written
    failed: the error of each table that raised one. Such a table has no row of the batch; the others have all
    """

    next_offset: int
    rows: int
    dead_letters: int
    refused: RecordRefused | None
    refused_by: str | None
    awaited: AwaitedRow | None
    unblocked: Sequence[TopicPartition]
    is_memory_short: bool
    tables: Sequence[tuple[str, int, int | None]] = ()
    dead_letter_codes: Sequence[str] = ()
    failed: Mapping[str, Exception] = field(default_factory=dict)


class BatchWriter:
    """Writes decoded batches. Every method blocks; call them from one thread at a time.

    sinks: the tables that exist, by name; it may grow, from any thread.
    moved: the moved rows of the tables.
    scope: the tables that it writes.
    written_from: called with (table, topic) of rows that are written.
    truncate_filter: drops rows that arrive after a truncate although the source changed them before it.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        dead_letters: DeadLetters,
        policy: ErrorPolicy,
        moved: MovedRowsByTable,
        scope: TableScope = ANY_TABLE,
        written_from: Callable[[str, str], None] = lambda table, topic: None,
        truncate_filter: TruncateFilter | None = None,
    ) -> None:
        self._truncate_filter = truncate_filter
        self._written_from = written_from
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._policy = policy
        self._moved = moved
        self._scope = scope
        self._floors: Mapping[str, Mapping[TopicPartition, int]] = {}
        self._read_again: Mapping[TopicPartition, int] = {}

    def start_from(self, floors: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Skip records that tables already have: after a restart the source is read from the smallest position.

        floors: table to partition to the offset below which the table has all its records.
        """
        self._floors = floors

    def read_again(self, up_to: Mapping[TopicPartition, int]) -> None:
        """Skip records below these offsets: they are read again only for tables that this writer doesn't write."""
        self._read_again = dict(up_to)

    def stage(
        self,
        raw: RawBatch,
        batch: DecodedBatch,
        start: int = 0,
        *,
        fail_waiting: bool = False,
        waiting: Collection[AwaitedRow] = (),
    ) -> StagedBatch:
        """Prepare the records from offset `start` on to be written.

        Looking up unavailable values may take long. A batch without them is fast. The prepared part ends before the
        first failure that isn't tolerated, or before a record of a moved row whose old key was not deleted yet.

        fail_waiting: such records fail instead, up to the first record that another partition waits for
        waiting: the rows that partitions wait for

        Raises TableFailed if a table refuses decoded rows, or can't be read. Then nothing was staged.
        """
        start = max(start, self._read_again.get(TopicPartition(raw.topic, raw.partition), 0))
        new = [self._new_rows(raw, rows, start) for rows in batch.tables if self._scope.includes(rows.target.name)]
        undecided: list[DecodeFailure] = []
        if self._truncate_filter is not None:
            for place, rows in enumerate(new):
                new[place], failed = self._truncate_filter.drop(raw, rows)
                undecided += failed
        fail_up_to = _first_awaited_offset(new, waiting, raw.next_offset) if fail_waiting else None
        parts = [self._filled(raw, rows, fail_up_to) for rows in new]
        awaited = min((p.awaited for p in parts if p.awaited is not None), key=lambda w: w.offset, default=None)
        waits_at = None if awaited is None else awaited.offset
        failures = [
            f for f in batch.failures if self._scope.takes_failure(f, raw) and not self._is_repeated_truncate(f, raw)
        ]
        failures += [failure for part in parts for failure in part.failures]
        failures += undecided
        due = sorted(
            (f for f in failures if f.offset >= start and (waits_at is None or f.offset < waits_at)),
            key=lambda failure: failure.row,
        )
        partition = TopicPartition(raw.topic, raw.partition)
        fatal = self._policy.first_fatal(due, lambda failure: self._dead_letters.contains(raw, failure), partition)
        stop = waits_at if fatal is None else fatal.offset
        taken = [rows for part in parts if len((rows := slice_by_offset(part.rows, 0, stop)).rows)]
        routed = [(rows, self._routed(raw, rows)) for rows in taken]
        return StagedBatch(
            raw=raw,
            parts=routed,
            key_changes={
                part.rows.target.name: changes for part in parts if (changes := self._key_changes(part, stop))
            },
            dead_letters=[f for f in due if stop is None or f.offset < stop],
            opens_buckets=any(self._sink_of(rows).writer.opens_buckets(parts) for rows, parts in routed),
            next_offset=raw.next_offset if stop is None else stop,
            refused=None if fatal is None else self._policy.refusal(fatal, raw),
            refused_by=None if fatal is None else self._table_of(fatal, raw, parts),
            awaited=awaited if fatal is None else None,
        )

    def write(self, staged: StagedBatch, waiting: Mapping[TopicPartition, AwaitedRow]) -> WriteResult:
        """Write a staged batch. This is fast if it opens no bucket. Tolerated failures become dead letters.

        waiting: the rows that partitions wait for.

        The result has the errors of tables. The rows written to such a table since its last commit must be dropped.
        """
        failed = dict[str, Exception]()
        for rows, parts in staged.parts:
            try:
                self._written_from(rows.target.name, staged.raw.topic)
                self._sink_of(rows).writer.add(parts)
                if self._truncate_filter is not None:
                    self._truncate_filter.mark_written(staged.raw, rows)
            except Exception as error:
                failed[rows.target.name] = error
        new_letters = self._dead_letters.add(staged.raw, staged.dead_letters)
        self._policy.count(new_letters, TopicPartition(staged.raw.topic, staged.raw.partition))
        changed = {table: changes for table, changes in staged.key_changes.items() if table not in failed}
        left = {(table, id_) for table, changes in changed.items() for id_ in self._move(table, changes)}
        return WriteResult(
            next_offset=staged.next_offset,
            rows=sum(len(rows.rows) for rows, _ in staged.parts if rows.target.name not in failed),
            dead_letters=len(staged.dead_letters),
            refused=staged.refused,
            refused_by=staged.refused_by,
            awaited=staged.awaited,
            unblocked=[p for p, awaited in waiting.items() if (awaited.table, awaited.change.id) in left],
            is_memory_short=self._dead_letters.should_flush
            or any(
                self._sink_of(rows).writer.is_memory_short for rows, _ in staged.parts if rows.target.name not in failed
            ),
            failed=failed,
            tables=[
                (rows.target.name, len(rows.rows), newest_time_ms(staged.raw, rows.offsets, epoch_ms()))
                for rows, _ in staged.parts
                if rows.target.name not in failed
            ],
            dead_letter_codes=[failure.code for failure in new_letters],
        )

    def reads_files(self, batch: DecodedBatch) -> bool:
        """Return whether staging and writing the batch may read files, even if no bucket is opened."""
        return any(self._sink_of(rows).writer.reads_files for rows in batch.tables if rows.target.name in self._sinks)

    def takes_failure(self, failure: DecodeFailure, raw: RawBatch) -> bool:
        """Return whether the record belongs to a table that this writer writes."""
        return self._scope.takes_failure(failure, raw)

    def make_room(self) -> None:
        """Write dead letters, and rows until all tables fit into memory. This may take long."""
        if self._dead_letters.should_flush:
            self._dead_letters.flush()
        for sink in list(self._sinks.values()):
            if sink.writer.is_memory_short:
                sink.writer.make_room()

    def _table_of(self, fatal: DecodeFailure, raw: RawBatch, parts: Sequence[_ResolvedRows]) -> str | None:
        lacking = (part.rows.target.name for part in parts if fatal in part.failures)
        return next(lacking, None) or self._scope.owner(fatal, raw)

    def _sink_of(self, rows: TableRows) -> TableSink:
        return self._sinks[rows.target.name]

    def _new_rows(self, raw: RawBatch, rows: TableRows, start: int) -> TableRows:
        """Return the rows that the table doesn't have yet."""
        floor = self._floors.get(rows.target.name, {}).get(TopicPartition(raw.topic, raw.partition), 0)
        return slice_by_offset(rows, max(floor, start), None)

    def _is_repeated_truncate(self, failure: DecodeFailure, raw: RawBatch) -> bool:
        """Return whether the failure is a truncate that is read again, while the table has records after it."""
        if failure.kind is not FailureKind.TRUNCATE or failure.target is None:
            return False
        floors = self._floors.get(failure.target.name, {})
        return failure.offset < floors.get(TopicPartition(raw.topic, raw.partition), 0)

    def _filled(self, raw: RawBatch, rows: TableRows, fail_up_to: int | None) -> _ResolvedRows:
        """Fill in unavailable values. Records whose values were not found are left out.

        fail_up_to: up to this offset, records without their values fail instead of waiting.
        """
        moved = self._moved.of(rows.target.name)
        read_again = rows.offsets < moved.read_again.get(TopicPartition(raw.topic, raw.partition), 0)
        unavailable = rows.unavailable
        if unavailable is None:
            return _ResolvedRows(rows, rows, FilledRows.of(rows), read_again)
        with failures_of(rows.target.name):
            filled = fill_unavailable(rows, unavailable, self._sink_of(rows), moved, read_again)
        whole = replace(rows, rows=filled.rows, unavailable=None)
        if not filled.lost.any():
            return _ResolvedRows(rows, whole, filled, read_again)
        waiting = {int(rows.offsets[row]): change for row, change in filled.waiting.items()}
        waits_at = min((offset for offset in waiting if fail_up_to is None or offset > fail_up_to), default=None)
        awaited = None if waits_at is None else AwaitedRow(waits_at, rows.target.name, waiting[waits_at])
        reasons = {int(rows.offsets[row]): reason for row, reason in filled.reasons.items()}
        failures = [
            DecodeFailure(int(np.searchsorted(raw.offsets, offset)), offset, FailureKind.UNKNOWN_VALUE, reason)
            for offset, reason in reasons.items()
        ]
        return _ResolvedRows(rows, drop_records(whole, filled.lost), filled, read_again, failures, awaited)

    def _key_changes(self, part: _ResolvedRows, stop: int | None) -> list[KeyChange | MovedRow]:
        """Return the halves of key changes below the offset `stop`.

        A row whose new key is not in this part of the batch is looked up.
        """
        batch = slice_by_offset(part.came, 0, stop)
        found = list(key_change_halves(batch))
        if not found:
            return []
        moved = self._moved.of(batch.target.name)
        pairs = moved.pairs.subset({change.id for _, change, _ in found})
        for row, change, is_departure in found:
            if is_departure:
                pairs.add_departure(change, row)
            else:
                pairs.match_new_half(change)
        staying = sorted(kept for kept in pairs if isinstance(kept, int))  # the others have both halves here
        left: dict[int, MovedRow] = {}
        if staying:
            sink, at = self._sink_of(batch), np.array(staying, np.int64)
            with failures_of(batch.target.name):
                leaving = rows_leaving_key(part.came, part.filled, at, sink, moved, part.read_again)
            left = dict(zip(staying, leaving, strict=True))
        return [
            left.get(row) or MovedRow(change, None, moved.now_ms) if is_departure else change
            for row, change, is_departure in found
        ]

    def _move(self, table: str, changes: Sequence[KeyChange | MovedRow]) -> Iterator[bytes]:
        """Add the key changes to the table's moved rows. Yield the ids of rows deleted under their old key."""
        moved = self._moved.of(table)
        for change in changes:
            if isinstance(change, MovedRow):
                moved.add_departure(change)
                yield change.change.id
            else:
                moved.add_arrival(change)

    def _routed(self, raw: RawBatch, part: TableRows) -> RoutedRows:
        with failures_of(part.target.name):
            try:
                return self._sink_of(part).writer.route(part.rows)
            except BadInput as error:
                offsets = f"offsets {part.offsets[0]} to {part.offsets[-1]}"
                raise BadInput(f"topic {raw.topic}, partition {raw.partition}, {offsets}: {error}") from error


def _first_awaited_offset(batch: Sequence[TableRows], waiting: Collection[AwaitedRow], end: int) -> int:
    """Return the offset of the first record that deletes an awaited row under its old key; `end` if no such record
    exists.

    The partition that waits for the row is written next, and may deliver rows that later records of this batch wait
    for. Before that offset, all waiting records can fail at once: no row arrives for them in between.
    """
    awaited = {(one.table, one.change.id) for one in waiting}
    offsets = [
        int(rows.offsets[row])
        for rows in batch
        for row, change, is_departure in (key_change_halves(rows) if awaited else ())
        if is_departure and (rows.target.name, change.id) in awaited
    ]
    return min(offsets, default=end)


@dataclass(frozen=True, slots=True, eq=False)
class _ResolvedRows:
    """A table's decoded rows, and the rows that can be written.

    came: the decoded rows.
    rows: the rows that can be written.
    filled: the decoded rows with their looked-up values.
    read_again: for each decoded row, whether the table had it before.
    failures: records that fail because their values were not found.
    awaited: the row that the first waiting record needs.
    """

    came: TableRows
    rows: TableRows
    filled: FilledRows
    read_again: NDArray[np.bool_]
    failures: Sequence[DecodeFailure] = ()
    awaited: AwaitedRow | None = None
