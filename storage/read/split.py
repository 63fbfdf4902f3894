"""Splits: units of reading, each of one bucket, made so that no key is in two of them.

Source: Java `table/source/MergeTreeSplitGenerator.java`, `AppendOnlySplitGenerator.java`, `utils/BinPacking.java`;
vectors `split_generator.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from storage.deletion_vectors.index_file import DeletionFile
from storage.files.data_file import DataFileMeta
from storage.merge.sorted_run import KeyRange, Section, interval_partition
from storage.options import MergeEngine
from storage.read.evolution.row_id_groups import RowIdGroup, is_blob_file

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Split:
    """Files of one bucket, to be read together. Pickles.

    partition: serialized BinaryRow.
    sections: in key order; inside one, every run is in key order and runs may overlap. Files that need no merge are
        sections of one run with one file. With data evolution a section is a row-id group, each of its files a run.
    raw_convertible: the rows of the files, one after the other, are the rows of the table (Java's word).
    deletion_files: by the name of a data file, where its deletion vector lies: the rows at its positions don't count.
    of_fallback_branch: from the branch that the options name in addition to the opened one
    """

    snapshot_id: int
    partition: bytes
    bucket: int
    sections: tuple[Section, ...]
    raw_convertible: bool
    deletion_files: Mapping[str, DeletionFile] = field(default_factory=dict)
    of_fallback_branch: bool = False

    @property
    def files(self) -> list[DataFileMeta]:
        return [file for section in self.sections for run in section for file in run]

    @property
    def row_count(self) -> int:
        """Rows in the files, before merging, deleted ones included."""
        return sum(file.row_count for file in self.files)


@dataclass(frozen=True, slots=True)
class BinPacking:
    """How large splits get: options `source.split.target-size` and `source.split.open-file-cost`."""

    target_size_bytes: int
    open_file_cost_bytes: int

    def pack(self, items: Iterable[T], size_bytes: Callable[[T], int]) -> list[list[T]]:
        """Consecutive items, each group as close below the target as it gets; order is kept."""
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
    """(sections, raw_convertible) of each split of an append table's bucket."""
    ordered = sorted(files, key=lambda file: file.min_sequence_number)
    return [([[[file]] for file in group], True) for group in packing.pack(ordered, lambda file: file.file_size)]


def evolution_splits(groups: Sequence[RowIdGroup], packing: BinPacking) -> list[tuple[list[Section], bool]]:
    """(sections, raw_convertible) of each split of a bucket with data evolution: a section is a row-id group, its files
    are runs of their own. Blobs count little: they are read when a row is.
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
    """(sections, raw_convertible) of each split of a primary-key table's bucket."""
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
