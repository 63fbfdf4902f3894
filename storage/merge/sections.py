"""Reading the runs of a section: in which order, how much of each at a time, and how many at once.

Every run is open at a batch of bounded size. An open file also holds a page of each column, so that wide tables can't
have many runs open: the smallest are written down first, in small batches. How many runs of narrow tables may be open:
`storage.merge.multi_pass_merge`.

Source: Java `mergetree/MergeTreeReaders.java`, `mergetree/MergeSorter.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from storage.files.data_file import DataFileMeta
from storage.merge.sorted_run import Section, SortedRun

BATCH_ROWS_MAX: Final = 32_768  # twice as many only hold more memory
BATCH_ROWS_MIN: Final = 1_024
SECTION_MEMORY_BYTES: Final = 128 * 1024 * 1024  # what the open batches of a section's runs may hold together
_MERGED_BATCH_ROWS_MAX: Final = 24_576  # of one run in a merge that is read: as fast, 16 of 136 MiB less in ten runs
_MERGED_BATCH_BYTES: Final = 8 * 1024 * 1024  # of one run in a merge
_REWRITE_BATCH_BYTES_PER_RUN: Final = 1152 * 1024  # of one run among many: what a cut costs grows with the runs
OPEN_MEMORY_BYTES: Final = 256 * 1024 * 1024  # what open files may hold together
_PAGE_BYTES: Final = 1024 * 1024  # of a column of a Parquet file, before compression; Java's, too
_DECODED_PER_STORED: Final = 6  # bytes in memory for a byte in a compressed file, about


def oldest_first(section: Section) -> tuple[list[SortedRun], bool]:
    """The runs by age, and whether every sequence number of a run is larger than all of those before: then numbers need
    not be compared.
    """
    runs = sorted(section, key=lambda run: min(file.min_sequence_number for file in run))
    in_order = all(
        max(file.max_sequence_number for file in older) < min(file.min_sequence_number for file in newer)
        for older, newer in pairwise(runs)
    )
    return runs, in_order


@dataclass(frozen=True, slots=True)
class BatchSize:
    """What a batch of a run may be at most."""

    rows: int
    bytes: int


def batch_size(runs: Sequence[Sequence[DataFileMeta]], run_bytes_max: int = SECTION_MEMORY_BYTES) -> BatchSize:
    """So that one open batch of every run fits the memory of a section."""
    files = [file for run in runs for file in run]
    rows = sum(file.row_count for file in files)
    share_bytes = max(1, min(run_bytes_max, SECTION_MEMORY_BYTES // len(runs)))
    # a guess, made before anything is read; for rows that were compressed further, the bytes decide
    row_bytes = max(1, _DECODED_PER_STORED * sum(file.file_size for file in files) // max(rows, 1))
    return BatchSize(max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, share_bytes // row_bytes)), share_bytes)


def merge_batch_size(runs: Sequence[SortedRun]) -> BatchSize:
    """The batch size for a merge, which holds the rows of a cut up to three times: read, gathered and merged."""
    size = batch_size(runs, _MERGED_BATCH_BYTES)
    return BatchSize(min(size.rows, _MERGED_BATCH_ROWS_MAX), size.bytes)


def rewrite_batch_size(runs: Sequence[SortedRun]) -> BatchSize:
    """The batch size for a merge whose rows are written to a file at once. It has more rows, with which a compaction
    takes 3 % less CPU time. It is larger for many runs, of which a cut takes a small part; a reader that passes rows on
    takes longer with those.
    """
    return batch_size(runs, max(_MERGED_BATCH_BYTES, _REWRITE_BATCH_BYTES_PER_RUN * len(runs)))


def runs_to_spill(runs: Sequence[SortedRun], columns: int) -> list[int]:
    """Which runs to write down before a merge, by position: the smallest, until the files of the others may be open."""
    largest = [max(file.file_size for file in run) for run in runs]  # of a run, one file is open at a time
    open_bytes = [min(_DECODED_PER_STORED * size, columns * _PAGE_BYTES) for size in largest]
    excess = sum(open_bytes) - OPEN_MEMORY_BYTES
    chosen = []
    for number in sorted(range(len(runs)), key=lambda number: sum(file.file_size for file in runs[number])):
        if excess <= 0:
            break
        chosen.append(number)
        excess -= open_bytes[number]
    return chosen
