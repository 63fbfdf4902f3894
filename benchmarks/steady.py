"""Measures reads after two hundred checkpoints of a compacting pipeline: are they as fast as in the beginning?

As a program this module runs the job: the pipeline first, then reads of its snapshots.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

import tidelake
from benchmarks.change_log import CHANGES, ORDERS, write_change_log
from benchmarks.clock import Clock, peak_memory_mib, tell
from benchmarks.contest import TIDELAKE, our_pipeline
from benchmarks.ingest_folder import COMPACTING, new_orders_table, pipeline_config
from benchmarks.sections import Goal, PageSection, Plan, thousands
from tests.support.recorded_truth import differences
from tidelake.ingest.pipeline.service import run
from tidelake.storage.read.split import Split

_PASSES: Final = 20
_FILES_PER_PASS: Final = 10
_CHECKPOINT_BYTES: Final = 7_000_000  # a file has a few bytes more, so that it causes one checkpoint
_WINDOW: Final = 4
_READS: Final = 3
_DECAY_MAX: Final = 1.5
_HEADER: Final = [
    "checkpoint",
    "rows",
    "sorted runs in all buckets",
    "rows in files",
    "read: CPU ms",
    "rows per CPU-second",
]


def sections(plan: Plan) -> Iterator[PageSection]:
    passes = max(2, round(_PASSES * plan.scale))
    folder = plan.data / f"orders-{passes}-in-{_FILES_PER_PASS}"
    write_change_log(folder, passes, compressed=True, files_per_pass=_FILES_PER_PASS)
    arguments = {"folder": str(folder), "warehouse": str(plan.scratch / "steady"), "passes": passes}
    sample = our_pipeline("steady", arguments).run()
    marks = sample.details["marks"]
    lines = [
        [
            str(mark["checkpoint"]),
            f"{mark['rows']:,}",
            str(mark["sorted_runs"]),
            f"{mark['rows_in_files']:,}",
            f"{1000 * mark['rows'] * mark['cpu_s_per_row']:.0f}",
            thousands(1 / mark["cpu_s_per_row"]),
        ]
        for mark in marks
    ]
    first, last = marks[0], marks[-1]
    decay = last["cpu_s_per_row"] / first["cpu_s_per_row"]
    what = f"read at checkpoint {last['checkpoint']} ≤ {_DECAY_MAX:g} × that at {first['checkpoint']}"
    about = (
        f"The capture orders-100k, repeated {passes} times, is written to a table of four buckets that its writers "
        f"compact, from *.jsonl.zst, with a checkpoint every {CHANGES // _FILES_PER_PASS:,} changes: {sample.rows:,} "
        f"changes at {thousands(sample.rows_per_cpu_s)} per CPU-second, one run, {sample.peak_mib:.0f} MiB. Each given "
        "checkpoint is the end of a pass, where the table has the same rows. A read is one of the whole table at one "
        f"snapshot. Its time is the median of {_WINDOW} checkpoints up to the given one, each read {_READS} times."
    )
    yield PageSection(
        "Steady: many checkpoints",
        about,
        _HEADER,
        lines,
        [Goal(what, f"{decay:.2f} ×", decay <= _DECAY_MAX)],
        {TIDELAKE: [sample]},
    )


# ---------------------------------------------------------------- the job


def steady(folder: str, warehouse: str, passes: int) -> None:
    table = new_orders_table(warehouse, {**COMPACTING, "snapshot.time-retained": "1 d"})
    clock = Clock()
    checkpoint = {"interval_ms": 1 << 40, "bytes_max": _CHECKPOINT_BYTES}
    with clock:
        asyncio.run(run(pipeline_config(folder, warehouse, checkpoint)))
    peak_mib = peak_memory_mib()
    if wrong := differences(ORDERS, table.scan().to_arrow()):
        raise AssertionError(f"the table differs from its source: {wrong[:3]}")
    # The newest snapshot of each checkpoint (there may be a COMPACT snapshot, too). The first is that of the new epoch.
    newest = {s.commit_identifier: s.id for s in table.snapshots()}
    _, *snapshot_ids = (newest[identifier] for identifier in sorted(newest))
    ends = [round(len(snapshot_ids) * share) for share in _shares(passes)]
    marks = [{"checkpoint": end, **_read(table, snapshot_ids[end - _WINDOW : end])} for end in ends]
    tell(passes * CHANGES, clock, peak_mib=peak_mib, marks=marks)


def _shares(passes: int) -> list[float]:
    """Return shares of the change log that end with a pass: the first tenth or pass, some in between, the whole."""
    return [pass_ / passes for pass_ in sorted({max(1, passes * percent // 100) for percent in (10, 30, 50, 70, 100)})]


def _read(table: tidelake.Table, snapshot_ids: Sequence[int]) -> Mapping[str, Any]:
    """Return facts about the newest of these snapshots, and the cost of reading all of them."""
    costs = []
    for snapshot_id in [*snapshot_ids] * _READS:
        clock = Clock()
        with clock:
            scan = table.scan(snapshot=snapshot_id)
            rows = scan.to_arrow().num_rows
        costs.append(clock.cpu_s / rows)
    splits = scan.splits()
    return {
        "rows": rows,
        "sorted_runs": len({run for split in splits for run in _runs(split)}),
        "rows_in_files": sum(split.row_count for split in splits),
        "cpu_s_per_row": statistics.median(costs),
    }


def _runs(split: Split) -> set[tuple[int, int | str]]:
    """Return the sorted runs of a split: each file of level 0, and each level above."""
    return {(split.bucket, file.level or file.file_name) for file in split.files}


if __name__ == "__main__":
    pa.array([None])  # see ingest_folder
    steady(**json.loads(sys.argv[1]))
