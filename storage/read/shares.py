"""Shares of a read: its splits divided among tasks by their bytes, or at given rows.

Source: pypaimon `read/datasource/ray_datasource.py` (tasks of about equal bytes), `read/scanner/split_generator.py` and
`append_table_split_generator.py` (shards and slices). pypaimon shards a primary-key table by bucket, so that a table
of one bucket has one shard with rows; here its sections are divided.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.sorted_run import Section
from tidelake.storage.read.split import Split


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Splits that one task reads, of any partitions and buckets. It can be pickled.

    It takes the place of a split in `to_batches(splits=[…])`.
    """

    splits: tuple[Split, ...]

    @property
    def files(self) -> list[DataFileMeta]:
        """The data files, in the order in which they are read."""
        return [file for split in self.splits for file in split.files]

    @property
    def row_count(self) -> int:
        """Rows in the files before merging, including deleted ones."""
        return sum(split.row_count for split in self.splits)

    @property
    def size_bytes(self) -> int:
        """The size of the files."""
        return sum(split.size_bytes for split in self.splits)


def flattened(splits: Sequence[Split | SplitGroup]) -> list[Split]:
    """Return the splits in this order, with those of groups in their place."""
    return [s for found in splits for s in (found.splits if isinstance(found, SplitGroup) else (found,))]


def balanced(splits: Sequence[Split], count: int) -> list[SplitGroup]:
    """Return at most `count` groups of about equal bytes; fewer if there are fewer parts to distribute.

    The parts are single files, or files that must be merged with each other. The largest part goes first into the
    group that is the smallest so far.
    """
    parts = [(number, part) for number, part in enumerate(p for split in splits for p in _parts(split))]
    groups: list[list[tuple[int, Split]]] = [[] for _ in range(min(count, len(parts)))]
    smallest = [(0, number) for number in range(len(groups))]
    for number, part in sorted(parts, key=lambda p: (-p[1].size_bytes, p[0])):
        size, group = heapq.heappop(smallest)
        groups[group].append((number, part))
        heapq.heappush(smallest, (size + part.size_bytes, group))
    ordered = sorted(sorted(group, key=lambda p: p[0]) for group in groups)
    return [SplitGroup(tuple(_joined([part for _, part in group]))) for group in ordered]


def rows_between(splits: Sequence[Split], start: int, end: int, *, divides_files: bool = True) -> list[Split]:
    """Return the part of the splits with the rows `start` to `end` of their files, `end` excluded.

    Rows are numbered from 0 in the order of the files, before merging, with deleted ones. Files that must be merged
    belong as a whole to the range with their first row, so that adjacent ranges have each row once.

    divides_files: False if each file belongs as a whole to the range with its first row
    """
    position = 0
    found: list[Split] = []
    for part in (part for split in splits for part in _parts(split)):
        first, last = max(start - position, 0), min(end - position, part.row_count)
        if divides_files and part.is_of_one_file:
            if first < last:
                found.append(part if last - first == part.row_count else part.of_rows(first, last))
        elif start <= position < end:
            found.append(part)
        position += part.row_count
    return _joined(found)


def shard_of(splits: Sequence[Split], index: int, count: int, *, divides_files: bool = True) -> list[Split]:
    """Return the part of the splits that the shard `index` of `count` reads. All shards together have each row once.

    The shards have equally many rows of files, give or take one, where files need no merge.
    """
    rows = sum(split.row_count for split in splits)
    each, rest = divmod(rows, count)
    start = index * each + min(index, rest)
    return rows_between(splits, start, start + each + (index < rest), divides_files=divides_files)


def check_unmerged(splits: Sequence[Split], table: str) -> None:
    """Raise UnsupportedFeature if rows have no number because files must be merged."""
    if any(not part.is_of_one_file for split in splits for part in _parts(split)):
        raise UnsupportedFeature(
            f"a range of rows of {table}",
            "some of its files must be merged, and only then it is known which rows there are",
            "Use shard(index, count), or compact the table: tidelake table compact NAME --full",
        )


def among(splits: Sequence[Split], others: Sequence[Split]) -> list[Split]:
    """Return the part of the splits whose files are also in the others."""
    wanted = {(file.file_name, split.bucket_id) for split in others for file in split.files}
    kept = [
        part
        for split in splits
        for part in _parts(split)
        if any((file.file_name, part.bucket_id) in wanted for file in part.files)
    ]
    return _joined(kept)


def _parts(split: Split) -> Iterator[Split]:
    """Yield a split of each section."""
    return (split.of_sections((section,)) for section in split.sections)


def _joined(parts: Sequence[Split]) -> list[Split]:
    """Join neighbours that are of one bucket again, unless parts of one file would meet."""
    joined: list[Split] = []
    for part in parts:
        if joined and _belong_together(joined[-1], part):
            before = joined[-1]
            sections: tuple[Section, ...] = (*before.sections, *part.sections)
            joined[-1] = replace(
                before,
                sections=sections,
                deletion_files={**before.deletion_files, **part.deletion_files},
                row_ranges={**before.row_ranges, **part.row_ranges},
            )
        else:
            joined.append(part)
    return joined


def _belong_together(one: Split, other: Split) -> bool:
    def identity(split: Split) -> tuple[object, ...]:
        return split.snapshot_id, split.partition, split.bucket, split.raw_convertible, split.of_fallback_branch

    return identity(one) == identity(other) and not one.row_ranges.keys() & other.row_ranges.keys()
