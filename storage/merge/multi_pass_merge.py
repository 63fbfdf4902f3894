"""Merges more runs than may be open at once, through spilled intermediate runs.

Neighbouring runs are combined into one intermediate run. This only sorts rows, and merges none. So every merge engine
sees all rows of a key at once, oldest first.

Memory: a batch of an intermediate run is as large as the batches of its runs together. If one batch of each run fits
the memory of a section (`sections.batch_size`), so does one batch of each intermediate run. All large rows but one wait
on disk.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

import pyarrow as pa

from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_reader import Merge, MergeOrder, merge_runs
from tidelake.storage.merge.spill_file import ParkedRows, SpillFile
from tidelake.storage.model.options import TableOptions

FAN_IN: Final = 100  # a process can usually have 1,024 files open, and merges in several threads

T = TypeVar("T")


def keep_all(rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
    """Return a merge that only sorts, and keeps all rows."""
    return rows if rows.num_rows == 1 else rows.take(pa.array(groups.rows))


def fan_in_of(options: TableOptions) -> int:
    """Return how many runs a merge may have open. The option `sort-spill-threshold` can lower the number."""
    threshold = options.sort_spill_threshold
    return FAN_IN if threshold is None else max(2, min(FAN_IN, threshold))


def multi_pass_merge(
    runs: Sequence[Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    order: MergeOrder,
    merge: Merge[T],
    *,
    fan_in: int = FAN_IN,
    newest_wins: bool = False,
    spilled_first: Sequence[int] = (),
    spill_directory: str | None = None,
) -> Generator[T]:
    """Like `merge_runs`, with at most fan_in runs open at the same time.

    runs: the runs, oldest first. A run opens its file when its first batch is requested.
    schema: the schema of their batches.
    spilled_first: positions of runs that are spilled first, because they must not be open together with others
        (`sections.runs_to_spill`).
    spill_directory: where runs are spilled; None means the system's temporary directory. The files are deleted when the
        generator ends or is closed. A full disk raises OSError.
    """
    with ExitStack() as scratch:
        parked_rows = scratch.enter_context(ParkedRows(spill_directory))

        def written(run: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            file = SpillFile(spill_directory, schema, run)
            scratch.callback(file.delete)
            return file.read()

        def merge_group(group: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
            return written(merge_runs(group, order, keep_all, parked_rows=parked_rows))

        runs = [written(run) if number in spilled_first else run for number, run in enumerate(runs)]
        while len(runs) > fan_in:
            kept, groups = _grouped(runs, fan_in)
            runs = [*kept, *map(merge_group, groups)]
        yield from merge_runs(runs, order, merge, newest_wins=newest_wins, parked_rows=parked_rows)


def _grouped(
    runs: Sequence[Iterator[pa.RecordBatch]], fan_in: int
) -> tuple[Sequence[Iterator[pa.RecordBatch]], list[Sequence[Iterator[pa.RecordBatch]]]]:
    """Return the runs to keep, and as few groups of the others as possible.

    The newest runs are grouped, because the old ones are large.
    """
    groups = -(-(len(runs) - fan_in) // (fan_in - 1))  # each group turns up to fan_in runs into one
    kept = max(0, fan_in - groups)
    return runs[:kept], [runs[start : start + fan_in] for start in range(kept, len(runs), fan_in)]
