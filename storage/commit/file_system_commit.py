"""Commits snapshots with the file system alone: it creates `snapshot-N` if absent.

Creation alone is not enough: the snapshot must follow the newest one. A writer may pause so long that its snapshot id
is used by others and expires. It would then add a snapshot below the earliest one, which no reader reads. So the
snapshot is checked after its creation: its base must still exist, or later snapshots must be built on it. A first
snapshot has no base: then the table must still be the one that was opened. Any other snapshot is withdrawn.

Source: Java `catalog/RenamingSnapshotCommit.java`. The check after the creation is an addition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from tidelake.errors import CommitOutcomeUnknown
from tidelake.storage.commit.manifests.manifest_entry import Identity, ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import base_list, delta_list, merged, table_manifests
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import SnapshotCommit, Statistics
from tidelake.storage.model.table import TableContext


class FileSystemSnapshotCommit:
    """See `SnapshotCommit`. It needs no lock: the FileIO's `create_if_absent` excludes other writers."""

    keeps_partitions: ClassVar[bool] = False

    def __init__(self, context: TableContext) -> None:
        self._table_name = context.name
        self._identity = context.identity
        self._snapshots = context.snapshots
        self._manifests = context.shared(ManifestStore)

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        is_ours = self._snapshots.publish(snapshot) or self._snapshots.find(snapshot.id) == snapshot
        if not is_ours or not self._confirm_or_withdraw(base, snapshot):
            return False
        self._snapshots.hint_latest(snapshot.id)
        return True

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        if not self._confirm_or_withdraw(base, snapshot):
            return False
        self._snapshots.hint_latest(self._snapshots.latest_id() or snapshot.id)
        return True

    def _confirm_or_withdraw(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Return whether a snapshot, just found in the table, belongs to its history. Deletes its file otherwise."""
        if self._is_in_history(base, snapshot):
            return True
        self._snapshots.delete_snapshot_file(snapshot.id)
        return False

    def _is_in_history(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Return whether the snapshot belongs to the table's history.

        It does if its base still exists. Expiry deletes the smallest id first and rollback the largest, so no other
        snapshot can have had its id before. If the base expired, or never existed, the later snapshots decide.
        """
        if base is None:
            if self._identity.change_since_open() is not None:
                return False
        elif self._snapshots.find(base.id) == base:
            return True
        newest = max(self._snapshots.ids(), default=0)
        if newest <= snapshot.id and self._snapshots.exists(snapshot.id):  # smaller if the listing is outdated
            return True
        successor = self._snapshots.find(snapshot.id + 1)
        if successor is not None:
            return self._is_built_on(successor, snapshot)
        if self._snapshots.exists(snapshot.id):
            return False
        raise CommitOutcomeUnknown(
            f"{self._table_name}: snapshot {snapshot.id} was published, but expired before it was known whether it is "
            "the table's next snapshot"
        )

    def _is_built_on(self, successor: Snapshot, snapshot: Snapshot) -> bool:
        """Compare the names of manifests. If the manifests were merged in the meantime, compares the live files."""
        delta = {meta.file_name for meta in self._manifests.read_list(delta_list(snapshot))}
        before = self._manifests.read_list(base_list(successor))
        if delta and delta <= {meta.file_name for meta in before}:
            return True
        ours = merged(self._manifests, table_manifests(self._manifests, snapshot), self._table_name)
        theirs = merged(self._manifests, before, self._table_name)
        return _live(ours) == _live(theirs)


def _live(entries: Iterable[ManifestEntry]) -> set[Identity]:
    return {entry.identity for entry in entries if entry.kind is FileKind.ADD}


def snapshot_commit_of(context: TableContext) -> SnapshotCommit:
    """Return the snapshot commit of the table's catalog, or that of the file system."""
    return (context.snapshot_commit or FileSystemSnapshotCommit)(context)
