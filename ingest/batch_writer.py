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
from ingest.unchanged_values import NO_OLD_ROW, fill_unchanged
from storage.errors import BadInput


@dataclass(frozen=True, slots=True)
class Written:
    """next_offset: the tables have all of the partition below it. rows: how many they got.

    refused: why nothing from `next_offset` on was taken; None when the whole batch was.
    """

    next_offset: int
    rows: int
    refused: RecordRefused | None = None


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

    def write(self, raw: RawBatch, batch: DecodedBatch) -> Written:
        """Failures that are tolerated become dead letters; at the first that isn't, the batch ends before its record.

        Raises BadInput when a table refuses rows that could be decoded: then some tables may have their part, and all
        that was written since the last commit must be dropped.
        """
        fatal = self._policy.first_fatal(batch.failures)
        tables = [self._new_rows(raw, rows, fatal) for rows in batch.tables]
        filled = [self._filled(raw, rows) for rows in tables]
        late = sorted((failure for _, failures in filled for failure in failures), key=lambda failure: failure.row)
        if late_fatal := self._policy.first_fatal(late):
            fatal = late_fatal  # before the other one: rows from there on were cut off already
        stop = None if fatal is None else fatal.offset
        rows = 0
        for part, _ in filled:
            rows += self._write(raw, between(part, 0, stop))
        self._dead_letters.add(raw, [f for f in (*batch.failures, *late) if stop is None or f.offset < stop])
        if fatal is None:
            return Written(raw.next_offset, rows)
        return Written(fatal.offset, rows, refusal(fatal, raw))

    def _new_rows(self, raw: RawBatch, rows: TableRows, fatal: Failure | None) -> TableRows:
        """What the table doesn't have yet, up to a record that stops the pipeline."""
        floor = self._floors[rows.target.name].get(TopicPartition(raw.topic, raw.partition), 0)
        return between(rows, floor, None if fatal is None else fatal.offset)

    def _filled(self, raw: RawBatch, rows: TableRows) -> tuple[TableRows, Sequence[Failure]]:
        """Rows with their left-out cells filled in; records whose cells could not be are failures instead."""
        if rows.unchanged is None:
            return rows, ()
        whole, lost = fill_unchanged(rows, rows.unchanged, self._sinks[rows.target.name])
        rows = replace(rows, rows=whole, unchanged=None)
        if not lost.any():
            return rows, ()
        offsets = np.unique(rows.offsets[lost])
        records = zip(np.searchsorted(raw.offsets, offsets).tolist(), offsets.tolist(), strict=True)
        failures = [Failure(row, offset, FailureKind.BAD_RECORD, NO_OLD_ROW) for row, offset in records]
        return without(rows, lost), failures

    def _write(self, raw: RawBatch, part: TableRows) -> int:
        try:
            if len(part.rows):
                self._sinks[part.target.name].write(part.rows)
        except BadInput as error:
            offsets = f"offsets {part.offsets[0]} to {part.offsets[-1]}"
            raise BadInput(f"topic {raw.topic}, partition {raw.partition}, {offsets}: {error}") from error
        return len(part.rows)
