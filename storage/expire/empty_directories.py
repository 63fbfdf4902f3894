"""Directories of buckets and partitions in which nothing is left (option `snapshot.clean-empty-directories`).

Source: Java `operation/FileDeletionBase.cleanEmptyDirectories`.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.table import TableContext


def delete_empty_directories(context: TableContext, deleted: Iterable[str]) -> None:
    """Those in which data files were, and the partitions above, as far as they are empty.

    deleted: paths of data files.
    """
    levels = 1 + len(context.schema.partition_keys)
    for bucket in {path.rpartition("/")[0] for path in deleted}:
        directory = bucket
        for _ in range(levels):
            if not context.io.delete_empty_directory(directory):
                break
            directory = directory.rpartition("/")[0]
