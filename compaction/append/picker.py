"""Picks the files of an append table to rewrite together. Rows stay unchanged; small files become fewer.

Files with deleted rows are rewritten without these. Without buckets, readers don't rely on the order of rows, so any
files of a partition can be combined. In a bucket the order of rows is part of the table, so only neighbours may be
merged. This module opens no file.

Source: Java `append/AppendCompactCoordinator.java` (batch mode), `append/BucketedAppendCompactManager.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.options import TableOptions

Files: TypeAlias = tuple[DataFileMeta, ...]
DeletedRows: TypeAlias = Mapping[str, int | None]

_NONE_DELETED: Final[DeletedRows] = {}

_FULL_FILES_MIN = 3  # in a bucket


@dataclass(frozen=True, slots=True)
class AppendCompactionOptions:
    """The options of compaction of append tables.

    small_file_bytes: smaller files are rewritten
    files_min: the smallest number of files that is rewritten
    open_file_cost_bytes: the cost of reading a file in addition to its bytes
    files_limit: how many files are considered together
    max_delete_ratio: a file with a larger share of deleted rows is rewritten, whatever its size
    """

    target_file_bytes: int
    small_file_bytes: int
    open_file_cost_bytes: int
    files_min: int = 5
    files_limit: int = 100_000
    rewrites_all: bool = False
    max_delete_ratio: float = 0.2

    @classmethod
    def of(cls, options: TableOptions) -> AppendCompactionOptions:
        return cls(
            options.target_file_size_bytes(has_primary_key=False),
            options.compaction_file_size_bytes(has_primary_key=False),
            options.split_open_file_cost_bytes,
            options.compaction_min_file_num,
            max(1, options.compaction_file_num_limit),
            options.force_rewrite_all_files,
            options.compaction_delete_ratio,
        )

    def is_small(self, file: DataFileMeta) -> bool:
        return file.file_size < self.small_file_bytes

    def is_due(self, file: DataFileMeta, deleted: DeletedRows) -> bool:
        """Return whether a file with a deletion vector must be rewritten."""
        count = deleted[file.file_name]
        return self.is_small(file) or count is None or count > file.row_count * self.max_delete_ratio


def pick_unordered(
    files: Iterable[DataFileMeta],
    settings: AppendCompactionOptions,
    deleted: DeletedRows = _NONE_DELETED,
    *,
    full: bool = False,
) -> list[Files]:
    """Pick groups to rewrite in a partition without buckets, each in the order of its rows' arrival.

    Small files are packed, smallest first, until a group reaches two files of the target size. A rest below that size
    is left if it has fewer than files_min files.

    deleted: for files with a deletion vector, the number of deleted rows (None: not counted). Such files are rewritten,
        in separate groups, if they are small or have too many deleted rows.
    full: the rest is merged, too (Java does it once a streaming job saw it often enough), files with a deletion vector
        are always rewritten, and with `compaction.force-rewrite-all-files` all files are.
    """
    files = list(files)
    if full and settings.rewrites_all:
        sorted_files = in_arrival_order(files)
        return [sorted_files] if sorted_files else []
    marked = [file for file in files if file.file_name in deleted]
    packs, rest = _pack([file for file in marked if full or settings.is_due(file, deleted)], settings)
    picks = [*packs, *([tuple(rest)] if rest else [])]
    small = [file for file in files if settings.is_small(file) and file.file_name not in deleted]
    remaining: list[DataFileMeta] = []
    for start in range(0, len(small), settings.files_limit):
        packs, remaining = _pack([*remaining, *small[start : start + settings.files_limit]], settings)
        picks += packs
    if full and len(remaining) > 1:
        picks.append(tuple(remaining))
    return [in_arrival_order(pick) for pick in picks]


def _pack(files: Sequence[DataFileMeta], settings: AppendCompactionOptions) -> tuple[list[Files], list[DataFileMeta]]:
    """Return the groups, and the files that are too few for a group."""
    packs: list[Files] = []
    group: list[DataFileMeta] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.file_size, *_arrival(file))):
        group.append(file)
        size += file.file_size + settings.open_file_cost_bytes
        if len(group) > 1 and size >= settings.target_file_bytes * 2:
            packs.append(tuple(group))
            group, size = [], 0
    if len(group) >= settings.files_min:
        packs.append(tuple(group))
        group = []
    return packs, group


def pick_consecutive(
    files: Iterable[DataFileMeta],
    settings: AppendCompactionOptions,
    deleted: DeletedRows = _NONE_DELETED,
    *,
    full: bool = False,
) -> list[Files]:
    """Pick groups of consecutive files to rewrite in one bucket, in the order of their rows.

    A group consists of files_min neighbours that together are smaller than two files of the target size.

    full: everything after the leading large files, if most files are small, or if rows of a file are deleted (see
        `pick_unordered`)
    """
    ordered = in_arrival_order(files)
    return _pick_rest(ordered, settings, deleted) if full else _pick_windows(ordered, settings)


def _pick_rest(ordered: Files, settings: AppendCompactionOptions, deleted: DeletedRows) -> list[Files]:
    if settings.rewrites_all:
        return [ordered] if ordered else []
    is_marked = [file.file_name in deleted for file in ordered]
    start = next((i for i, file in enumerate(ordered) if is_marked[i] or settings.is_small(file)), len(ordered))
    rest = ordered[start:]
    if any(is_marked[start:]):
        return [rest]
    small = sum(map(settings.is_small, rest))
    return [rest] if len(rest) >= _FULL_FILES_MIN and small > len(rest) - small else []


def _pick_windows(ordered: Files, settings: AppendCompactionOptions) -> list[Files]:
    picks: list[Files] = []
    window: list[DataFileMeta] = []
    for file in ordered:
        window.append(file)
        if len(window) >= settings.files_min:
            picks.append(tuple(window))
            window = []
        elif sum(one.file_size for one in window) >= settings.target_file_bytes * 2:
            del window[0]
    return picks


def in_arrival_order(files: Iterable[DataFileMeta]) -> Files:
    return tuple(sorted(files, key=_arrival))


def _arrival(file: DataFileMeta) -> tuple[int, int, str]:
    return file.min_sequence_number, file.creation_time_ms or 0, file.file_name
