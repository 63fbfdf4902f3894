"""Checks the changelog against the table again and again, beside running writers.

Each check starts at the snapshot where the last one ended, and folds only the changes since. Its cost is bounded twice:
a bucket that no commit touched since is not read, and after each check the watch rests, so that checks take at most
`TIME_SHARE_MAX` of the time of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tidelake.errors import SnapshotExpired
from tidelake.storage.base import env
from tidelake.storage.maintenance.verify.changelog_check import ChangelogReport, check_changelog
from tidelake.storage.model.table import TableContext

TIME_SHARE_MAX: Final = 0.1


@dataclass(frozen=True, slots=True)
class WatchedCheck:
    """A check of a watch.

    unchecked: the snapshots that had expired before they were checked, first and last; None if there are none. The
        check started after them, from the earliest state.
    rolled_back: the snapshot up to which the table was checked, if a rollback has removed it. The check started again
        from the earliest state.
    """

    report: ChangelogReport
    duration_s: float
    unchecked: tuple[int, int] | None = None
    rolled_back: int | None = None


def watch_changelog(
    open_table: Callable[[], TableContext], wait_s: Callable[[float], bool], start: int | None = None
) -> Iterator[WatchedCheck]:
    """Yield a check for new snapshots until `wait_s` returns False. The caller decides whether a difference ends it.

    A snapshot that expires while it is read is not damage: the check begins again.

    Raises UnsupportedFeature for a table without a primary key, BadInput for a start that does not exist, and for
    lost files CorruptFile or FileNotFoundError.

    open_table: called for each check, as schema and options may have changed.
    wait_s: waits for so many seconds, and returns whether to continue.
    start: the state to start from; None: the earliest one after which all changes exist.
    """
    checked = start
    is_first = True
    while True:
        table = open_table()
        latest = table.snapshots.latest_id()
        pause_s = table.options.discovery_interval_ms / 1000
        if latest is not None and (is_first or latest != checked):
            began_s = env.monotonic_s()
            unchecked = rolled_back = None
            earliest = table.snapshots.earliest_id() or 1
            if not is_first and checked is not None and not earliest <= checked <= latest:
                if checked < earliest:
                    unchecked = (checked + 1, earliest)
                else:
                    rolled_back = checked
                checked = min(earliest, latest)
            try:
                report = check_changelog(table, checked, latest, only_touched=True)
            except SnapshotExpired:
                report = None
            except FileNotFoundError:
                if (table.snapshots.earliest_id() or 1) == earliest:
                    raise  # nothing expired: the file is lost
                report = None
            took_s = env.monotonic_s() - began_s
            pause_s = max(pause_s, took_s * (1 / TIME_SHARE_MAX - 1))
            if report is not None:
                checked, is_first = report.end, False
                yield WatchedCheck(report, took_s, unchecked, rolled_back)
        if not wait_s(pause_s):
            return
