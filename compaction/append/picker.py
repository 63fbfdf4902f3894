"""Which files of an append table are rewritten together. Rows stay as they are; small files become fewer.

Files whose rows are deleted in part are rewritten without them. Without buckets, rows have no order that readers rely
on, so any files of a partition go together. In a bucket the order of rows is part of the table: there only neighbours
may be merged. Pure: no file is opened.

Source: Java `append/AppendCompactCoordinator.java` (batch mode), `append/BucketedAppendCompactManager.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from storage.files.data_file import DataFileMeta
from storage.options import TableOptions

Files: TypeAlias = tuple[DataFileMeta, ...]
DeletedRows: TypeAlias = Mapping[str, int | None]

_NONE_DELETED: Final[DeletedRows] = {}

_FULL_FILES_MIN = 3  # of a bucket


@dataclass(frozen=True, slots=True)
class AppendCompactionOptions:
    """The options of compaction of append tables.

    small_file_bytes: files below it are rewritten
    files_min: how many are worth a rewrite
    open_file_cost_bytes: what reading a file costs in addition to its bytes
    files_limit: how many are looked at together
    max_delete_ratio: files of whose rows a larger share is deleted are rewritten, however large
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
        """Whether files with a deletion vector are due."""
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

    Small files are packed, smallest first, until a group is worth two files of the target size; fewer than files_min
    that are not worth as much stay.

    full: then these are merged too (as Java does once a streaming job saw them often enough), and with
        `compaction.force-rewrite-all-files` every file is rewritten
    deleted: by file that has a deletion vector, how many of its rows are deleted (None: not counted). Such files are
        rewritten, in groups of their own, when they are small or too many rows are deleted
    full: always
    """
    files = list(files)
    if full and settings.rewrites_all:
        everything = in_arrival_order(files)
        return [everything] if everything else []
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
    """Groups, and the files that are too few for one."""
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

    Any files_min neighbours that are worth less than two files of the target size together.

    full: everything behind the leading large files, if small ones are in the majority, or rows of one are deleted (see
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
