"""Divides the files of a bucket into sections and sorted runs, to find out which files must be merged with one another.

No key is in two sections. Inside a section, files are packed into as few sorted runs as possible. The files of a run
don't overlap, so a run is read file by file.

Source: Java `mergetree/compact/IntervalPartition.java`, `mergetree/SortedRun.java`; vectors `interval_partition.json`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.normalized_keys import align_keys, normalize_column
from tidelake.storage.model.binary_row import decode_rows_of_files
from tidelake.storage.model.types import DataType

ComparableKey: TypeAlias = tuple[int, ...]
SortedRun: TypeAlias = list[DataFileMeta]
Section: TypeAlias = list[SortedRun]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A file with its first and last key in a comparable form."""

    min_key: ComparableKey
    max_key: ComparableKey
    file: DataFileMeta


def key_ranges(files: Sequence[DataFileMeta], key_types: Sequence[DataType]) -> list[KeyRange]:
    """Return the files with comparable bounds, in the order given.

    key_types: the types of the trimmed primary key.

    Raises CorruptFile if keys can't be decoded.
    """
    rows = [key for file in files for key in (file.min_key, file.max_key)]
    names = [file.file_name for file in files for _ in range(2)]
    keys = decode_rows_of_files(rows, key_types, names, "keys")
    columns = [normalize_column(column, nullable=kind.nullable) for column, kind in zip(keys, key_types, strict=True)]
    bounds = list(zip(*(word.tolist() for word in align_keys([columns])[0]), strict=True))
    return [KeyRange(bounds[2 * i], bounds[2 * i + 1], file) for i, file in enumerate(files)]


def interval_partition(ranges: Sequence[KeyRange]) -> list[Section]:
    """Return the sections in key order. Each contains its runs, and each run its files in key order.

    The algorithm is greedy. It takes files in the order (min key, max key). If the run with the smallest last key ends
    before the file begins, the file is appended to that run; otherwise it starts a new run. This gives the fewest runs.
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
    ends: list[tuple[ComparableKey, int]] = []  # heap of (last key, number of the run)
    for item in section:
        if ends and ends[0][0] < item.min_key:
            run = ends[0][1]
            heapq.heapreplace(ends, (item.max_key, run))
            runs[run].append(item.file)
        else:
            heapq.heappush(ends, (item.max_key, len(runs)))
            runs.append([item.file])
    return runs
