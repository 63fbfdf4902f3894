"""Deletes directories of buckets and partitions that became empty (option `snapshot.clean-empty-directories`).

Source: Java `operation/FileDeletionBase.cleanEmptyDirectories`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.storage.model.table import TableContext


def delete_empty_directories(context: TableContext, deleted: Iterable[str]) -> None:
    """Delete the directories of deleted data files, and the partition directories above, if they are empty.

    deleted: paths of data files.
    """
    levels = 1 + len(context.schema.partition_keys)
    for bucket in {path.rpartition("/")[0] for path in deleted}:
        directory = bucket
        for _ in range(levels):
            if not context.io.delete_empty_directory(directory):
                break
            directory = directory.rpartition("/")[0]
