"""The start of a stream of changes: a mode, a snapshot id, a time or a position.

Source: Java `table/source/snapshot/*StartingScanner.java`, `CoreOptions.java` (startupMode).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import check_whole_number, shown
from tidelake.storage.base.clock import datetime_in_ms
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.options import ChangelogProducer, TableOptions
from tidelake.storage.model.options.scan_options import StartupMode
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.position import ChangePosition

_EARLIEST: Final = "earliest"
_SNAPSHOT_MODES: Final = (StartupMode.FROM_SNAPSHOT, StartupMode.FROM_SNAPSHOT_FULL)
_TIME_MODES: Final = (
    StartupMode.FROM_TIMESTAMP,
    StartupMode.FROM_FILE_CREATION_TIME,
    StartupMode.FROM_CREATION_TIMESTAMP,
)
_LATEST_MODES: Final = (StartupMode.LATEST, StartupMode.LATEST_FULL, StartupMode.COMPACTED_FULL)
_EXPECTED: Final = (
    f"expected a snapshot id, a datetime, a position, {_EARLIEST}, {', '.join(_LATEST_MODES)}, or one of "
    f"{', '.join(_SNAPSHOT_MODES)}, {', '.join(_TIME_MODES)} with what it needs behind a colon: from-snapshot-full:7"
)


@dataclass(frozen=True, slots=True)
class Start:
    """A mode of `scan.mode` with the snapshot id or the time (epoch milliseconds) that it needs.

    is_strict: the snapshot must exist. Otherwise a stream starts with the earliest existing snapshot after it.
    """

    mode: StartupMode
    snapshot_id: int | None = None
    time_ms: int | None = None
    is_strict: bool = False

    @classmethod
    def of(cls, given: StartAt) -> Start | ChangePosition:
        """Raise BadInput for a value that names no start."""
        match given:
            case ChangePosition() | Start():
                return given
            case datetime():
                return cls(StartupMode.FROM_TIMESTAMP, time_ms=datetime_in_ms(given))
            case str():
                return cls._parse(given)
            case _:
                snapshot_id = check_whole_number("start", given, at_least=1)
                return cls(StartupMode.FROM_SNAPSHOT, snapshot_id, is_strict=True)

    @classmethod
    def _parse(cls, text: str) -> Start | ChangePosition:
        if text.startswith("{"):
            return ChangePosition.parse(text)
        if text == _EARLIEST:
            return cls(StartupMode.FROM_SNAPSHOT, 1)
        word, colon, place = text.partition(":")
        if word in _LATEST_MODES and not colon:
            return cls(StartupMode(word))
        if word in _SNAPSHOT_MODES and place.isdecimal():
            return cls(StartupMode(word), int(place))
        if word in _TIME_MODES and place:
            return cls(StartupMode(word), time_ms=_time_ms(place))
        raise BadInput(f"start = {shown(text)}: {_EXPECTED}")

    @classmethod
    def of_options(cls, options: TableOptions) -> Start | None:
        """Return None if no option names a start. Raises BadInput if no stream can start as the options say."""
        mode = options.startup_mode
        match mode:
            case None:
                return None
            case StartupMode.LATEST | StartupMode.LATEST_FULL | StartupMode.COMPACTED_FULL:
                return cls(mode)
            case StartupMode.FROM_TIMESTAMP:
                return cls(mode, time_ms=options.scan_timestamp_ms)
            case StartupMode.FROM_FILE_CREATION_TIME:
                return cls(mode, time_ms=options.scan_file_creation_time_ms)
            case StartupMode.FROM_CREATION_TIMESTAMP:
                return cls(mode, time_ms=options.scan_creation_time_ms)
            case StartupMode.FROM_SNAPSHOT | StartupMode.FROM_SNAPSHOT_FULL if options.scan_snapshot_id is not None:
                return cls(mode, options.scan_snapshot_id)
        what = "scan.mode" if options.is_given("scan.mode") else "its scan options"
        raise BadInput(
            f"{what} = {mode}: a stream of changes can't begin like this. Pass start= to follow(), or read with "
            "scan() or changes()"
        )


StartAt: TypeAlias = int | str | datetime | Start | ChangePosition


def first_position(context: TableContext, start: Start | ChangePosition) -> ChangePosition | None:
    """Return the start's position in the table's current state; None while the table has no matching snapshot."""
    if isinstance(start, ChangePosition):
        return start
    return _FIRST[start.mode](context, start)


def newest_compacted(context: TableContext) -> Snapshot | None:
    """Return the newest snapshot of a compaction; if the options plan full compactions, that of a full one.

    Returns the latest snapshot if no such snapshot exists.
    """
    options, snapshots = context.options, context.snapshots
    every = options.full_compaction_delta_commits
    if every is None and options.changelog_producer is ChangelogProducer.FULL_COMPACTION:
        every = 1
    latest = snapshots.latest()
    for snapshot in snapshots.backwards_from(latest) if latest is not None else ():
        if snapshot.commit_kind is CommitKind.COMPACT and (every is None or _is_planned(snapshot, every)):
            return snapshot
    return latest


def _is_planned(snapshot: Snapshot, every: int) -> bool:
    return snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER or snapshot.commit_identifier % every == 0


def _latest(context: TableContext, _: Start) -> ChangePosition:
    latest = context.snapshots.latest()
    return ChangePosition(1) if latest is None else ChangePosition.behind(latest)


def _latest_full(context: TableContext, _: Start) -> ChangePosition | None:
    latest = context.snapshots.latest_id()
    return None if latest is None else ChangePosition(latest, is_full=True)


def _compacted_full(context: TableContext, _: Start) -> ChangePosition | None:
    found = newest_compacted(context)
    return None if found is None else ChangePosition(found.id, is_full=True)


def _from_timestamp(context: TableContext, start: Start) -> ChangePosition:
    return ChangePosition(context.history.first_since(_require_number(start.time_ms)))


def _from_snapshot(context: TableContext, start: Start) -> ChangePosition:
    wanted = _require_number(start.snapshot_id)
    if start.is_strict:
        return ChangePosition(wanted)
    return ChangePosition(max(wanted, context.history.earliest_id() or 1))


def _from_snapshot_full(context: TableContext, start: Start) -> ChangePosition | None:
    earliest = context.snapshots.earliest_id()
    return None if earliest is None else ChangePosition(max(_require_number(start.snapshot_id), earliest), is_full=True)


def _from_file_creation_time(context: TableContext, start: Start) -> ChangePosition | None:
    latest = context.snapshots.latest_id()
    if latest is None:
        return None
    return ChangePosition(latest, is_full=True, files_since_ms=_require_number(start.time_ms))


def _from_creation_timestamp(context: TableContext, start: Start) -> ChangePosition | None:
    """Start with changes if the snapshots before and after this time exist; otherwise with the newer files."""
    history, time_ms = context.history, _require_number(start.time_ms)
    first = history.first_since(time_ms)
    if history.find(first - 1) is not None and history.find(first) is not None:
        return ChangePosition(first)
    return _from_file_creation_time(context, start)


_FIRST: Final[dict[StartupMode, Callable[[TableContext, Start], ChangePosition | None]]] = {
    StartupMode.LATEST: _latest,
    StartupMode.LATEST_FULL: _latest_full,
    StartupMode.COMPACTED_FULL: _compacted_full,
    StartupMode.FROM_TIMESTAMP: _from_timestamp,
    StartupMode.FROM_SNAPSHOT: _from_snapshot,
    StartupMode.FROM_SNAPSHOT_FULL: _from_snapshot_full,
    StartupMode.FROM_FILE_CREATION_TIME: _from_file_creation_time,
    StartupMode.FROM_CREATION_TIMESTAMP: _from_creation_timestamp,
}


def _require_number(number: int | None) -> int:
    assert number is not None
    return number


def _time_ms(text: str) -> int:
    """Read epoch milliseconds or an ISO time. A time without a zone is local."""
    if text.isdecimal():
        return int(text)
    try:
        return datetime_in_ms(datetime.fromisoformat(text))
    except ValueError:
        raise BadInput(f"{shown(text)} is not a time: write 2026-05-01T12:00:00Z, or epoch milliseconds") from None
