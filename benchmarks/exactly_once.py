"""Measures the share of exactly-once in an ingest: proving the position, taking over, fencing, the chain of positions.

As a program this module runs the job: the pipeline, with a clock around each function that only exactly-once needs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

import pyarrow as pa

from benchmarks.change_log import CHANGES, write_change_log
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, ours
from benchmarks.ingest_folder import COMPACTING, new_orders_table, pipeline_config
from benchmarks.sections import Goal, PageSection, Plan
from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.coordinator import CheckpointCoordinator
from tidelake.checkpoint.fence import EpochFence
from tidelake.ingest.pipeline.progress_tracker import ProgressFile
from tidelake.ingest.pipeline.service import run
from tidelake.ingest.tables.table_history import CommitHistory
from tidelake.ingest.tables.table_sink import TableSink

_SHARE_MAX: Final = 0.05
_INTERVALS_MS: Final = {"a checkpoint every 10 s (default)": 10_000, "a checkpoint every second": 1_000}

_PARTS: Final[dict[str, list[tuple[type, list[str]]]]] = {
    "finding and proving the position": [
        (TableSink, ["read_state", "latest_of_user"]),
        (CommitHistory, ["snapshot"]),
    ],
    "taking over": [(TableSink, ["commit"])],  # a commit without rows is a take-over
    "the chain of positions": [
        (
            CheckpointCoordinator,
            ["add_partition", "record_write", "due_in_ms", "begin", "prepared", "committed", "completed"],
        ),
        (TableCommittable, ["to_storage"]),
    ],
    "fencing": [(EpochFence, ["__call__"])],
    "progress file, consumer": [(ProgressFile, ["read", "write"]), (CommitHistory, ["register"])],
}


def sections(plan: Plan) -> Iterator[PageSection]:
    passes = max(1, round(10 * plan.scale))
    folder = plan.data / f"orders-{passes}"
    write_change_log(folder, passes)
    lines, targets, samples = [], [], {}
    for label, interval_ms in _INTERVALS_MS.items():
        arguments = {"folder": str(folder), "warehouse": str(plan.scratch / "exactly-once"), "interval_ms": interval_ms}
        sample = ours("exactly_once", arguments).run()
        samples[f"{TIDELAKE}, {label}"] = [sample]
        parts = sample.details["parts_cpu_s"]
        for name, cpu_s in [*parts.items(), ("together", sum(parts.values()))]:
            share = cpu_s / sample.cpu_s
            lines.append(
                [f"{label}: {name}", str(sample.details["checkpoints"]), f"{1000 * cpu_s:.0f}", _percent(share)]
            )
        targets.append(Goal(f"{label} < {_percent(_SHARE_MAX)} of the CPU", _percent(share), share < _SHARE_MAX))
    about = (
        f"The capture orders-100k, repeated {passes} times, {passes * CHANGES:,} changes, is written to a compacting "
        "table of four buckets on a local disk (an object store is also tested once, with four requests). The share is "
        "the CPU time of the functions that only exactly-once needs, relative to the whole process."
    )
    yield PageSection("Exactly-once", about, ["", "checkpoints", "CPU ms", "share"], lines, targets, samples)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


# ---------------------------------------------------------------- the job


class Meter:
    """Adds up the CPU time of methods for each part. Of nested calls only the outermost is measured."""

    def __init__(self) -> None:
        self.cpu_s = dict.fromkeys(_PARTS, 0.0)
        self._inside = threading.local()
        for part, methods in _PARTS.items():
            for kind, names in methods:
                for name in names:
                    setattr(kind, name, self._measured(part, getattr(kind, name)))

    def _measured(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def measured(*arguments: Any, **others: Any) -> Any:
            has_rows = part == "taking over" and bool(arguments[1].messages)
            if has_rows or getattr(self._inside, "any", False):
                return method(*arguments, **others)
            self._inside.any, began = True, time.thread_time()
            try:
                return method(*arguments, **others)
            finally:
                self._inside.any = False
                self.cpu_s[part] += time.thread_time() - began

        return measured


def ingest(folder: str, warehouse: str, interval_ms: int) -> None:
    new_orders_table(warehouse, COMPACTING)
    config = pipeline_config(folder, warehouse, {"interval_ms": interval_ms})
    meter, clock = Meter(), Clock()
    with clock:
        progress = asyncio.run(run(config))
    tell(progress.rows, clock, checkpoints=progress.checkpoints, parts_cpu_s=meter.cpu_s)


if __name__ == "__main__":
    pa.array([None])  # Arrow imports pandas for its first list: half a second, not to be measured
    ingest(**json.loads(sys.argv[1]))
