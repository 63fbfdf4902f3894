"""The range of a batch read of changes: the changes of several snapshots, or the difference between two states.

The states are snapshots, tags, times, or an automatic tag and the automatic tag before it.

Source: Java `table/source/AbstractDataTableScan.java` (createIncrementalStartingScanner),
`table/source/snapshot/IncrementalDeltaStartingScanner.java`, `IncrementalDiffStartingScanner.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final, TypeAlias

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import shown
from tidelake.storage.base.clock import datetime_in_ms
from tidelake.storage.model.options.scan_options import IncrementalScanMode, StartupMode
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.snapshots.tags import TagPeriod
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.append_diff import AppendDiff
from tidelake.storage.read.changes.change_reader import ChangeBatch, ChangeReader, ChangeSource, files_of_changes
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.expired_snapshots import snapshot_by_id
from tidelake.storage.read.snapshot_diff import SnapshotDiff


def snapshots_to_auto_tag(context: TableContext, name: str) -> tuple[Snapshot, Snapshot] | None:
    """Return the snapshot of the previous automatic tag and the snapshot of this tag; None if either is missing.

    Raises BadInput if the name is not one that an automatic tag of the table can have.
    """
    tags, period = context.tags, TagPeriod.of(context.options)
    end = period.time_of(name)
    if end is None:
        raise BadInput(
            f"option incremental-to-auto-tag = {name!r}: an automatic tag of {context.name} is named like "
            f"{period.example} (tag.creation-period, tag.period-formatter)"
        )
    names = tags.names()
    earlier = [(time, other) for other in names if (time := period.time_of(other)) is not None and time < end]
    if name not in names or not earlier:
        return None
    return tags.get(max(earlier)[1]), tags.get(name)


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """The changes of the snapshots start to end, both included. It is empty if end is before start.

    files: which files of these snapshots hold the changes.
    """

    start: int
    end: int
    files: ChangeSource


@dataclass(frozen=True, slots=True)
class SnapshotDifference:
    """The changes that turn the table at `before` into the table at `after`.

    before: None for an empty table.
    """

    before: Snapshot | None
    after: Snapshot


Increment: TypeAlias = SnapshotChanges | SnapshotDifference | None  # None: there are no changes to read


class NoIncrement(Enum):
    """The value for a read that asks for no range of changes."""

    NO_INCREMENT = auto()


NO_INCREMENT: Final = NoIncrement.NO_INCREMENT


def parse_scan_mode(text: str) -> IncrementalScanMode:
    try:
        return IncrementalScanMode(text)
    except ValueError:
        raise BadInput(f"{shown(text)}: expected one of {', '.join(IncrementalScanMode)}") from None


def is_incremental(context: TableContext) -> bool:
    """Return whether the options ask for changes instead of the rows at a snapshot."""
    return context.options.startup_mode in (StartupMode.INCREMENTAL, StartupMode.LATEST_DELTA)


def increment_of(context: TableContext) -> Increment:
    """Return the range of the options. Raises BadInput for an invalid range, SnapshotExpired for an expired one."""
    options = context.options
    if options.startup_mode is StartupMode.LATEST_DELTA:
        latest = context.snapshots.latest_id()
        return None if latest is None else SnapshotChanges(latest, latest, ChangeSource.DELTA)
    if (between := options.incremental_between) is not None:
        return _Range(context, options.incremental_scan_mode, options.tags_stand_for_snapshots).between(*between)
    if (times_ms := options.incremental_between_times_ms) is not None:
        return _Range(context, options.incremental_scan_mode).between_times(*times_ms)
    tag = options.incremental_to_auto_tag
    assert tag is not None
    return increment_to_auto_tag(context, tag)


def increment_between(context: TableContext, ends: Sequence[object], mode: IncrementalScanMode | None) -> Increment:
    """Return the changes after the first of two snapshot ids, tags or times, up to and including the second.

    Two tags mean the difference of their states, or with mode delta or changelog the changes between them.

    mode: None is `auto`.
    """
    wanted = mode or IncrementalScanMode.AUTO
    range_ = _Range(context, wanted, wanted in (IncrementalScanMode.DELTA, IncrementalScanMode.CHANGELOG))
    match tuple(ends):
        case (datetime() as start, datetime() as end):
            start_ms, end_ms = map(datetime_in_ms, (start, end))
            if end_ms < start_ms:
                raise BadInput(f"between=({start}, {end}): the second time is before the first; swap them")
            return range_.between_times(start_ms, end_ms)
        case (int() | str() as start, int() | str() as end):
            return range_.between(str(start), str(end))
        case _:
            raise BadInput(f"between={shown(ends)}: expected two snapshot ids, two tags or two datetimes")


def increment_to_auto_tag(context: TableContext, tag: str) -> Increment:
    found = snapshots_to_auto_tag(context, tag)
    return None if found is None else _difference(*found)


def read_increment(context: TableContext, increment: Increment) -> Iterator[ChangeBatch]:
    """Read the changes. Before the first batch it raises SnapshotExpired if the first or last snapshot of the range
    expired, and BadInput if one of them does not exist yet.
    """
    match increment:
        case None:
            return iter(())
        case SnapshotChanges():
            reader = ChangeReader(context, Subtask.of(context.options), files=increment.files)
            for snapshot_id in {increment.start, increment.end} if increment.start <= increment.end else ():
                reader.get(snapshot_id)
            return reader.read_range(increment.start, increment.end)
        case SnapshotDifference():
            rows = difference_of(context, increment.before, increment.after).rows()
            return difference_batches(increment.after, rows)


def difference_of(
    context: TableContext, before: Snapshot | None, after: Snapshot, *, sequence_numbers: bool = False
) -> SnapshotDiff | AppendDiff:
    """Return the difference of two states. With a primary key, rows are compared by key, otherwise as a multiset."""
    kind = SnapshotDiff if context.schema.has_primary_key else AppendDiff
    return kind(context, before, after, sequence_numbers=sequence_numbers)


def difference_batches(after: Snapshot, rows: Iterable[pa.RecordBatch]) -> Iterator[ChangeBatch]:
    """Yield the rows of a difference. Only the last batch has a position: reading continues behind the later state."""
    held: pa.RecordBatch | None = None
    for batch in rows:
        if held is not None:
            yield ChangeBatch(after.id, held, is_last=False)
        held = batch
    if held is not None:
        yield ChangeBatch(after.id, held, position=ChangePosition.behind(after))


@dataclass(frozen=True, slots=True)
class _Range:
    """Finds the increment of a range.

    mode: which changes of the range are read.
    tags_stand_for_snapshots: for two tags, the changes of the snapshots between them are read.
    """

    context: TableContext
    mode: IncrementalScanMode
    tags_stand_for_snapshots: bool = False

    def between(self, first: str, second: str) -> Increment:
        where = f"incremental-between = {first},{second}"
        tags = self.context.tags
        if {first, second} <= set(tags.names()):
            return self._between_tags(where, tags.get(first), tags.get(second))
        if not (first.isdecimal() and second.isdecimal()):
            raise BadInput(f"{where}: expected two snapshot ids or two tags of {self.context.name}")
        start, end = int(first), int(second)
        if end < start:
            raise BadInput(f"{where}: the second snapshot is before the first; swap them")
        if start == end or self.context.snapshots.latest_id() is None:
            return None
        if self.mode is IncrementalScanMode.DIFF:
            return _difference(snapshot_by_id(self.context, start), snapshot_by_id(self.context, end))
        return self._changes(start, end)

    def _between_tags(self, where: str, before: Snapshot, after: Snapshot) -> Increment:
        if after.id < before.id:
            raise BadInput(f"{where}: the second tag is of an older snapshot than the first; swap them")
        if not self.tags_stand_for_snapshots:
            return _difference(before, after)
        if self.mode is IncrementalScanMode.DIFF:
            raise BadInput(
                f"{where}: incremental-between-scan-mode = diff asks for the difference of two states, "
                "incremental-between-tag-to-snapshot for the changes between them; unset one"
            )
        return self._changes(before.id, after.id)

    def between_times(self, start_ms: int, end_ms: int) -> Increment:
        snapshots = self.context.snapshots
        earliest, latest = snapshots.earliest(), snapshots.latest()
        if earliest is None or latest is None or start_ms == end_ms:
            return None
        if start_ms > latest.time_ms or end_ms < earliest.time_ms:
            return None
        start, end = snapshots.as_of(start_ms), snapshots.as_of(end_ms) or latest
        if self.mode is not IncrementalScanMode.DIFF:
            return self._changes(earliest.id - 1 if start is None else start.id, end.id)
        if start is None and earliest.id > FIRST_SNAPSHOT_ID:
            start = earliest
        return _difference(start, end)

    def _changes(self, after: int, end: int) -> SnapshotChanges:
        files = _FILES.get(self.mode) or files_of_changes(self.context.options.changelog_producer)
        return SnapshotChanges(after + 1, end, files)


_FILES: Final = {
    IncrementalScanMode.DELTA: ChangeSource.DELTA,
    IncrementalScanMode.CHANGELOG: ChangeSource.CHANGELOG,
}


def _difference(before: Snapshot | None, after: Snapshot) -> Increment:
    return None if before is not None and before.id == after.id else SnapshotDifference(before, after)
