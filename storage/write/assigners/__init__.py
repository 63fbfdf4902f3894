"""Which bucket a row goes into: one assigner for each bucket mode.

A new one is a module here and a line below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from storage.bucketing import BucketMode, bucket_mode
from storage.errors import UnsupportedFeature
from storage.table import TableContext
from storage.write.assigners.base import AssignedRows, BucketAssigner, PartitionedRows
from storage.write.assigners.dynamic import DynamicBucketAssigner
from storage.write.assigners.fixed import FixedBucketAssigner
from storage.write.assigners.postpone import PostponeBucketAssigner
from storage.write.assigners.unaware import UnawareBucketAssigner

__all__ = [
    "AssignedRows",
    "BucketAssigner",
    "BucketAssignerFactory",
    "DynamicBucketAssigner",
    "FixedBucketAssigner",
    "PartitionedRows",
    "UnawareBucketAssigner",
    "bucket_assigner_of",
]

BucketAssignerFactory = Callable[[TableContext], BucketAssigner]

_ASSIGNERS: Final[Mapping[BucketMode, BucketAssignerFactory]] = {
    BucketMode.FIXED: FixedBucketAssigner,
    BucketMode.UNAWARE: UnawareBucketAssigner,
    BucketMode.DYNAMIC: DynamicBucketAssigner,
    BucketMode.POSTPONE: PostponeBucketAssigner,
}


def bucket_assigner_of(context: TableContext, *, replaces: bool = False) -> BucketAssigner:
    """A new one, by the table's bucket mode. Raises UnsupportedFeature for a mode that has none.

    replaces: rows will replace those of their partitions.
    """
    mode = bucket_mode(context.schema, context.options)
    if mode not in _ASSIGNERS:
        raise UnsupportedFeature(
            f"{context.name}: bucket mode {mode.name.lower()}",
            "no bucket can be chosen for a row",
            "Set bucket to the number of buckets",
        )
    if replaces and mode is BucketMode.DYNAMIC:
        return DynamicBucketAssigner(context, replaces=True)
    return _ASSIGNERS[mode](context)
