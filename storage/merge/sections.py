"""Decides in which order the runs of a section are read, in which batch size, and which runs are spilled first.

Each open run has one batch of bounded size in memory. An open file also has a page of each column in memory, so wide
tables can't have many runs open. Their smallest runs are spilled first, in small batches. The limit of open runs for
narrow tables is in `tidelake.storage.merge.multi_pass_merge`.

Source: Java `mergetree/MergeTreeReaders.java`, `mergetree/MergeSorter.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.sorted_run import Section, SortedRun

BATCH_ROWS_MAX: Final = 32_768  # twice as many need more memory, and are not faster
BATCH_ROWS_MIN: Final = 1_024
SECTION_MEMORY_BYTES: Final = 128 * 1024 * 1024  # limit for the open batches of a section's runs together
_MERGED_BATCH_ROWS_MAX: Final = 24_576  # limit for one run of a merge that is read: as fast as more rows
_MERGED_BATCH_BYTES: Final = 8 * 1024 * 1024  # limit for the batch of one run in a merge
_REWRITE_BATCH_BYTES_PER_RUN: Final = 1152 * 1024  # times the number of runs: more runs make each cut more expensive
OPEN_MEMORY_BYTES: Final = 256 * 1024 * 1024  # limit for the pages of all open files together
_PAGE_BYTES: Final = 1024 * 1024  # the page size of a Parquet column before compression, also in Java
_DECODED_PER_STORED: Final = 6  # bytes in memory per byte in a compressed file, approximately


def oldest_first(section: Section) -> tuple[list[SortedRun], bool]:
    """Return the runs by age, and whether sequence numbers follow this order.

    They do if all sequence numbers of a run are larger than those of the runs before. Then sequence numbers need not be
    compared.
    """
    runs = sorted(section, key=lambda run: min(file.min_sequence_number for file in run))
    sequence_follows_run_order = all(
        max(file.max_sequence_number for file in older) < min(file.min_sequence_number for file in newer)
        for older, newer in pairwise(runs)
    )
    return runs, sequence_follows_run_order


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The maximum size of a batch of a run."""

    rows: int
    bytes: int


def estimated_row_bytes(runs: Sequence[Sequence[DataFileMeta]]) -> int:
    """Return the approximate size of a row in memory, by the size of the files."""
    files = [file for run in runs for file in run]
    return _DECODED_PER_STORED * sum(file.file_size for file in files) // max(1, sum(f.row_count for f in files))


def batch_size(runs: Sequence[Sequence[DataFileMeta]], run_bytes_max: int = SECTION_MEMORY_BYTES) -> BatchSize:
    """Return a batch size with which one batch of each run fits the memory of a section together."""
    share_bytes = max(1, min(run_bytes_max, SECTION_MEMORY_BYTES // len(runs)))
    # An estimate before anything is read. If the rows were compressed better, the limit in bytes applies.
    row_bytes = max(1, estimated_row_bytes(runs))
    return BatchSize(max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, share_bytes // row_bytes)), share_bytes)


def merge_batch_size(runs: Sequence[SortedRun]) -> BatchSize:
    """Return the batch size for a merge that is read. A merge has up to three copies of a cut's rows: read, gathered
    and merged.
    """
    size = batch_size(runs, _MERGED_BATCH_BYTES)
    return BatchSize(min(size.rows, _MERGED_BATCH_ROWS_MAX), size.bytes)


def rewrite_batch_size(runs: Sequence[SortedRun]) -> BatchSize:
    """Return the batch size for a merge whose rows are written to a file immediately.

    It has more rows: compactions take 3 % less CPU time with them. It is larger for many runs, because a cut takes only
    a small part of each batch. A reader that passes rows on would be slower with such batches.
    """
    return batch_size(runs, max(_MERGED_BATCH_BYTES, _REWRITE_BATCH_BYTES_PER_RUN * len(runs)))


def runs_to_spill(runs: Sequence[SortedRun], columns: int) -> list[int]:
    """Return the positions of runs to spill before a merge: the smallest runs, until all others may be open."""
    largest = [max(file.file_size for file in run) for run in runs]  # one file of each run is open at a time
    open_bytes = [min(_DECODED_PER_STORED * size, columns * _PAGE_BYTES) for size in largest]
    excess = sum(open_bytes) - OPEN_MEMORY_BYTES
    chosen = []
    for number in sorted(range(len(runs)), key=lambda number: sum(file.file_size for file in runs[number])):
        if excess <= 0:
            break
        chosen.append(number)
        excess -= open_bytes[number]
    return chosen
