"""Reading while snapshots expire: what is missing then is no damage.

A reader holds no lock: an expiry of the snapshot that it reads deletes its files, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storage.errors import BadInput, CorruptFile, SnapshotExpired
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.tags import tagged_snapshots
from storage.table import TableContext


@contextmanager
def raise_if_snapshot_expired(context: TableContext, snapshot_id: int) -> Iterator[None]:
    """Around whatever reads files of a snapshot: raises SnapshotExpired for a file that is missing, or broken off,
    because the snapshot is no longer there; CorruptFile stays what it is while the snapshot is there.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if _is_there(context, snapshot_id):
            raise
        raise snapshot_expired(context, snapshot_id) from error


@contextmanager
def raise_if_changes_expired(context: TableContext, snapshot: Snapshot) -> Iterator[None]:
    """The same around whatever reads the changes of a snapshot: they live as long as it does, or the changelog that
    outlived it. A tag keeps none: those of a branch's first snapshot may have expired before the branch began.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if not context.history.has_changes(snapshot.id):
            raise snapshot_expired(context, snapshot.id, changes=True) from error
        if context.history.may_be_without_changelog(snapshot):
            where = f"its changelog expired before branch {context.branch} began with its tag"
            raise SnapshotExpired(
                context.name, snapshot.id, f"{where}; changes can be read from {snapshot.id + 1} on"
            ) from error
        raise


def snapshot_expired(context: TableContext, snapshot_id: int, *, changes: bool = False) -> SnapshotExpired:
    """The error for a snapshot that expired; its message names the snapshots that there are now.

    changes: name those whose changes can be read, too.
    """
    store = context.history if changes else context.snapshots
    earliest, latest = store.earliest_id(), store.latest_id()
    there = "the table has none now" if earliest is None or latest is None else f"there are {earliest} to {latest} now"
    return SnapshotExpired(context.name, snapshot_id, there)


def _is_there(context: TableContext, snapshot_id: int) -> bool:
    """Expiry moves the hint for the earliest first; below it files may be missing already. A tag keeps its snapshot."""
    store = context.snapshots
    earliest = store.earliest_id()
    if earliest is not None and earliest <= snapshot_id and store.exists(snapshot_id):
        return True
    return any(snapshot.id == snapshot_id for snapshot in tagged_snapshots(context.io, context.paths))


def snapshot_by_id(context: TableContext, snapshot_id: int) -> Snapshot:
    """Raises SnapshotExpired for one that was there, BadInput for one that is yet to come."""
    snapshots = context.snapshots
    found = snapshots.find(snapshot_id)
    if found is not None:
        return found
    earliest, latest = snapshots.earliest_id(), snapshots.latest_id()
    if latest is not None and snapshot_id < latest:
        raise snapshot_expired(context, snapshot_id)
    there = "there is none yet" if latest is None else f"there are {earliest} to {latest}"
    raise BadInput(f"{context.name} has no snapshot {snapshot_id}: {there}")
