"""Splits: units of reading. Each is of one bucket, and no key is in two splits.

Source: Java `table/source/MergeTreeSplitGenerator.java`, `AppendOnlySplitGenerator.java`, `utils/BinPacking.java`;
vectors `split_generator.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.sorted_run import KeyRange, Section, interval_partition
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.read.evolution.row_id_groups import RowIdGroup, is_blob_file

T = TypeVar("T")
SectionIdentity: TypeAlias = frozenset[tuple[str, DeletionFile | None]]


@dataclass(frozen=True, slots=True)
class Split:
    """Files of one bucket that are read together. Splits can be pickled.

    partition: serialized BinaryRow.
    sections: ordered by key. Runs of one section may overlap; each run is ordered by key. A file that needs no merge is
        a section of one run with one file. With data evolution, a section is a row-id group and each file is a run.
    raw_convertible: the rows of the files, one after the other, are the rows of the table (Java's word).
    deletion_files: by data file name, where its deletion vector is stored. Rows at its positions are deleted.
    of_fallback_branch: the files are of the second branch that the options name, not of the opened one
    row_ranges: by data file name, the positions in the file that are read, from the first to before the last; a file
        that is not named is read whole
    """

    snapshot_id: int
    partition: bytes
    bucket: int
    sections: tuple[Section, ...]
    raw_convertible: bool
    deletion_files: Mapping[str, DeletionFile] = field(default_factory=dict)
    of_fallback_branch: bool = False
    row_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def files(self) -> list[DataFileMeta]:
        return [file for section in self.sections for run in section for file in run]

    @property
    def row_count(self) -> int:
        """Rows in the files before merging, including deleted ones."""
        return sum(self.rows_of(file) for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of the files; of a file that is read in part, that part of it."""
        return sum(file.file_size * self.rows_of(file) // max(file.row_count, 1) for file in self.files)

    @property
    def is_of_one_file(self) -> bool:
        """Whether it is one file that needs no merge."""
        return len(self.sections) == 1 and len(self.sections[0]) == 1 and len(self.sections[0][0]) == 1

    def rows_of(self, file: DataFileMeta) -> int:
        """Return how many rows of a file are read, including deleted ones."""
        start, end = self.row_ranges.get(file.file_name, (0, file.row_count))
        return end - start

    def of_sections(self, sections: tuple[Section, ...]) -> Split:
        """Return the split of some of its sections."""
        names = {file.file_name for section in sections for run in section for file in run}
        vectors = {name: self.deletion_files[name] for name in self.deletion_files.keys() & names}
        ranges = {name: self.row_ranges[name] for name in self.row_ranges.keys() & names}
        return replace(self, sections=sections, deletion_files=vectors, row_ranges=ranges)

    def of_rows(self, start: int, end: int) -> Split:
        """Return the split of the rows `start` to `end`, `end` excluded, of the one file that it has."""
        (file,) = self.files
        first, _ = self.row_ranges.get(file.file_name, (0, file.row_count))
        return replace(self, row_ranges={file.file_name: (first + start, first + end)})


@dataclass(frozen=True, slots=True)
class BinPacking:
    """Rules for the size of splits: options `source.split.target-size` and `source.split.open-file-cost`."""

    target_size_bytes: int
    open_file_cost_bytes: int

    def pack(self, items: Iterable[T], size_bytes: Callable[[T], int]) -> list[list[T]]:
        """Group consecutive items, each group as large as possible without exceeding the target. Keeps the order."""
        groups: list[list[T]] = []
        total = 0
        for item in items:
            weight = max(size_bytes(item), self.open_file_cost_bytes)
            if not groups or total + weight > self.target_size_bytes:
                groups.append([])
                total = 0
            groups[-1].append(item)
            total += weight
        return groups


def append_splits(files: Sequence[DataFileMeta], packing: BinPacking) -> list[tuple[list[Section], bool]]:
    """Return (sections, raw_convertible) of each split for a bucket of an append table."""
    ordered = sorted(files, key=lambda file: file.min_sequence_number)
    return [([[[file]] for file in group], True) for group in packing.pack(ordered, lambda file: file.file_size)]


def evolution_splits(groups: Sequence[RowIdGroup], packing: BinPacking) -> list[tuple[list[Section], bool]]:
    """Return (sections, raw_convertible) of each split for a bucket with data evolution.

    A section is a row-id group, and each of its files is a run. A blob file counts only as the cost of opening a file,
    because its values are read only with their rows.
    """

    def size_bytes(group: RowIdGroup) -> int:
        return sum(packing.open_file_cost_bytes if is_blob_file(file) else file.file_size for file in group)

    splits = []
    for packed in packing.pack(groups, size_bytes):
        sections: list[Section] = [[[file] for file in group] for group in packed]
        splits.append((sections, all(len(group) == 1 for group in packed)))
    return splits


def merge_tree_splits(
    ranges: Sequence[KeyRange], packing: BinPacking, merge_engine: MergeEngine, *, deletion_vectors: bool = False
) -> list[tuple[list[Section], bool]]:
    """Return (sections, raw_convertible) of each split for a bucket of a primary-key table."""
    files = [item.file for item in ranges]
    above_level_0 = all(file.level != 0 and not file.delete_row_count for file in files)
    one_version = deletion_vectors or merge_engine is MergeEngine.FIRST_ROW or len({file.level for file in files}) == 1
    if above_level_0 and one_version:
        return [([[[file]] for file in group], True) for group in packing.pack(files, lambda file: file.file_size)]
    groups = packing.pack(
        interval_partition(ranges), lambda section: sum(file.file_size for run in section for file in run)
    )
    return [(group, _is_one_clean_file(group)) for group in groups]


def _is_one_clean_file(sections: Sequence[Section]) -> bool:
    files = [file for section in sections for run in section for file in run]
    return len(files) == 1 and not files[0].delete_row_count


def section_identity(section: Section, split: Split) -> SectionIdentity:
    """Return the files of a section and their deletion vectors: the same in two states, if the rows are the same."""
    names = [file.file_name for run in section for file in run]
    return frozenset((name, split.deletion_files.get(name)) for name in names)
