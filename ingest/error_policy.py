"""Which failures a pipeline lives with, and what it says when it doesn't."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from ingest.formats.base import Failure, FailureKind
from ingest.raw_batch import RawBatch
from storage.errors import BadInput

_REMEDIES: Final = {
    FailureKind.BAD_RECORD: "Mend the source, or set `errors.tolerance` to keep such records aside and go on",
    FailureKind.UNKNOWN_COLUMN: "Then start again: reading goes on with this record",
    FailureKind.NARROW_COLUMN: "Then start again: reading goes on with this record",
    FailureKind.TRUNCATE: "Decide what becomes of the rows; `truncates: skip` in `format_options` passes it over",
}


class RecordRefused(BadInput):
    """A record stops the pipeline. What came before it is committed; it is read again at the next start."""


class ErrorPolicy:
    """tolerance: how many bad records may be set aside in the life of this process, as `errors.tolerance` says it.

    Unknown columns, columns of a type that is too narrow, and truncates always stop the pipeline: setting them aside
    would lose good rows.
    """

    def __init__(self, tolerance: Literal["none", "all"] | int) -> None:
        self._left = {"none": 0, "all": math.inf}[tolerance] if isinstance(tolerance, str) else tolerance

    def first_fatal(self, failures: Sequence[Failure]) -> Failure | None:
        """The first of these, in order, that is too much; those before it are counted as tolerated."""
        for failure in failures:
            if failure.kind is not FailureKind.BAD_RECORD or self._left < 1:
                return failure
            self._left -= 1
        return None


def refusal(failure: Failure, batch: RawBatch) -> RecordRefused:
    """Says which record, why, and what to do."""
    return RecordRefused(f"{failure.describe(batch)}. {_REMEDIES[failure.kind]}")
