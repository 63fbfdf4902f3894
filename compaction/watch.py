"""Compaction as a service: looks at tables again whenever they have a new snapshot.

Beside writers that are write-only, which leave compaction to it. One process is enough for a database; two would take
each other's work away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from compaction.job import StopRequest, compact_table
from compaction.report import CompactionReport
from compaction.request import CompactionRequest
from storage.errors import BadInput, CommitConflict, TidelakeError
from storage.logs import get_logger
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext

_log = get_logger(__name__)

_FIRST_WAIT_MS: Final = 50
_LONGEST_WAIT_MS: Final = 60_000


def watch(
    names: Callable[[], Iterable[str]],
    open_table: Callable[[str], TableContext],
    request: CompactionRequest,
    stop: StopRequest,
    told: Callable[[CompactionReport], None] = lambda _: None,
    *,
    keep_going: bool = False,
    threads: int | None = None,
) -> None:
    """Until it is told to stop. told: hears of every round in which something was done.

    names: of the tables to look after, asked before each round. open_table: called anew each time, for schema and
    options may have changed. BadInput, as for a table that was dropped, ends the watch like any other error.
    keep_going: what goes wrong with one table is logged, the others are looked after; else it is raised. Losing against
    other commits is only logged. Between two looks there is a wait, which grows up to the smallest
    `continuous.discovery-interval` of the tables while nothing happens.
    """
    if request.full or request.order_by:
        raise BadInput("watching does what is due; compact in full, or sort, without watching")
    looked_at: dict[str, int | None] = {}  # by name: the newest snapshot in which nothing was left to do
    wait_ms = _FIRST_WAIT_MS
    while not stop.is_asked:
        interval_ms = _LONGEST_WAIT_MS
        has_news = False
        for name in names():
            try:
                context = open_table(name)
                interval_ms = min(interval_ms, context.options.discovery_interval_ms)
                latest_id = SnapshotStore(context.io, context.paths).latest_id()
                if looked_at.get(name, 0) == latest_id:
                    continue
                has_news = True
                looked_at[name] = latest_id
                report = compact_table(context, request, stop=stop, threads=threads)
            except CommitConflict as e:
                _log.warning("compaction conflicts", table=name, error=str(e))
            except (TidelakeError, OSError) as e:
                if not keep_going:
                    raise
                _log.warning("compaction failed", table=name, error=str(e))
            else:
                looked_at[name] = report.looked_at
                if report.buckets or report.lost:
                    told(report)
        wait_ms = _FIRST_WAIT_MS if has_news else min(wait_ms * 2, interval_ms)
        stop.wait_ms(wait_ms)
