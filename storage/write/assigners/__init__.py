"""Chooses the bucket of each row. Each bucket mode has one assigner.

To add a mode, add a module to this package and a line below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.bucket_assigner import AssignedRows, BucketAssigner, PartitionedRows
from tidelake.storage.write.assigners.cross_partition.assigner import CrossPartitionAssigner
from tidelake.storage.write.assigners.dynamic import DynamicBucketAssigner
from tidelake.storage.write.assigners.stateless import (
    FixedBucketAssigner,
    PostponeBucketAssigner,
    UnawareBucketAssigner,
)

__all__ = [
    "AssignedRows",
    "BucketAssigner",
    "BucketAssignerFactory",
    "CrossPartitionAssigner",
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
    BucketMode.CROSS_PARTITION: CrossPartitionAssigner,
    BucketMode.POSTPONE: PostponeBucketAssigner,
}


def bucket_assigner_of(
    context: TableContext, spill_directory: str | None = None, *, replaces: bool = False
) -> BucketAssigner:
    """Return a new assigner for the table's bucket mode.

    spill_directory: for an index that exceeds its memory; None: the system's directory for temporary files.
    replaces: the rows will replace all rows of their partitions. If keys move between partitions, they will replace all
        rows of the table.
    """
    mode = bucket_mode(context.schema, context.options)
    if mode is BucketMode.CROSS_PARTITION:
        return CrossPartitionAssigner(context, spill_directory=spill_directory, replaces=replaces)
    if replaces and mode is BucketMode.DYNAMIC:
        return DynamicBucketAssigner(context, replaces=True)
    return _ASSIGNERS[mode](context)
