"""Decides which failures a pipeline tolerates, and writes the message for the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused
from tidelake.ingest.formats.base import DecodeFailure, FailureKind
from tidelake.ingest.raw_batch import RawBatch

_REMEDIES: Final = {
    FailureKind.BAD_RECORD: (
        "Fix the source, or set `errors.tolerance` to continue and keep such records as dead letters"
    ),
    FailureKind.UNKNOWN_VALUE: (
        "Set `errors.tolerance` to continue and keep such records as dead letters. Then make the source send the "
        "value: write the column again (`UPDATE … SET doc = doc || ''`)"
    ),
    FailureKind.UNKNOWN_COLUMN: "Then start again: reading continues with this record",
    FailureKind.NARROW_COLUMN: "Then start again: reading continues with this record",
    FailureKind.SCHEMA_CHANGE: (
        "Change the table in the same way and start again, or include the change in `schema_evolution`"
    ),
    FailureKind.WIDER_KEY: "Then start again: reading continues with this record",
    FailureKind.TRUNCATE: "Decide whether to keep the rows; `truncates: skip` in `format_options` skips all truncates",
}


def remedy_of(kind: FailureKind) -> str:
    return _REMEDIES[kind]


class ErrorPolicy:
    """Decides whether a record that can't be decoded becomes a dead letter or stops the pipeline.

    tolerance: number of bad records that one run may set aside, as in `errors.tolerance`
    skip: records that an operator decided to skip, whatever their error is. Each becomes a dead letter
    before: the policy of the same run before its configuration changed; its records count, and it has the ones to skip

    A record that an earlier run has set aside, and that is read again because no position has passed it, is not counted
    again. So each start gets further than the one before.

    Unknown columns, columns with a too narrow type, and truncates always stop the pipeline: setting such records aside
    would lose good rows.
    """

    def __init__(
        self,
        tolerance: Literal["none", "all"] | int,
        skip: Collection[tuple[TopicPartition, int]] = (),
        before: ErrorPolicy | None = None,
    ) -> None:
        self._skip: frozenset[tuple[TopicPartition, int]] = frozenset(skip) if before is None else before._skip
        # those where no record has failed yet
        self.unused_skips: set[tuple[TopicPartition, int]] = set(skip) if before is None else before.unused_skips
        self._allowed = {"none": 0, "all": math.inf}[tolerance] if isinstance(tolerance, str) else tolerance
        self._set_aside: int = 0 if before is None else before._set_aside  # counted records of this run

    def first_fatal(
        self,
        failures: Sequence[DecodeFailure],
        was_tolerated: Callable[[DecodeFailure], bool],
        partition: TopicPartition | None = None,
    ) -> DecodeFailure | None:
        """Return the first failure, in order, that is not tolerated.

        Counts nothing, as a batch may be staged several times before it is written: see `count`.

        was_tolerated: whether an earlier run has set the record aside durably.
        partition: the partition of the records.
        """
        left = self._allowed - self._set_aside
        counted: int | None = None  # offset of the last record: one that several tables can't take counts once
        for failure in failures:
            if partition is not None and (partition, failure.offset) in self._skip:
                self.unused_skips.discard((partition, failure.offset))
                continue
            if not failure.kind.is_tolerable:
                return failure
            if was_tolerated(failure):
                continue
            if failure.offset == counted:
                continue
            if left < 1:
                return failure
            left, counted = left - 1, failure.offset
        return None

    def count(self, set_aside: Sequence[DecodeFailure], partition: TopicPartition) -> None:
        """Count records of this partition that became dead letters, and that no earlier run has set aside."""
        self._set_aside += len({f.offset for f in set_aside if (partition, f.offset) not in self._skip})

    def tolerates(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a bad record at this offset may become a dead letter, if their number is not exceeded."""
        return self._allowed > 0 or (partition, offset) in self._skip

    def refusal(self, failure: DecodeFailure, batch: RawBatch) -> RecordRefused:
        """Return the error for the record, with place, reason and remedy."""
        remedy = _REMEDIES[failure.kind]
        if failure.kind.is_tolerable and self._allowed:
            count = "1 record" if self._allowed == 1 else f"{self._allowed} records"
            remedy = (
                f"This run has kept {count} as dead letters before, as many as `errors.tolerance` allows. Look at "
                "them, then fix the source or raise the number. The next start continues here, and counts from 0 "
                "again"
            )
        place = f"{batch.topic}:{batch.partition}:{failure.offset}"
        remedy += f"; `--skip-record {place}` keeps only this record as a dead letter"
        return RecordRefused(f"{failure.describe(batch)}. {remedy}", failure)
