"""Computes the number of buckets of a partition with postponed rows. Reads no files.

Source: Java `table/PostponeUtils.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.model.options import TableOptions

_DEFAULT: Final = "postpone.default-bucket-num"
_ROWS: Final = "postpone.target-row-num-per-bucket"
_BYTES: Final = "postpone.target-size-per-bucket"
_MAX_PARALLELISM_OPTION: Final = "postpone.batch-write-fixed-bucket.max-parallelism"
_LOAD: Final = "postpone.batch-write-fixed-bucket.rescale-load-factor"
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PostponeOptions:
    """The options of tables with `bucket = -2`.

    default_bucket_num: the number of buckets of a new partition; None: it is computed
    target_rows: rows of one bucket; it has priority over target_bytes
    target_bytes: size of one bucket
    batch_write_fixed_bucket: whether a batch is written to buckets directly, without waiting for a job
    bucket_num_max: for such batches: the largest number of buckets; above 0
    rescale_load_factor: for such batches: when to rescale; above 0

    Raises BadInput for an option below 1.
    """

    default_bucket_num: int | None
    target_rows: int | None
    target_bytes: int
    bucket_num_max: int
    rescale_load_factor: int
    batch_write_fixed_bucket: bool

    def __post_init__(self) -> None:
        named = (
            (_DEFAULT, self.default_bucket_num),
            (_ROWS, self.target_rows),
            (_BYTES, self.target_bytes),
            (_MAX_PARALLELISM_OPTION, self.bucket_num_max),
            (_LOAD, self.rescale_load_factor),
        )
        for key, value in named:
            if value is not None and value < 1:
                raise BadInput(f"option {key} = {value}: give a number above 0")

    @classmethod
    def of(cls, options: TableOptions) -> PostponeOptions:
        """Return the options of a table."""
        return cls(
            options.postpone_default_bucket_num,
            options.postpone_target_rows,
            options.postpone_target_bytes,
            options.postpone_bucket_num_max,
            options.postpone_rescale_load_factor,
            options.postpone_batch_write_fixed_bucket,
        )

    def bucket_num(self, rows: int, size_bytes: int, existing: int | None) -> int:
        """Return the number of buckets for a partition whose postponed rows a job moves.

        rows, size_bytes: rows and bytes that are waiting in the partition.
        existing: its current number of buckets, which it keeps; None if it has none.
        """
        if existing is not None:
            return existing
        return self.default_bucket_num or self._needed(rows, size_bytes)

    def fixed_bucket_num(self, rows: int, size_bytes: int, existing: int | None) -> tuple[int, bool]:
        """Return the number for a batch that is written to buckets directly, and whether to rescale to it first.

        The number is rounded up to a power of two, so that different partitions often get the same number.
        """
        if existing is None and self.default_bucket_num is not None:
            return self.default_bucket_num, False
        needed = self._needed(rows, size_bytes)
        rounded = min(1 << (min(needed, self.bucket_num_max) - 1).bit_length(), self.bucket_num_max)
        if existing is None:
            return rounded, False
        rescales = needed > existing * self.rescale_load_factor and rounded > existing
        return (rounded if rescales else existing), rescales

    def _needed(self, rows: int, size_bytes: int) -> int:
        if self.target_rows is not None:
            return estimated_bucket_num(rows, self.target_rows, _ROWS)
        return estimated_bucket_num(size_bytes, self.target_bytes, _BYTES)


def estimated_bucket_num(value: int, target: int, key: str = _BYTES) -> int:
    """Return at least 1.

    key: the option that defines the target

    Raises BadInput if the number exceeds the range of INT.
    """
    found = max(1, -(-value // target))
    if found > _INT_MAX:
        raise BadInput(f"option {key} = {target} would give a partition {found} buckets; raise it")
    return found
