"""Reads while snapshots expire. A file that is missing because its snapshot expired is no corruption.

A reader holds no lock. The expiry of the snapshot that it reads deletes the snapshot's files, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tidelake.errors import BadInput, CorruptFile, SnapshotExpired
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tags import tagged_snapshots
from tidelake.storage.model.table import TableContext

T = TypeVar("T")


@contextmanager
def raise_if_snapshot_expired(context: TableContext, snapshot_id: int) -> Iterator[None]:
    """Wrap code that reads files of a snapshot.

    Raises SnapshotExpired if a file is missing or truncated because the snapshot no longer exists. While the snapshot
    exists, the original error is raised.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if _snapshot_exists(context, snapshot_id):
            raise
        raise snapshot_expired(context, snapshot_id) from error


@contextmanager
def raise_if_changes_expired(context: TableContext, snapshot: Snapshot) -> Iterator[None]:
    """Wrap code that reads the changes of a snapshot, in the same way.

    The changes exist as long as the snapshot or its separate changelog. A tag keeps no changes. So the changes of a
    first snapshot may have expired before it came to this branch from a tag.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if not context.history.has_changes(snapshot.id):
            raise snapshot_expired(context, snapshot.id, changes=True) from error
        if context.history.may_be_without_changelog(snapshot):
            where = f"its changelog expired before branch {context.branch} got the snapshot from a tag"
            raise SnapshotExpired(
                context.name, snapshot.id, f"{where}; changes can be read from {snapshot.id + 1} on"
            ) from error
        raise


def of_latest_snapshot(context: TableContext, read: Callable[[Snapshot | None], T], known: Snapshot | None = None) -> T:
    """Return what `read` finds in the table's newest snapshot. If that expires meanwhile, read a newer one.

    read: gets None if the table has no snapshot.
    known: see `SnapshotStore.latest_since`
    """
    while True:
        snapshot = context.snapshots.latest_since(known)
        try:
            return read(snapshot)
        except (CorruptFile, FileNotFoundError):
            known = None
            newest = context.snapshots.latest()
            if snapshot is None or newest is None or newest.id <= snapshot.id or _snapshot_exists(context, snapshot.id):
                raise


def newest_live_entries(context: TableContext) -> list[ManifestEntry]:
    """Return the files of the table as it is now, in the order in which they were added. Raises CorruptFile."""
    return of_latest_snapshot(context, lambda latest: [] if latest is None else live_entries(context, latest))


def snapshot_expired(context: TableContext, snapshot_id: int, *, changes: bool = False) -> SnapshotExpired:
    """Return the error for an expired snapshot. Its message names the snapshots that exist now.

    changes: name also the snapshots of which only the changes can be read.
    """
    store = context.history if changes else context.snapshots
    earliest, latest = store.earliest_id(), store.latest_id()
    available = (
        "the table has none now"
        if earliest is None or latest is None
        else (f"its snapshots are {earliest} to {latest} now")
    )
    return SnapshotExpired(context.name, snapshot_id, available)


def _snapshot_exists(context: TableContext, snapshot_id: int) -> bool:
    """Return whether the snapshot still exists, in the table or as a tag.

    Expiry first moves the hint for the earliest snapshot. Files of snapshots below the hint may be missing already.
    """
    store = context.snapshots
    earliest = store.earliest_id()
    if earliest is not None and earliest <= snapshot_id and store.exists(snapshot_id):
        return True
    return any(snapshot.id == snapshot_id for snapshot in tagged_snapshots(context.io, context.paths))


def snapshot_by_id(context: TableContext, snapshot_id: int) -> Snapshot:
    """Return the snapshot. Raises SnapshotExpired if it existed before, BadInput if it does not exist yet."""
    snapshots = context.snapshots
    found = snapshots.find(snapshot_id)
    if found is not None:
        return found
    earliest, latest = snapshots.earliest_id(), snapshots.latest_id()
    if latest is not None and snapshot_id < latest:
        raise snapshot_expired(context, snapshot_id)
    available = "it has no snapshot yet" if latest is None else f"its snapshots are {earliest} to {latest}"
    raise BadInput(f"{context.name} has no snapshot {snapshot_id}: {available}")
