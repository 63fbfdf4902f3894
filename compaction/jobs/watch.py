"""Compaction as a service: checks tables again whenever they have a new snapshot.

It is for write-only writers, which leave compaction to it. One process is enough for a database; two would discard each
other's work. Where `full-compaction.delta-commits` asks for it, a full compaction follows every n commits of rows,
counted from the table's snapshots.

Source: Java `flink/sink/GlobalFullCompactionSinkWrite.java`, which counts its own checkpoints instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.compact_job import compact_round
from tidelake.compaction.jobs.job_expiry import JobExpiry
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.merge_tree.compact_unit import PickReason
from tidelake.compaction.report import CompactionReport
from tidelake.errors import BadInput, CommitConflict, TidelakeError, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.base.logs import get_logger
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY, CommitKind
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

_WAIT_MS_MIN: Final = 50
_WAIT_MS_MAX: Final = 60_000
_RETRY_BACKOFF: Final = ExponentialBackoff(first_ms=100, longest_ms=300_000)


@dataclass(frozen=True, slots=True)
class _Retry:
    """The back-off of a table after consecutive failures: it is skipped until due_ms."""

    failures: int
    wait_ms: int
    due_ms: int

    @classmethod
    def after(cls, last: _Retry | None, now_ms: int) -> _Retry:
        failures = 0 if last is None else last.failures
        wait_ms = round(_RETRY_BACKOFF.wait_ms(failures))
        return cls(failures + 1, wait_ms, now_ms + wait_ms)


def _monotonic_ms() -> int:
    return env.monotonic_ns() // 1_000_000


def watch(
    names: Callable[[], Iterable[str]],
    open_table: Callable[[str], TableContext],
    request: CompactionRequest,
    cancellation: CancellationToken,
    on_report: Callable[[CompactionReport], None] = lambda _: None,
    *,
    keep_going: bool = False,
    threads: int | None = None,
    now_ms: Callable[[], int] = _monotonic_ms,
) -> None:
    """Compact tables until cancelled.

    Tables take turns: one round each. Old snapshots of compacted tables expire meanwhile.

    names: returns the tables to watch; called before each turn.
    open_table: called for each turn, as schema and options may have changed. BadInput, for example for a dropped table,
        ends the watch like any other error.
    on_report: called after each round that compacted something.
    keep_going: log errors of one table, or of `names`, and watch the other tables. What is unsupported is logged once.
        Otherwise errors are raised.
    now_ms: a clock that is never set back.

    A conflict with another commit is only logged. In all cases a table is tried again after a wait that doubles with
    each consecutive failure. If nothing happens, the wait between two checks grows up to the smallest
    `continuous.discovery-interval` of the tables.
    """
    if request.full or request.order_by:
        raise BadInput("watching compacts only what is due; run a full or sorting compaction without watching")
    found = list(names())  # a wrong name is reported at once, even with keep_going
    wait_ms = _WAIT_MS_MIN
    with JobExpiry(cancellation) as expiry:
        tables = _WatchedTables(open_table, request, cancellation, on_report, expiry, keep_going, threads, now_ms)
        while not cancellation.is_cancelled:
            has_new_snapshot, interval_ms = tables.run_round(found)
            wait_ms = _WAIT_MS_MIN if has_new_snapshot else min(wait_ms * 2, interval_ms)
            cancellation.wait_ms(wait_ms)
            found = _list_tables_with_retry(names, cancellation, now_ms) if keep_going else list(names())


def _list_tables_with_retry(
    names: Callable[[], Iterable[str]], cancellation: CancellationToken, now_ms: Callable[[], int]
) -> list[str]:
    """List the tables, and try again until it succeeds."""
    retry: _Retry | None = None
    while not cancellation.is_cancelled:
        try:
            return list(names())
        except (TidelakeError, OSError) as e:
            retry = _Retry.after(retry, now_ms())
            _log.warning("tables can't be listed", error=str(e), retry_in_ms=retry.wait_ms)
            cancellation.wait_ms(retry.wait_ms)
    return []


class _WatchedTables:
    """The state of each watched table, by name."""

    def __init__(
        self,
        open_table: Callable[[str], TableContext],
        request: CompactionRequest,
        cancellation: CancellationToken,
        on_report: Callable[[CompactionReport], None],
        expiry: JobExpiry,
        keep_going: bool,
        threads: int | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._open_table = open_table
        self._request = request
        self._cancellation = cancellation
        self._on_report = on_report
        self._expiry = expiry
        self._keeps_going = keep_going
        self._threads = threads
        self._now_ms = now_ms
        self._cache = MetadataCache()
        self._compacted_up_to: dict[str, int | None] = {}  # the newest snapshot in which nothing was left to do
        self._delta_commit_counters: dict[str, DeltaCommitCounter] = {}
        self._retries: dict[str, _Retry] = {}
        self._logged_failures: dict[str, tuple[str, int]] = {}  # the failure, and the wait after it

    def run_round(self, names: Iterable[str]) -> tuple[bool, int]:
        """Run a round for each table with a new snapshot. Returns whether one had, and otherwise how long to wait."""
        interval_ms = _WAIT_MS_MAX
        has_new_snapshot = False
        for name in names:
            if self._cancellation.is_cancelled:
                break
            retry = self._retries.get(name)
            if retry is not None and (remaining_ms := retry.due_ms - self._now_ms()) > 0:
                interval_ms = min(interval_ms, remaining_ms)
                continue
            try:
                context = self._open_table(name).with_cache(self._cache)
                interval_ms = min(interval_ms, context.options.discovery_interval_ms)
                has_new_snapshot |= self._round(name, context)
            except (TidelakeError, OSError) as e:
                if not (self._keeps_going or isinstance(e, CommitConflict)):
                    raise
                self._retries[name] = retry = _Retry.after(self._retries.get(name), self._now_ms())
                interval_ms = min(interval_ms, retry.wait_ms)
                self._log_failure(name, e, retry)
            else:
                self._retries.pop(name, None)
                self._logged_failures.pop(name, None)
        return has_new_snapshot, interval_ms

    def _round(self, name: str, context: TableContext) -> bool:
        """Return whether the table had something to check. Raises an error that stopped the round."""
        store = context.snapshots
        latest_id = store.latest_id()
        if self._compacted_up_to.get(name, 0) == latest_id:
            return False
        report = compact_round(
            context,
            self._request_for(name, context, store, latest_id),
            cancellation=self._cancellation,
            expiry=self._expiry,
            threads=self._threads,
        )
        if report.buckets or report.lost:
            self._on_report(report)
        if report.error is not None:
            if report.buckets:  # readable buckets must not wait for unreadable ones
                self._retries.pop(name, None)
            raise report.error
        if not (report.has_more or report.is_cancelled):
            self._compacted_up_to[name] = report.planned_snapshot_id
        return True

    def _request_for(
        self, name: str, context: TableContext, store: SnapshotStore, latest_id: int | None
    ) -> CompactionRequest:
        """Return the request for a table. Writers that compact count delta commits themselves."""
        every = context.options.full_compaction_delta_commits
        if every is None or latest_id is None or not (context.options.write_only and context.schema.has_primary_key):
            return self._request
        counted = self._delta_commit_counters.get(name)
        if counted is None or counted.every != every:
            counted = self._delta_commit_counters[name] = DeltaCommitCounter(every)
        return replace(self._request, full=True) if counted.is_full_due(store, latest_id) else self._request

    def _log_failure(self, name: str, error: Exception, retry: _Retry) -> None:
        text, longest_ms = self._logged_failures.get(name, ("", 0))
        if text == str(error) and (retry.wait_ms <= longest_ms or isinstance(error, UnsupportedFeature)):
            return
        self._logged_failures[name] = str(error), retry.wait_ms
        if isinstance(error, UnsupportedFeature):
            _log.warning("table skipped", table=name, reason=str(error))
            return
        what = "compaction conflicts" if isinstance(error, CommitConflict) else "compaction failed"
        _log.warning(what, table=name, error=str(error), retry_in_ms=retry.wait_ms)


class DeltaCommitCounter:
    """Counts the delta commits of one watched table; reads each snapshot once."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._counted_to: int | None = None
        self._count = 0

    def is_full_due(self, store: SnapshotStore, latest_id: int) -> bool:
        """Return whether `full-compaction.delta-commits` is reached."""
        if self._counted_to is None or latest_id < self._counted_to:  # at the start, or after a rollback
            self._count = 0
            self._counted_to = max(0, latest_id - 3 * self.every)  # commits of rows and compactions roughly alternate
        for snapshot in store.range(self._counted_to + 1, latest_id):
            if snapshot.commit_kind is CommitKind.APPEND:
                self._count += 1
            elif _is_full(snapshot):
                self._count = 0
        self._counted_to = latest_id
        return self._count >= self.every


def _is_full(snapshot: Snapshot) -> bool:
    return PickReason.FULL in snapshot.properties.get(COMPACTION_REASON_PROPERTY, "")
