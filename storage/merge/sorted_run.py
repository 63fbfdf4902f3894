"""Sections and sorted runs: which files of a bucket must be merged with which.

Files are cut into sections, so that no key is in two of them; inside a section, files are packed into as few sorted
runs as possible: files of a run don't overlap, so a run is read file after file.

Source: Java `mergetree/compact/IntervalPartition.java`, `mergetree/SortedRun.java`; vectors `interval_partition.json`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from storage.binary_row import decode_rows_of_files
from storage.files.data_file import DataFileMeta
from storage.merge.normalized_keys import align_keys, normalize_column
from storage.types import DataType

ComparableKey: TypeAlias = tuple[int, ...]
SortedRun: TypeAlias = list[DataFileMeta]
Section: TypeAlias = list[SortedRun]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A file with its first and last key in a form that compares."""

    min_key: ComparableKey
    max_key: ComparableKey
    file: DataFileMeta


def key_ranges(files: Sequence[DataFileMeta], key_types: Sequence[DataType]) -> list[KeyRange]:
    """Files with comparable bounds, in the order given.

    key_types: the trimmed primary key's.
    Raises CorruptFile.
    """
    rows = [key for file in files for key in (file.min_key, file.max_key)]
    names = [file.file_name for file in files for _ in range(2)]
    keys = decode_rows_of_files(rows, key_types, names, "keys")
    columns = [normalize_column(column, nullable=kind.nullable) for column, kind in zip(keys, key_types, strict=True)]
    bounds = list(zip(*(word.tolist() for word in align_keys([columns])[0]), strict=True))
    return [KeyRange(bounds[2 * i], bounds[2 * i + 1], file) for i, file in enumerate(files)]


def interval_partition(ranges: Sequence[KeyRange]) -> list[Section]:
    """Sections in key order, each with its runs, each with its files in key order.

    Greedy: files by (min key, max key); a file goes behind the run that ends first, if that one ends before the file
    begins, else it opens a new run. That needs the fewest runs possible.
    """
    sections: list[Section] = []
    section: list[KeyRange] = []
    section_end: ComparableKey = ()
    for item in sorted(ranges, key=lambda r: (r.min_key, r.max_key)):
        if section and section_end < item.min_key:
            sections.append(_pack_runs(section))
            section, section_end = [], ()
        section_end = max(section_end, item.max_key)
        section.append(item)
    if section:
        sections.append(_pack_runs(section))
    return sections


def _pack_runs(section: Sequence[KeyRange]) -> Section:
    runs: Section = []
    ends: list[tuple[ComparableKey, int]] = []  # heap of (last key, which run)
    for item in section:
        if ends and ends[0][0] < item.min_key:
            run = ends[0][1]
            heapq.heapreplace(ends, (item.max_key, run))
            runs[run].append(item.file)
        else:
            heapq.heappush(ends, (item.max_key, len(runs)))
            runs.append([item.file])
    return runs
