"""The metrics of a pipeline's run, and the durations of its checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.clock import Clock
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.storage.base.logs import get_logger

_WARN_INTERVAL_MS: Final = 60_000

_REMEDY: Final = "raise {setting}, give the tables fewer buckets, or share them among more pipelines"
_REMEDIES: Final = {
    "source_ms": "the checkpoint waited for the source's answer: look at the brokers and the network",
    "dead_letters_ms": "dead letters took most of the time: look at the store where they are kept, and at their number",
    "quarantine_ms": "records of tables in quarantine took most of the time: repair these tables, or look at the store "
    "where the records are kept",
    "progress_ms": "the progress file in the warehouse took most of the time: look at the warehouse's store",
    "moved_rows_ms": "rows whose key changes took most of the time: lower moved_rows.keep_ms or moved_rows.bytes_max",
}
"""What helps against the longest step, if it is not the writing of the tables."""

_log = get_logger(__name__)


@dataclass(slots=True)
class RunMetrics:
    """Metrics since the pipeline started, from `observed`. They change while it runs.

    unused_skips: records of `--skip-record` that did not fail.
    """

    observed: RunObservations
    unused_skips: set[tuple[TopicPartition, int]] = field(default_factory=set)
    ended: str = "running"

    @property
    def records(self) -> int:
        """Number of records that were written, skipped or set aside."""
        return self.observed.records

    @property
    def source_bytes(self) -> int:
        return self.observed.record_bytes

    @property
    def rows(self) -> int:
        return sum(table.rows for table in list(self.observed.tables.values()))

    @property
    def skipped(self) -> Counter[str]:
        return self.observed.skipped

    @property
    def dead_letters(self) -> int:
        return self.observed.dead_letters.total()

    @property
    def checkpoints(self) -> int:
        return self.observed.checkpoints

    @property
    def snapshots(self) -> dict[str, int]:
        """The newest snapshot of this pipeline in each table."""
        tables = list(self.observed.tables.items())
        return {name: table.snapshot_id for name, table in tables if table.snapshot_id is not None}


class CheckpointTimer:
    """Measures the steps of each checkpoint. The log warns if a checkpoint takes longer than the interval.

    interval_ms: the interval of checkpoints. It may change.
    activity: returns a context manager that is open for the duration of a step.
    setting: what the interval comes from.

    Only one checkpoint is measured at a time; `begin` starts the next.
    """

    def __init__(
        self,
        interval_ms: int,
        clock: Clock,
        activity: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
        setting: str = "checkpoint.interval_ms",
    ) -> None:
        self._setting = setting
        self._activity = activity
        self.interval_ms = interval_ms
        self._clock = clock
        self._begun_ms = clock.now_ms()
        self._steps: dict[str, int] = {}
        self._late_count = 0  # late checkpoints since the last warning
        self._warned_ms: int | None = None

    def begin(self) -> None:
        self._begun_ms, self._steps = self._clock.now_ms(), {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step for the duration of the block. The times of one step in a checkpoint are added up.

        name: a word for the log.
        """
        started_ms = self._clock.now_ms()
        try:
            with self._activity(name):
                yield
        finally:
            key = f"{name}_ms"
            self._steps[key] = self._steps.get(key, 0) + self._clock.now_ms() - started_ms

    def end(self, tables: int) -> dict[str, int]:
        """Return the log fields of the checkpoint: `took_ms`, and `late_ms` if it took longer than the interval.

        A late checkpoint is also logged as a warning, at most once a minute.
        """
        took_ms = self._clock.now_ms() - self._begun_ms
        late_ms = max(0, took_ms - self.interval_ms)
        if late_ms:
            self._warn(late_ms, tables)
        return {"took_ms": took_ms, "late_ms": late_ms}

    def _warn(self, late_ms: int, tables: int) -> None:
        self._late_count += 1
        now_ms = self._clock.now_ms()
        if self._warned_ms is not None and now_ms - self._warned_ms < _WARN_INTERVAL_MS:
            return
        _log.warning(
            "checkpoint_late",
            late_ms=late_ms,
            interval_ms=self.interval_ms,
            **self._steps,
            tables=tables,
            late_checkpoints=self._late_count,
            effect=f"rows become visible later than set in {self._setting}; nothing is lost",
            remedy=_REMEDIES.get(
                max(self._steps, key=self._steps.__getitem__, default=""), _REMEDY.format(setting=self._setting)
            ),
        )
        self._late_count, self._warned_ms = 0, now_ms
