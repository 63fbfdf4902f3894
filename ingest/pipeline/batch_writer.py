"""Writes the rows of a decoded batch to the tables, and handles its failures.

A batch is written in two steps. `stage` finds out how far it can be written, which may read tables, and leaves nothing
behind if it fails. `write` then puts the rows into the write buffers, which is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.errors import BadInput, RecordRefused
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, FailureKind, KeyChange, TableRows
from tidelake.ingest.formats.table_rows import drop_records, slice_by_offset
from tidelake.ingest.monitoring.partition_progress import record_times
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.quarantine.failures import TableScope
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.moved_rows import MovedRow, MovedRowsByTable
from tidelake.ingest.tables.row_versions import with_versions
from tidelake.ingest.tables.soft_deletes import with_soft_deletes
from tidelake.ingest.tables.table_errors import failures_of
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
from tidelake.storage.base.threads import map_to_end
from tidelake.storage.write.bucket_router import RoutedRows

WITHOUT_ROWS: Final = frozenset({FailureKind.SCHEMA_CHANGE, FailureKind.TRUNCATE})
"""Kinds of failures whose records change a table, but have no rows."""


@dataclass(slots=True, eq=False)
class StagedRows:
    """The rows of a batch for one table. Staging turns them from decoded rows to rows in buckets.

    decoded: the decoded rows that the table doesn't have yet.
    rows: those that can be written, with looked-up values.
    filled: all of `decoded` with looked-up values; None if no value was to be looked up.
    failures: the records whose values were not found.
    awaited: the row that the first waiting record needs.
    routed: `rows` by bucket; None without rows.
    key_changes: the halves of key changes in their order. The half that deletes the old key has the row's values.
    """

    decoded: TableRows
    rows: TableRows
    filled: FilledRows | None = None
    failures: Sequence[DecodeFailure] = ()
    awaited: AwaitedRow | None = None
    routed: RoutedRows | None = None
    key_changes: Sequence[KeyChange | MovedRow] = ()

    @property
    def table(self) -> str:
        return self.rows.target.name


@dataclass(frozen=True, slots=True, eq=False)
class StagedBatch:
    """A batch that is ready to be written: completely, or up to a record that can't be written.

    tables: the rows of each table.
    dead_letters: the records that become dead letters.
    opens_buckets: whether a table must read existing files before it accepts the rows.
    next_offset: once this is written, all records of the partition below it are in the tables.
    refused: the record at `next_offset` stops the pipeline; neither it nor any later record is staged.
    refused_by: the table of that record, if known.
    awaited: the record at `next_offset` needs a row that no record has deleted under its old key yet.
    """

    raw: RawBatch
    tables: Sequence[StagedRows]
    dead_letters: Sequence[DecodeFailure]
    opens_buckets: bool
    next_offset: int
    refused: RecordRefused | None
    refused_by: str | None
    awaited: AwaitedRow | None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of writing a staged batch.

    rows: number of rows written
    tables: (name, rows, times of their records) of each table with rows
    dead_letter_codes: error codes of the dead letters that no earlier run had written
    unblocked: partitions whose awaited row was in this batch
    needs_room: call `make_room` before the next write
    failed: the error of each table that raised one. Such a table has no row of the batch; the others have all
    """

    rows: int
    tables: Sequence[tuple[str, int, RecordTimes | None]]
    dead_letter_codes: Sequence[str]
    unblocked: Sequence[TopicPartition]
    needs_room: bool
    failed: Mapping[str, Exception] = field(default_factory=dict)


class BatchWriter:
    """Writes decoded batches. Every method blocks; call them from one thread at a time.

    sinks: the tables that exist, by name; it may grow, from any thread.
    moved: the moved rows of the tables.
    scope: the tables that it writes.
    written_from: called with (table, topic) of rows that are written.
    truncate_filter: drops rows that arrive after a truncate although the source changed them before it.
    withholds: returns whether records of a table must not be kept or shown, because it masks columns. The argument is
        None for a record of an unknown table.
    is_shared: returns whether a table has a source table in common with another one.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        dead_letters: DeadLetters,
        policy: ErrorPolicy,
        moved: MovedRowsByTable,
        scope: TableScope,
        written_from: Callable[[str, str], None],
        truncate_filter: TruncateFilter,
        *,
        withholds: Callable[[str | None], bool] = lambda _: False,
        is_shared: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._is_shared = is_shared
        self._withholds = withholds
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

    def unrestored(self, batches: Sequence[DecodedBatch]) -> list[str]:
        """Return the tables in these batches whose writers have not read their table's state."""
        tables = {rows.target.name for batch in batches for rows in batch.tables}
        return sorted(
            table
            for table in tables & self._sinks.keys()
            if self._scope.includes(table) and not self._sinks[table].writer.is_restored
        )

    def restore(self, table: str) -> None:
        """Read the state of a table. May run for several tables at once. An error is raised by its next row."""
        with suppress(Exception):
            self._sinks[table].writer.restore()

    def stage(
        self,
        raw: RawBatch,
        batch: DecodedBatch,
        start: int = 0,
        *,
        fail_waiting: bool = False,
        waiting: Collection[AwaitedRow] = (),
        handled: Collection[tuple[int, str | None]] = (),
    ) -> StagedBatch:
        """Prepare the records from offset `start` on to be written.

        Looking up unavailable values may take long. A batch without them is fast. The prepared part ends before the
        first failure that isn't tolerated, or before a record of a moved row whose old key was not deleted yet.

        fail_waiting: such records fail instead, up to the first record that another partition waits for
        waiting: the rows that partitions wait for
        handled: (offset, table) of truncates and DDL that were handled for the table

        Raises TableFailed if a table refuses decoded rows, or can't be read. Then nothing was staged.
        """
        partition = TopicPartition(raw.topic, raw.partition)
        start = max(start, self._read_again.get(partition, 0))
        failures = [
            f
            for f in batch.failures
            if self._scope.takes_failure(f, raw)
            and not self._is_repeated_truncate(f, raw)
            and not (f.kind in WITHOUT_ROWS and (f.offset, f.table_name) in handled)
        ]
        tables, undecided = self._new_rows(raw, batch, start)
        fail_up_to = _first_awaited_offset(tables, waiting, raw.next_offset) if fail_waiting else None
        to_fill = [part for part in tables if part.decoded.unavailable is not None]
        map_to_end(lambda part: self._fill(part, raw, fail_up_to), to_fill)
        failures += [failure for part in to_fill for failure in part.failures]
        awaited = min((p.awaited for p in tables if p.awaited is not None), key=lambda w: w.offset, default=None)
        stop = None if awaited is None else awaited.offset
        due = sorted(
            (f for f in (*failures, *undecided) if f.offset >= start and (stop is None or f.offset < stop)),
            key=lambda failure: failure.row,
        )
        due = [self._told_apart(f, self._scope.owner(f, raw)) for f in due]
        fatal = self._policy.first_fatal(due, lambda failure: self._dead_letters.contains(raw, failure), partition)
        if fatal is not None:
            awaited, stop = None, fatal.offset
            due = [failure for failure in due if failure.offset < stop]
        opens_buckets = [self._route(part, raw, stop) for part in tables]
        return StagedBatch(
            raw=raw,
            tables=tables,
            dead_letters=due,
            opens_buckets=any(opens_buckets),
            next_offset=raw.next_offset if stop is None else stop,
            refused=None if fatal is None else self._policy.refusal(fatal, raw),
            refused_by=None if fatal is None else self._scope.owner(fatal, raw),
            awaited=awaited,
        )

    def write(self, staged: StagedBatch, waiting: Mapping[TopicPartition, AwaitedRow]) -> WriteResult:
        """Write a staged batch. This is fast if it opens no bucket. Tolerated failures become dead letters.

        waiting: the rows that partitions wait for.

        The result has the errors of tables. The rows written to such a table since its last commit must be dropped.
        """
        raw, failed, needs_room = staged.raw, dict[str, Exception](), False
        tables = list[tuple[str, int, RecordTimes | None]]()
        parts = [(part, part.routed) for part in staged.tables if part.routed is not None]
        errors = (map_to_end if staged.opens_buckets else map)(lambda of: self._added(*of), parts)
        for (part, _), error in zip(parts, errors, strict=True):
            if error is not None:
                failed[part.table] = error
                continue
            self._written_from(part.table, raw.topic)
            self._truncate_filter.mark_written(raw, part.rows)
            needs_room = needs_room or self._sinks[part.table].writer.needs_room
            tables.append((part.table, len(part.rows.rows), record_times(raw, part.rows.offsets, epoch_ms())))
        new_letters = self._dead_letters.add(raw, staged.dead_letters)
        self._policy.count(new_letters, TopicPartition(raw.topic, raw.partition))
        left = {
            (part.table, id_)
            for part in staged.tables
            if part.key_changes and part.table not in failed
            for id_ in self._move(part.table, part.key_changes)
        }
        return WriteResult(
            rows=sum(rows for _, rows, _ in tables),
            tables=tables,
            dead_letter_codes=[failure.code for failure in new_letters],
            unblocked=[p for p, awaited in waiting.items() if (awaited.table, awaited.change.id) in left],
            needs_room=needs_room or self._dead_letters.should_flush,
            failed=failed,
        )

    def _added(self, part: StagedRows, routed: RoutedRows) -> Exception | None:
        """Hand the rows to the table's writer. Returns its error. If buckets must be opened, tables run in parallel."""
        try:
            self._sinks[part.table].writer.add(routed)
        except Exception as error:
            return error
        return None

    def reads_files(self, batch: DecodedBatch) -> bool:
        """Return whether staging and writing the batch may read files, even if no bucket is opened."""
        tables = [rows.target.name for rows in batch.tables]
        return any(self._sinks[table].writer.reads_files for table in tables if table in self._sinks)

    def takes_failure(self, failure: DecodeFailure, raw: RawBatch) -> bool:
        """Return whether the record belongs to a table that this writer writes."""
        return self._scope.takes_failure(failure, raw)

    def tolerates(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a bad record at this offset may become a dead letter."""
        return self._policy.tolerates(partition, offset)

    def make_room(self) -> None:
        """Write dead letters, and rows until all tables fit into memory. This may take long."""
        if self._dead_letters.should_flush:
            self._dead_letters.flush()
        for sink in list(self._sinks.values()):
            if sink.writer.needs_room:
                sink.writer.make_room()

    def _told_apart(self, failure: DecodeFailure, table: str | None) -> DecodeFailure:
        """Return the failure with what its dead letter may show, and with its table if other tables get the record."""
        if table is not None and self._is_shared(table):
            failure = replace(failure, table=table, is_shared=True)
        return failure.withheld() if self._withholds(table) else failure

    def _new_rows(self, raw: RawBatch, batch: DecodedBatch, start: int) -> tuple[list[StagedRows], list[DecodeFailure]]:
        """Return the rows that the tables don't have yet, and the records that may be older than a truncate."""
        partition, tables, undecided = TopicPartition(raw.topic, raw.partition), list[StagedRows](), []
        for decoded in batch.tables:
            table = decoded.target.name
            if self._scope.includes(table):
                floor = self._floors.get(table, {}).get(partition, 0)
                rows, failures = self._truncate_filter.drop(raw, slice_by_offset(decoded, max(floor, start), None))
                tables.append(StagedRows(rows, rows))
                undecided += failures
        return tables, undecided

    def _is_repeated_truncate(self, failure: DecodeFailure, raw: RawBatch) -> bool:
        """Return whether the failure is a truncate that is read again, while the table has records after it."""
        if failure.kind is not FailureKind.TRUNCATE or failure.target is None:
            return False
        floors = self._floors.get(failure.target.name, {})
        return failure.offset < floors.get(TopicPartition(raw.topic, raw.partition), 0)

    def _fill(self, part: StagedRows, raw: RawBatch, fail_up_to: int | None) -> None:
        """Fill in unavailable values. Records whose values were not found are left out.

        fail_up_to: up to this offset, records without their values fail instead of waiting.
        """
        decoded, moved = part.decoded, self._moved.of(part.table)
        assert decoded.unavailable is not None
        with failures_of(part.table):
            read_again = moved.are_read_again(raw, decoded.offsets)
            filled = fill_unavailable(decoded, decoded.unavailable, self._sinks[part.table], moved, read_again)
        part.filled = filled
        part.rows = replace(decoded, rows=filled.rows, unavailable=None)
        if not filled.lost.any():
            return
        part.rows = drop_records(part.rows, filled.lost)
        offset_of = decoded.offsets.tolist()
        waiting = {offset_of[row]: change for row, change in filled.waiting.items()}
        waits_at = min((offset for offset in waiting if fail_up_to is None or offset > fail_up_to), default=None)
        part.awaited = None if waits_at is None else AwaitedRow(waits_at, part.table, waiting[waits_at])
        part.failures = [
            DecodeFailure(
                int(np.searchsorted(raw.offsets, offset)), offset, FailureKind.UNKNOWN_VALUE, reason, table=part.table
            )
            for offset, reason in {offset_of[row]: reason for row, reason in filled.reasons.items()}.items()
        ]

    def _route(self, part: StagedRows, raw: RawBatch, stop: int | None) -> bool:
        """Divide the rows below offset `stop` among buckets. Returns whether a bucket must be opened for them."""
        part.rows = slice_by_offset(part.rows, 0, stop)
        if part.decoded.key_changes is not None:
            part.key_changes = self._key_changes(part, raw, stop)
        if part.rows.target.deleted_at_column:
            with failures_of(part.table):
                part.rows = with_soft_deletes(part.rows, self._sinks[part.table])
        if part.rows.target.versions is not None:
            with failures_of(part.table):
                part.rows = with_versions(part.rows, self._sinks[part.table])
        if not len(part.rows.rows):
            return False
        with failures_of(part.table):
            writer = self._sinks[part.table].writer
            try:
                part.routed = writer.route(part.rows.rows)
            except BadInput as error:
                offsets = f"offsets {part.rows.offsets[0]} to {part.rows.offsets[-1]}"
                raise BadInput(f"topic {raw.topic}, partition {raw.partition}, {offsets}: {error}") from error
        return writer.opens_buckets(part.routed)

    def _key_changes(self, part: StagedRows, raw: RawBatch, stop: int | None) -> list[KeyChange | MovedRow]:
        """Return the halves of key changes below the offset `stop`.

        A row whose new key is not in this part of the batch is looked up.
        """
        found = list(key_change_halves(slice_by_offset(part.decoded, 0, stop)))
        if not found:
            return []
        moved = self._moved.of(part.table)
        pairs = moved.pairs.subset({change.id for _, change, _ in found})
        for row, change, is_departure in found:
            if is_departure:
                pairs.add_departure(change, row)
            else:
                pairs.match_new_half(change)
        staying = sorted(kept for kept in pairs if isinstance(kept, int))  # the others have both halves here
        left: dict[int, MovedRow] = {}
        if staying:
            with failures_of(part.table):
                leaving = rows_leaving_key(
                    part.decoded,
                    part.filled or FilledRows.of(part.decoded),
                    np.array(staying, np.int64),
                    self._sinks[part.table],
                    moved,
                    moved.are_read_again(raw, part.decoded.offsets),
                )
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


def _first_awaited_offset(tables: Sequence[StagedRows], waiting: Collection[AwaitedRow], end: int) -> int:
    """Return the offset of the first record that deletes an awaited row under its old key; `end` if no such record
    exists.

    The partition that waits for the row is written next, and may deliver rows that later records of this batch wait
    for. Before that offset, all waiting records can fail at once: no row arrives for them in between.
    """
    awaited = {(one.table, one.change.id) for one in waiting}
    offsets = [
        int(part.decoded.offsets[row])
        for part in tables
        for row, change, is_departure in (key_change_halves(part.decoded) if awaited else ())
        if is_departure and (part.table, change.id) in awaited
    ]
    return min(offsets, default=end)
