"""How many buckets a partition gets whose rows waited. Pure.

Source: Java `table/PostponeUtils.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.errors import BadInput
from storage.options import TableOptions

_DEFAULT: Final = "postpone.default-bucket-num"
_ROWS: Final = "postpone.target-row-num-per-bucket"
_BYTES: Final = "postpone.target-size-per-bucket"
_MOST: Final = "postpone.batch-write-fixed-bucket.max-parallelism"
_LOAD: Final = "postpone.batch-write-fixed-bucket.rescale-load-factor"
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PostponeOptions:
    """The options of tables with `bucket = -2`.

    default_bucket_num: what a partition gets; None: it is computed
    target_rows, target_bytes: of one bucket; rows go first where both are given
    gives_buckets_at_once: whether batches do, whose rows wait for nothing
    bucket_num_max, rescale_load_factor: of such batches; above 0

    Raises BadInput for an option below 1.
    """

    default_bucket_num: int | None
    target_rows: int | None
    target_bytes: int
    bucket_num_max: int
    rescale_load_factor: int
    gives_buckets_at_once: bool

    def __post_init__(self) -> None:
        named = (
            (_DEFAULT, self.default_bucket_num),
            (_ROWS, self.target_rows),
            (_BYTES, self.target_bytes),
            (_MOST, self.bucket_num_max),
            (_LOAD, self.rescale_load_factor),
        )
        for key, value in named:
            if value is not None and value < 1:
                raise BadInput(f"option {key} = {value}: give a number above 0")

    @classmethod
    def of(cls, options: TableOptions) -> PostponeOptions:
        """The options of a table."""
        return cls(
            options.postpone_default_bucket_num,
            options.postpone_target_rows,
            options.postpone_target_bytes,
            options.postpone_bucket_num_max,
            options.postpone_rescale_load_factor,
            options.postpone_batches_get_buckets,
        )

    def bucket_num(self, rows: int, size_bytes: int, existing: int | None) -> int:
        """Of a partition whose waiting rows a job moves.

        rows, size_bytes: of all that waits there.
        existing: its buckets, if it has any: then it keeps their number.
        """
        if existing is not None:
            return existing
        return self.default_bucket_num or self._needed(rows, size_bytes)

    def bucket_num_at_once(self, rows: int, size_bytes: int, existing: int | None) -> tuple[int, bool]:
        """For a batch that is written into buckets at once, and whether the partition must be rescaled to that number
        first. Rounded up to a power of two, so that one partition after the other gets the same number.
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
    """At least 1.

    key: the option that target comes from

    Raises BadInput for more than an INT holds.
    """
    found = max(1, -(-value // target))
    if found > _INT_MAX:
        raise BadInput(f"option {key} = {target} would give a partition {found} buckets; raise it")
    return found
