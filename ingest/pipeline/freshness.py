"""Keeps the freshness of a running pipeline: measures each checkpoint, lets `freshness_control` decide, applies it, and
says what changed and why.

Checkpoints are the pipeline's, so the table with the smallest target rules for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelake.compaction.scheduler import CompactionScheduler
from tidelake.ingest.monitoring.observations import FreshnessChange, FreshnessObservation, HourOfWrites, RunObservations
from tidelake.ingest.pipeline.freshness_control import (
    Binding,
    CheckpointSample,
    FreshnessGoal,
    FreshnessState,
    Pace,
    decided,
)
from tidelake.ingest.settings import RequestPricesSettings
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.store_requests import STORE_REQUESTS, StoreRequests
from tidelake.storage.write.memory_budget import MemoryBudget

READY_TOLERANCE_MS: Final = 10_000  # without a commit; short intervals would make `/ready` flap
WAITING_READER: Final = "waiting for the decoder"  # activity of the reader whose records are not taken
_HOUR_MS: Final = 3_600_000
_MEASURED_MS: Final = 600_000  # of the last minutes an hour is computed
_MEASUREMENTS_MAX: Final = 600

REMEDIES: Final = {
    Binding.SOURCE: "records arrive late: look at what produces them (`tidelake help runbook#freshness-is-missed`)",
    Binding.CPU: "give the process more processors, or share the tables among more pipelines",
    Binding.STORE: "look at the store, the network and what else runs here; fewer buckets or a longer target help, too",
    Binding.COMPACTION: "compact with `tidelake table compact` in a process of its own, or give the process processors",
    Binding.COST: "raise `freshness.price_an_hour_max` or the target",
}
"""What helps if the target is missed."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FreshnessParts:
    """What a keeper needs of the pipeline.

    table: the entry whose target rules.
    target_of: target of a table in ms; None if it has none.
    memory: of the rows that are buffered.
    scheduler: of the compactions.
    """

    table: str
    target_of: Callable[[str], int | None]
    prices: RequestPricesSettings
    observed: RunObservations
    memory: MemoryBudget
    scheduler: CompactionScheduler
    requests: StoreRequests = STORE_REQUESTS


@dataclass(frozen=True, slots=True)
class _Counters:
    """What grows while the pipeline runs, and what it was."""

    at_ms: int
    cpu_s: float
    compaction_wait_s: float
    reader_wait_ms: int
    puts: int
    gets: int
    written_bytes: int


class FreshnessKeeper:
    """Call `begins` and `ended` around each checkpoint.

    goal: what is promised.
    interval_ms: the interval of the start.
    """

    def __init__(self, goal: FreshnessGoal, interval_ms: int, parts: FreshnessParts) -> None:
        self._goal = goal
        self._parts = parts
        self.state = goal.first_state(interval_ms)
        self._written_bytes = 0
        self._measured: deque[_Counters] = deque([self._counters()], maxlen=_MEASUREMENTS_MAX)
        self._begun = self._last = self._measured[0]
        self._held_bytes = 0
        observed = parts.observed
        self._commits = {name: table.commits for name, table in list(observed.tables.items())}
        observed.stall_tolerance_ms = max(READY_TOLERANCE_MS, 2 * goal.target_ms)
        observed.interval_ms = interval_ms
        observed.freshness = self._shown = FreshnessObservation(
            goal.target_ms, parts.table, parts.target_of, parts.prices.currency, buffer_bytes=goal.buffer_bytes_max
        )

    def begins(self) -> None:
        """Record that a checkpoint begins."""
        self._held_bytes = self._parts.memory.held_bytes
        self._begun = self._counters()

    def ended(self, oldest_written_ms: int, nbytes: int, written_bytes: int) -> FreshnessState:
        """Decide after a checkpoint, and return the decisions.

        oldest_written_ms: monotonic time when its first record was written
        nbytes: bytes of its records
        written_bytes: bytes of its files, and of compactions that it published
        """
        self._written_bytes += written_bytes
        now, last, prices = self._counters(), self._last, self._parts.prices
        reached_ms, upstream_ms = self._ages(now.at_ms - oldest_written_ms)
        puts, gets = now.puts - last.puts, now.gets - last.gets
        sample = CheckpointSample(
            span_ms=max(1, self._begun.at_ms - oldest_written_ms),
            took_ms=now.at_ms - self._begun.at_ms,
            cpu_ms=round((now.cpu_s - self._begun.cpu_s) * 1000),
            compaction_wait_ms=round((now.compaction_wait_s - last.compaction_wait_s) * 1000),
            reader_wait_ms=now.reader_wait_ms - last.reader_wait_ms,
            upstream_ms=upstream_ms,
            nbytes=nbytes,
            held_bytes=self._held_bytes,
            price=(puts * prices.put_per_million + gets * prices.get_per_million) / 1_000_000,
        )
        before, self.state, self._last = self.state, decided(self.state, sample, self._goal), now
        self._measured.append(now)
        while len(self._measured) > 2 and now.at_ms - self._measured[0].at_ms > _MEASURED_MS:
            self._measured.popleft()
        self._shown.hour = self._hour()
        self._show(before, reached_ms)
        return self.state

    def _ages(self, since_written_ms: int) -> tuple[int | None, int | None]:
        """Return two ages of records that were just committed; None: unknown.

        The first is the greatest, in proportion to its table's target. The second is that of the ruling tables' oldest
        record at the time when the first record was written.
        """
        reached_ms: float | None = None
        upstream_ms: int | None = None
        for name, table in list(self._parts.observed.tables.items()):
            target_ms, is_new = self._parts.target_of(name), self._commits.get(name) != table.commits
            self._commits[name] = table.commits
            if target_ms is None or table.oldest_age_ms is None or not is_new:
                continue
            reached_ms = max(reached_ms or 0, table.oldest_age_ms * self._goal.target_ms / target_ms)
            if target_ms <= self._goal.target_ms:
                upstream_ms = max(upstream_ms or 0, table.oldest_age_ms - since_written_ms)
        return None if reached_ms is None else round(reached_ms), upstream_ms

    def _counters(self) -> _Counters:
        observed, counts = self._parts.observed, self._parts.requests.counts()
        return _Counters(
            observed.clock.now_ms(),
            env.process_cpu_s(),
            self._parts.scheduler.waited_s,
            observed.time_in(WAITING_READER),
            sum(count for (operation, _), count in counts.items() if operation.is_charged_as_put),
            sum(count for (operation, _), count in counts.items() if operation.is_charged_as_get),
            self._written_bytes,
        )

    def _hour(self) -> HourOfWrites:
        """Return what an hour costs, by the last minutes."""
        first, last, prices = self._measured[0], self._measured[-1], self._parts.prices
        hours = max(1, last.at_ms - first.at_ms) / _HOUR_MS
        puts, gets = (last.puts - first.puts) / hours, (last.gets - first.gets) / hours
        price = (puts * prices.put_per_million + gets * prices.get_per_million) / 1_000_000
        return HourOfWrites(puts, gets, (last.written_bytes - first.written_bytes) / hours, price)

    def _show(self, before: FreshnessState, reached_ms: int | None) -> None:
        """Put the decisions on the status page, and what changed into the log."""
        state, shown, observed = self.state, self._shown, self._parts.observed
        observed.interval_ms = state.interval_ms
        shown.binds, shown.pace, shown.buffer_bytes = state.binds.value, state.pace.value, state.buffer_bytes
        shown.reason, shown.reached_ms = state.reason, reached_ms
        changed = _changes(before, state)
        if not changed:
            return
        shown.changes.append(FreshnessChange(epoch_ms(), ", ".join(changed.values()), state.reason))
        is_missed = reached_ms is not None and reached_ms > self._goal.target_ms
        facts: dict[str, Any] = {
            "table": self._parts.table,
            "target_ms": self._goal.target_ms,
            "reached_ms": reached_ms,
            "changed": ", ".join(changed.values()),
            "reason": state.reason,
            "binds": state.binds.value,
        }
        if is_missed and "binds" in changed and state.binds in REMEDIES:
            _log.warning("freshness", **facts, effect="rows are older than promised", remedy=REMEDIES[state.binds])
        else:
            _log.info("freshness", **facts)


def _changes(before: FreshnessState, after: FreshnessState) -> dict[str, str]:
    """Return what changed, in words by name."""
    found = {}
    if before.interval_ms != after.interval_ms:
        found["interval"] = f"interval {before.interval_ms:,} ms → {after.interval_ms:,} ms"
    if before.buffer_bytes != after.buffer_bytes:
        sizes = (f"{nbytes / (1 << 20):,.1f} MiB" for nbytes in (before.buffer_bytes, after.buffer_bytes))
        found["buffer"] = f"buffer {' → '.join(sizes)}, for the rate of the records"
    if before.pace is not after.pace:
        found["compaction"] = f"compaction at {after.pace.value} pace"
    if before.binds is not after.binds:
        found["binds"] = "nothing binds any more" if after.binds is Binding.NOTHING else f"{after.binds.value} binds"
    return found


def compaction_pause_ms(state: FreshnessState) -> int:
    """Return how long after the start of a checkpoint no compaction begins by itself."""
    return state.interval_ms // 2 if state.pace is Pace.HALF else 0
