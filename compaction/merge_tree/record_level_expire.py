"""Drops rows that are too old (`record-level.expire-time`) when their file is rewritten.

Until then reads return them, as in Java. A partition has its own files, so its rows expire when one of its buckets is
compacted.

Source: Java `io/RecordLevelExpire.java`; vectors `record_level_expire.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.statistics import value_bounds
from tidelake.storage.model.table import TableContext

_MILLISECONDS_FROM = 1_000_000_000_000  # a BIGINT from this value on is in milliseconds, a smaller one in seconds
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class RecordLevelExpire:
    """Expires single rows by a time column.

    time_field: a column of type INT (seconds), BIGINT (seconds or milliseconds), TIMESTAMP or TIMESTAMP_LTZ
    """

    context: TableContext
    time_field: str
    expire_time_s: int

    @classmethod
    def of(cls, context: TableContext) -> RecordLevelExpire | None:
        """Return the expiry of a table, or None if the table has none.

        Raises BadInput if its time column is not set.
        """
        expire_time_s, field = context.options.record_level_expire_time_s, context.options.record_level_time_field
        if expire_time_s is None:
            return None
        if field is None:
            raise BadInput(
                f"{context.name}: option record-level.expire-time is set, but record-level.time-field is not; set it "
                "to the column with the time of a row, or unset record-level.expire-time"
            )
        return cls(context, field, expire_time_s)

    def filter_expired(self, batches: Iterator[pa.RecordBatch], now_s: int) -> Iterator[pa.RecordBatch]:
        """Drop expired rows before merging. So an older row may become visible again, as in Java.

        batches: with the time field.
        """

        def unexpired(batch: pa.RecordBatch) -> pa.RecordBatch:
            kept = self.keeps(batch, now_s)
            return batch if kept.all() else batch.filter(pa.array(kept))

        return map(unexpired, batches)

    def keeps(self, rows: pa.RecordBatch, now_s: int) -> NDArray[np.bool_]:
        """Return which rows have not expired, (n,)."""
        return unexpired_rows(rows.column(self.time_field), self.expire_time_s, now_s)

    def has_expired_rows(self, files: Sequence[DataFileMeta], now_s: int) -> NDArray[np.bool_]:
        """Return which files have an expired row by their statistics, (n,). False without statistics."""
        if not files:
            return np.zeros(0, np.bool_)
        oldest = value_bounds(self.context, files)(self.time_field).minimum
        return ~unexpired_rows(oldest, self.expire_time_s, now_s)


def unexpired_rows(times: pa.Array, expire_time_s: int, now_s: int) -> NDArray[np.bool_]:
    """Return which rows have not expired, (n,). A row without a time never expires."""
    seconds = seconds_of(times)
    kept = pc.or_kleene(pc.is_null(seconds), pc.greater_equal(seconds, now_s - expire_time_s))
    mask: NDArray[np.bool_] = kept.to_numpy(zero_copy_only=False)
    return mask


def seconds_of(times: pa.Array) -> pa.Array:
    """Return epoch seconds, int64; null without a time.

    Milliseconds are truncated towards 1970, as in Java's division.
    """
    if pa.types.is_timestamp(times.type):
        per_second = _PER_SECOND[times.type.unit]
        numbers = times.cast(pa.int64())
        if per_second > 1000:
            numbers = _floor_divide(numbers, per_second // 1000)
        return pc.divide(numbers, min(per_second, 1000))
    numbers = times.cast(pa.int64())
    if times.type != pa.int64():
        return numbers
    return pc.if_else(pc.greater_equal(numbers, _MILLISECONDS_FROM), pc.divide(numbers, 1000), numbers)


def _floor_divide(numbers: pa.Array, by: int) -> pa.Array:
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False) // by
    return pa.array(values, mask=numbers.is_null().to_numpy(zero_copy_only=False))
