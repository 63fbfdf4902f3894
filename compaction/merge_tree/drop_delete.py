"""When a compaction may drop deletes.

Source: Java `mergetree/compact/MergeTreeCompactManager.triggerCompaction`; vectors `compact_task.json`.
"""

from __future__ import annotations


def can_drop_deletes(output_level: int, highest_level: int, *, has_deletion_vectors: bool = False) -> bool:
    """Whether a compaction into output_level leaves out keys whose newest row is a delete.

    Only when no older row of them can be left: nothing lies above the output (highest_level: of all files of the
    bucket, the compacted ones too), or deletion vectors mark what does. Level 0 may hold older rows of its own.
    """
    return output_level != 0 and (output_level >= highest_level or has_deletion_vectors)
