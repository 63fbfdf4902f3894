"""Chooses the snapshot of a read: the caller names it, or the table options do, stored or dynamic.

Source: Java `table/source/snapshot/*StartingScanner.java`, `table/source/snapshot/TimeTravelUtil.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import check_whole_number
from tidelake.storage.base.clock import datetime_in_ms
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.options.scan_options import StartupMode
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import snapshot_by_id
from tidelake.storage.read.stream.start import Start, first_position, newest_compacted

_WATERMARK: Final = "watermark-"


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """The snapshot that a scan reads, named in one of these ways. If none is set, it is the latest snapshot.

    files_since_ms: read only files of the latest snapshot that were created at this time or later.
    """

    snapshot_id: int | None = None
    tag: str | None = None
    as_of_ms: int | None = None
    files_since_ms: int | None = None

    @classmethod
    def of(cls, context: TableContext) -> TimeTravel:
        """Raise BadInput for a snapshot that does not exist, UnsupportedFeature for what a scan can't do."""
        options = context.options
        if options.startup_mode is not None:
            check_supported(context, Operation.READ)  # its errors are more precise than those for a mode
        match mode := options.startup_mode:
            case None | StartupMode.LATEST_FULL | StartupMode.LATEST:
                return cls()
            case StartupMode.COMPACTED_FULL:
                found = newest_compacted(context)
                return cls(snapshot_id=None if found is None else found.id)
            case StartupMode.FROM_TIMESTAMP:
                return cls(as_of_ms=options.scan_timestamp_ms)
            case StartupMode.FROM_SNAPSHOT | StartupMode.FROM_SNAPSHOT_FULL:
                return cls._from_options(context)
            case StartupMode.FROM_FILE_CREATION_TIME:
                return cls(files_since_ms=options.scan_file_creation_time_ms)
            case StartupMode.FROM_CREATION_TIMESTAMP:
                found_since = first_position(context, Start(mode, time_ms=options.scan_creation_time_ms))
                if found_since is None or found_since.is_full:
                    return cls(files_since_ms=options.scan_creation_time_ms)
                return cls(snapshot_id=found_since.next_snapshot_id)
            case StartupMode.INCREMENTAL | StartupMode.LATEST_DELTA:
                raise BadInput(f"{context.name}: its options ask for changes (scan.mode = {mode}), not for a snapshot")

    @classmethod
    def _from_options(cls, context: TableContext) -> TimeTravel:
        options = context.options
        if (version := options.scan_version) is not None:
            return cls._of_version(context, version)
        if (watermark_ms := options.scan_watermark_ms) is not None:
            return cls(snapshot_id=_at_watermark(context, watermark_ms))
        return cls(options.scan_snapshot_id, options.scan_tag)

    @classmethod
    def _of_version(cls, context: TableContext, version: str) -> TimeTravel:
        if version in context.tags.names():
            return cls(tag=version)
        if version.startswith(_WATERMARK) and version.removeprefix(_WATERMARK).isdecimal():
            return cls(snapshot_id=_at_watermark(context, int(version.removeprefix(_WATERMARK))))
        if version.isdecimal():
            return cls(snapshot_id=int(version))
        raise BadInput(
            f"option scan.version = {version!r}: {context.name} has no such tag, and it is not a snapshot id"
        )


def _at_watermark(context: TableContext, watermark_ms: int) -> int:
    snapshots = context.snapshots
    for snapshot in snapshots.range(snapshots.earliest_id(), snapshots.latest_id()):
        if snapshot.watermark is not None and snapshot.watermark >= watermark_ms:
            return snapshot.id
    raise BadInput(f"{context.name} has no snapshot with a watermark of {watermark_ms} or later")


# ---------------------------------------------------------------- finding the snapshot


def named_state(
    context: TableContext, snapshot_id: int | None, tag: str | None, as_of: datetime | int | None
) -> Snapshot | None:
    """Return the snapshot; None for a table without snapshots.

    as_of: a datetime (local time if it has no zone) or epoch milliseconds.

    Raises BadInput if no such snapshot exists, SnapshotExpired if it expired.
    """
    if tag is not None:
        return context.tags.get(tag)
    if as_of is not None:
        return _as_of(context, as_of)
    return context.snapshots.latest() if snapshot_id is None else _by_id(context, snapshot_id)


def time_in_ms(as_of: datetime | int) -> int:
    """Return epoch milliseconds. Raises BadInput for a value that is no time."""
    if not isinstance(as_of, datetime | int):
        raise BadInput(f"scan(as_of={as_of!r}): as_of is a datetime or epoch milliseconds")
    return as_of if isinstance(as_of, int) else datetime_in_ms(as_of)


def _by_id(context: TableContext, snapshot_id: int) -> Snapshot:
    check_whole_number("scan(snapshot=…)", snapshot_id, at_least=1)
    return snapshot_by_id(context, snapshot_id)


def _as_of(context: TableContext, as_of: datetime | int) -> Snapshot:
    found = context.snapshots.as_of(time_in_ms(as_of))
    if found is None:
        raise BadInput(f"{context.name} has no snapshot that was committed at {as_of} or earlier")
    return found
