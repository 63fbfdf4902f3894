"""Names one bucket of a table."""

from __future__ import annotations

from typing import NamedTuple


class BucketId(NamedTuple):
    """A bucket of a partition: what is written, compacted and checked for conflicts as one.

    It equals the plain tuple, is ordered by partition, then by number, and can be pickled.

    partition: serialized BinaryRow of the partition columns (arity prefix included).
    bucket: the number, from 0; POSTPONE_BUCKET for rows that wait for their bucket.
    """

    partition: bytes
    bucket: int
