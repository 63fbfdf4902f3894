"""What a run of a pipeline has done so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class RunMetrics:
    """Since the pipeline started. Changes while it runs."""

    records: int = 0
    source_bytes: int = 0
    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0
    checkpoints: int = 0
    snapshots: dict[str, int] = field(default_factory=dict)  # table to its newest one of ours
    ended: str = "running"
