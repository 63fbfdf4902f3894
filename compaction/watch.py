"""Compaction as a service: looks at tables again whenever they have a new snapshot.

Beside writers that are write-only, which leave compaction to it. One process is enough for a database; two would take
each other's work away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from compaction.job import compact_table
from compaction.report import CompactionReport
from compaction.request import CompactionRequest
from compaction.stopping import StopRequest
from storage.errors import BadInput, CommitConflict, TidelakeError
from storage.logs import get_logger
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext

_log = get_logger(__name__)

_FIRST_WAIT_MS: Final = 50
_LONGEST_WAIT_MS: Final = 60_000
_FIRST_RETRY_MS: Final = 100
_LONGEST_RETRY_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class _Retry:
    """After failures in a row, a table is let alone until due_ms."""

    wait_ms: int
    due_ms: int

    @classmethod
    def after(cls, last: _Retry | None, now_ms: int) -> _Retry:
        wait_ms = _FIRST_RETRY_MS if last is None else min(last.wait_ms * 2, _LONGEST_RETRY_MS)
        return cls(wait_ms, now_ms + wait_ms)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def watch(
    names: Callable[[], Iterable[str]],
    open_table: Callable[[str], TableContext],
    request: CompactionRequest,
    stop: StopRequest,
    told: Callable[[CompactionReport], None] = lambda _: None,
    *,
    keep_going: bool = False,
    threads: int | None = None,
    now_ms: Callable[[], int] = _monotonic_ms,
) -> None:
    """Until it is told to stop. told: called after each round in which something was done.

    names: of the tables to look after, asked before each round. open_table: called anew each time, for schema and
    options may have changed. BadInput, as for a table that was dropped, ends the watch like any other error.
    keep_going: what goes wrong with one table is logged, the others are looked after; else it is raised. Losing against
    other commits is only logged. Either way the table is tried again, after a wait that doubles with every failure in a
    row. Between two looks there is a wait, which grows up to the smallest `continuous.discovery-interval` of the tables
    while nothing happens. now_ms: of any clock that is never set back.
    """
    if request.full or request.order_by:
        raise BadInput("watching does what is due; compact in full, or sort, without watching")
    looked_at: dict[str, int | None] = {}  # by name: the newest snapshot in which nothing was left to do
    retries: dict[str, _Retry] = {}
    wait_ms = _FIRST_WAIT_MS
    while not stop.is_asked:
        interval_ms = _LONGEST_WAIT_MS
        has_news = False
        for name in names():
            retry = retries.get(name)
            if retry is not None and (remaining_ms := retry.due_ms - now_ms()) > 0:
                interval_ms = min(interval_ms, remaining_ms)
                continue
            try:
                context = open_table(name)
                interval_ms = min(interval_ms, context.options.discovery_interval_ms)
                latest_id = SnapshotStore(context.io, context.paths).latest_id()
                is_new = looked_at.get(name, 0) != latest_id
                report = compact_table(context, request, stop=stop, threads=threads) if is_new else None
            except (TidelakeError, OSError) as e:
                is_conflict = isinstance(e, CommitConflict)
                if not (keep_going or is_conflict):
                    raise
                retries[name] = retry = _Retry.after(retry, now_ms())
                interval_ms = min(interval_ms, retry.wait_ms)
                what = "compaction conflicts" if is_conflict else "compaction failed"
                _log.warning(what, table=name, error=str(e), retry_in_ms=retry.wait_ms)
                continue
            retries.pop(name, None)
            if report is None:
                continue
            has_news = True
            looked_at[name] = report.looked_at
            if report.buckets or report.lost:
                told(report)
        wait_ms = _FIRST_WAIT_MS if has_news else min(wait_ms * 2, interval_ms)
        stop.wait_ms(wait_ms)
