"""Puts one decoded batch into the tables, and its failures where they belong."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from checkpoint.offsets import TopicPartition
from ingest.dead_letters import DeadLetters
from ingest.error_policy import ErrorPolicy, RecordRefused
from ingest.formats.base import DecodedBatch, Failure, FailureKind, KeyChange, TableRows
from ingest.moved_rows import LeftRow, MovedRowsByTable
from ingest.raw_batch import RawBatch
from ingest.table_rows import between, without
from ingest.table_writer import TableSink
from ingest.unchanged_values import Filled, Wanted, fill_unchanged, halves, left_rows
from storage.errors import BadInput
from storage.write.table_writer import RoutedRows


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """A batch as far as it can be written: whole, or up to a record that can't be.

    opens_buckets: whether a table must be looked into before it takes its rows. key_changes: by table, halves of key
    changes in their order, each with what the row held where it leaves its key. next_offset, refused, wanted: as of
    Written, once this is written.
    """

    raw: RawBatch
    parts: Sequence[tuple[TableRows, RoutedRows]]
    key_changes: Mapping[str, Sequence[KeyChange | LeftRow]]
    letters: Sequence[Failure]
    opens_buckets: bool
    next_offset: int
    refused: RecordRefused | None
    wanted: Wanted | None


@dataclass(frozen=True, slots=True)
class Written:
    """next_offset: the tables have all of the partition below it. rows: how many they got. letters: how many records
    were set aside.

    refused: why nothing from `next_offset` on was taken. wanted: the record there needs what a row held that was not
    seen leaving its key yet. found: who may find now what they wait for. is_memory_short: `make_room` before the next
    write.
    """

    next_offset: int
    rows: int
    letters: int
    refused: RecordRefused | None
    wanted: Wanted | None
    found: Sequence[TopicPartition]
    is_memory_short: bool


class BatchWriter:
    """Every method blocks; call it from one thread at a time.

    sinks: may grow, from any thread. floors: table to partition to the offset below which the table has everything:
    after a restart the source is read from the smallest position of all tables. moved: rows on their way to another
    key.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        floors: Mapping[str, Mapping[TopicPartition, int]],
        dead_letters: DeadLetters,
        policy: ErrorPolicy,
        moved: MovedRowsByTable,
    ) -> None:
        self._sinks = sinks
        self._floors = floors
        self._dead_letters = dead_letters
        self._policy = policy
        self._moved = moved

    def stage(
        self,
        raw: RawBatch,
        batch: DecodedBatch,
        start: int = 0,
        *,
        give_up: bool = False,
        waiting: Collection[Wanted] = (),
    ) -> Staged:
        """Get the records from offset `start` on ready to be written, as far as it goes. Looks up left-out values,
        which may take long; quick for a batch without any.

        It goes up to the first failure that isn't tolerated, or to a record that moved a row which was not seen leaving
        its key yet; give_up: past such records, as long as this batch can't help them. waiting: what partitions wait
        for. Raises BadInput when a table refuses rows that could be decoded; then nothing was taken.
        """
        new = [self._new_rows(raw, rows, start) for rows in batch.tables]
        given_up = _first_to_help(new, waiting, raw.next_offset) if give_up else None
        parts = [self._filled(raw, rows, given_up) for rows in new]
        wanted = min((p.wanted for p in parts if p.wanted is not None), key=lambda w: w.offset, default=None)
        waits_at = None if wanted is None else wanted.offset
        failures = [*batch.failures, *(failure for part in parts for failure in part.failures)]
        due = sorted(
            (f for f in failures if f.offset >= start and (waits_at is None or f.offset < waits_at)),
            key=lambda failure: failure.row,
        )
        fatal = self._policy.first_fatal(due, lambda failure: self._dead_letters.holds(raw, failure))
        stop = waits_at if fatal is None else fatal.offset
        taken = [rows for part in parts if len((rows := between(part.rows, 0, stop)).rows)]
        routed = [(rows, self._routed(raw, rows)) for rows in taken]
        return Staged(
            raw=raw,
            parts=routed,
            key_changes={
                part.rows.target.name: changes for part in parts if (changes := self._key_changes(part, stop))
            },
            letters=[f for f in due if stop is None or f.offset < stop],
            opens_buckets=any(self._sink_of(rows).opens_buckets(parts) for rows, parts in routed),
            next_offset=raw.next_offset if stop is None else stop,
            refused=None if fatal is None else self._policy.refusal(fatal, raw),
            wanted=wanted if fatal is None else None,
        )

    def write(self, staged: Staged, waiting: Mapping[TopicPartition, Wanted]) -> Written:
        """Quick where no bucket is opened. Failures that are tolerated become dead letters. waiting: what partitions
        wait for.

        After an error all that was written since the last commit must be dropped.
        """
        for rows, parts in staged.parts:
            self._sink_of(rows).write(parts)
        self._dead_letters.add(staged.raw, staged.letters)
        left = {(table, id_) for table, changes in staged.key_changes.items() for id_ in self._move(table, changes)}
        return Written(
            next_offset=staged.next_offset,
            rows=sum(len(rows.rows) for rows, _ in staged.parts),
            letters=len(staged.letters),
            refused=staged.refused,
            wanted=staged.wanted,
            found=[p for p, wanted in waiting.items() if (wanted.table, wanted.change.id) in left],
            is_memory_short=self._dead_letters.are_many
            or any(self._sink_of(rows).is_memory_short for rows, _ in staged.parts),
        )

    def make_room(self) -> None:
        """Have dead letters, and rows until those of all tables fit, leave memory. May take long."""
        if self._dead_letters.are_many:
            self._dead_letters.flush()
        for sink in list(self._sinks.values()):
            if sink.is_memory_short:
                sink.make_room()

    def _sink_of(self, rows: TableRows) -> TableSink:
        return self._sinks[rows.target.name]

    def _new_rows(self, raw: RawBatch, rows: TableRows, start: int) -> TableRows:
        """What the table doesn't have yet."""
        floor = self._floors[rows.target.name].get(TopicPartition(raw.topic, raw.partition), 0)
        return between(rows, max(floor, start), None)

    def _filled(self, raw: RawBatch, rows: TableRows, given_up: int | None) -> _Filled:
        """With left-out cells filled in; records whose cells could not be are left out. given_up: up to this offset
        no record waits for anything any more.
        """
        moved = self._moved.of(rows.target.name)
        read_again = rows.offsets < moved.read_again.get(TopicPartition(raw.topic, raw.partition), 0)
        unchanged = rows.unchanged
        if unchanged is None:
            return _Filled(rows, rows, Filled.of(rows), read_again)
        filled = fill_unchanged(rows, unchanged, self._sink_of(rows), moved, read_again)
        whole = replace(rows, rows=filled.rows, unchanged=None)
        if not filled.lost.any():
            return _Filled(rows, whole, filled, read_again)
        waiting = {int(rows.offsets[row]): change for row, change in filled.waiting.items()}
        waits_at = min((offset for offset in waiting if given_up is None or offset > given_up), default=None)
        wanted = None if waits_at is None else Wanted(waits_at, rows.target.name, waiting[waits_at])
        reasons = {int(rows.offsets[row]): reason for row, reason in filled.reasons.items()}
        failures = [
            Failure(int(np.searchsorted(raw.offsets, offset)), offset, FailureKind.BAD_RECORD, reason)
            for offset, reason in reasons.items()
        ]
        return _Filled(rows, without(whole, filled.lost), filled, read_again, failures, wanted)

    def _key_changes(self, part: _Filled, stop: int | None) -> list[KeyChange | LeftRow]:
        """The halves of key changes below the offset `stop`. Looks up rows that leave and don't come there, too."""
        batch = between(part.came, 0, stop)
        found = list(halves(batch))
        if not found:
            return []
        moved = self._moved.of(batch.target.name)
        pairs = moved.pairs.some({change.id for _, change, _ in found})
        for row, change, leaves in found:
            if leaves:
                pairs.add_left(change, row)
            else:
                pairs.take(change)
        staying = sorted(kept for kept in pairs if isinstance(kept, int))  # the others' other half is in the batch
        left: dict[int, LeftRow] = {}
        if staying:
            sink, at = self._sink_of(batch), np.array(staying, np.int64)
            left = dict(zip(staying, left_rows(part.came, part.filled, at, sink, moved, part.read_again), strict=True))
        return [
            left.get(row) or LeftRow(change, None, moved.now_ms) if leaves else change for row, change, leaves in found
        ]

    def _move(self, table: str, changes: Sequence[KeyChange | LeftRow]) -> Iterator[bytes]:
        """Ids of rows that left."""
        moved = self._moved.of(table)
        for change in changes:
            if isinstance(change, LeftRow):
                moved.left(change)
                yield change.change.id
            else:
                moved.came(change)

    def _routed(self, raw: RawBatch, part: TableRows) -> RoutedRows:
        try:
            return self._sink_of(part).route(part.rows)
        except BadInput as error:
            offsets = f"offsets {part.offsets[0]} to {part.offsets[-1]}"
            raise BadInput(f"topic {raw.topic}, partition {raw.partition}, {offsets}: {error}") from error


def _first_to_help(batch: Sequence[TableRows], waiting: Collection[Wanted], end: int) -> int:
    """The offset of the first record whose row leaves a key and is waited for; `end` when there is none.

    What waits for it is written next, and may bring what later records of this batch wait for. Up to it, one try gives
    up all that wait: they would find nothing between one try and the next.
    """
    wanted = {(one.table, one.change.id) for one in waiting}
    offsets = [
        int(rows.offsets[row])
        for rows in batch
        for row, change, leaves in (halves(rows) if wanted else ())
        if leaves and (rows.target.name, change.id) in wanted
    ]
    return min(offsets, default=end)


@dataclass(frozen=True, slots=True, eq=False)
class _Filled:
    """A table's rows as they came, and those that can be written.

    filled: the rows that came, with their cells. read_again: which of those the table has had before. failures: records
    without rows. wanted: by the first of them that may find its values later.
    """

    came: TableRows
    rows: TableRows
    filled: Filled
    read_again: NDArray[np.bool_]
    failures: Sequence[Failure] = ()
    wanted: Wanted | None = None
