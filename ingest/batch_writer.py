"""Puts one decoded batch into the tables, and its failures where they belong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from checkpoint.offsets import TopicPartition
from ingest.dead_letters import DeadLetters
from ingest.error_policy import ErrorPolicy, RecordRefused, refusal
from ingest.formats.base import DecodedBatch, Failure, FailureKind, TableRows
from ingest.raw_batch import RawBatch
from ingest.table_rows import between, without
from ingest.table_writer import TableSink
from ingest.unchanged_values import NO_OLD_ROW, fill_unchanged, moved_rows
from storage.errors import BadInput


@dataclass(frozen=True, slots=True)
class Written:
    """next_offset: the tables have all of the partition below it. rows: how many they got.

    refused: why nothing from `next_offset` on was taken. is_waiting: the record there needs a row that no table has
    yet. is_memory_short: `make_room` before the next write.
    """

    next_offset: int
    rows: int
    refused: RecordRefused | None = None
    is_waiting: bool = False
    is_memory_short: bool = False


class BatchWriter:
    """Every method blocks; call it from one thread at a time.

    floors: table to partition to the offset below which the table has everything: after a restart the source is read
    from the smallest position of all tables.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        floors: Mapping[str, Mapping[TopicPartition, int]],
        dead_letters: DeadLetters,
        policy: ErrorPolicy,
    ) -> None:
        self._sinks = sinks
        self._floors = floors
        self._dead_letters = dead_letters
        self._policy = policy

    def write(self, raw: RawBatch, batch: DecodedBatch, start: int = 0, *, give_up: bool = False) -> Written:
        """Write the records from offset `start` on, as far as it goes.

        Failures that are tolerated become dead letters; at the first that isn't, writing ends before its record. It
        ends as well before a record that moved a row whose old values no table has yet; give_up: not before the one
        at `start`. Raises BadInput when a table refuses rows that could be decoded: then some tables may have their
        part, and all that was written since the last commit must be dropped.
        """
        parts = [self._filled(raw, self._new_rows(raw, rows, start)) for rows in batch.tables]
        waits_at = min((at for part in parts for at in part.waits_at if not (give_up and at == start)), default=None)
        failures = [*batch.failures, *(failure for part in parts for failure in part.failures)]
        due = sorted(
            (f for f in failures if f.offset >= start and (waits_at is None or f.offset < waits_at)),
            key=lambda failure: failure.row,
        )
        fatal = self._policy.first_fatal(due)
        stop = waits_at if fatal is None else fatal.offset
        rows = sum(self._write(raw, between(part.rows, 0, stop)) for part in parts)
        self._dead_letters.add(raw, [f for f in due if stop is None or f.offset < stop])
        return Written(
            next_offset=raw.next_offset if stop is None else stop,
            rows=rows,
            refused=None if fatal is None else refusal(fatal, raw),
            is_waiting=fatal is None and stop is not None,
            is_memory_short=any(self._sinks[part.target.name].is_memory_short for part in batch.tables),
        )

    def make_room(self) -> None:
        """Have rows leave memory until all tables fit again. May take long."""
        for sink in self._sinks.values():
            if sink.is_memory_short:
                sink.make_room()

    def _new_rows(self, raw: RawBatch, rows: TableRows, start: int) -> TableRows:
        """What the table doesn't have yet."""
        floor = self._floors[rows.target.name].get(TopicPartition(raw.topic, raw.partition), 0)
        return between(rows, max(floor, start), None)

    def _filled(self, raw: RawBatch, rows: TableRows) -> _Filled:
        """With left-out cells filled in; records whose cells could not be are left out."""
        if rows.unchanged is None:
            return _Filled(rows)
        whole, lost = fill_unchanged(rows, rows.unchanged, self._sinks[rows.target.name])
        filled = replace(rows, rows=whole, unchanged=None)
        if not lost.any():
            return _Filled(filled)
        moved = moved_rows(rows, rows.unchanged)
        offsets = np.unique(rows.offsets[lost])
        records = zip(np.searchsorted(raw.offsets, offsets).tolist(), offsets.tolist(), strict=True)
        failures = [Failure(row, offset, FailureKind.BAD_RECORD, NO_OLD_ROW) for row, offset in records]
        return _Filled(without(filled, lost), failures, rows.offsets[lost & moved].tolist())

    def _write(self, raw: RawBatch, part: TableRows) -> int:
        try:
            if len(part.rows):
                self._sinks[part.target.name].write(part.rows)
        except BadInput as error:
            offsets = f"offsets {part.offsets[0]} to {part.offsets[-1]}"
            raise BadInput(f"topic {raw.topic}, partition {raw.partition}, {offsets}: {error}") from error
        return len(part.rows)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A table's rows. failures: records without rows. waits_at: those of them that may find their values later."""

    rows: TableRows
    failures: Sequence[Failure] = ()
    waits_at: Sequence[int] = ()
