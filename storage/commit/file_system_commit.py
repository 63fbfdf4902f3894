"""Commits snapshots with the file system alone: it creates `snapshot-N` if absent.

Creation alone is not enough: the snapshot must follow the newest one. A writer may pause so long that its snapshot id
is used by others and expires. It would then add a snapshot below the earliest one, which no reader reads. So the
snapshot is checked after its creation: its base must still exist, or later snapshots must be built on it. A first
snapshot has no base: then the table must still be the one that was opened. Any other snapshot is withdrawn.

The rows of a commit and their compaction are two snapshots. Both are created first, and then confirmed together: if the
base of the first one exists after the second one was created, no id between them can have been used before.

Source: Java `catalog/RenamingSnapshotCommit.java`. The check after the creation is an addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

from tidelake.errors import CommitOutcomeUnknown, CorruptFile
from tidelake.storage.commit.manifests.manifest_entry import Identity, ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import base_list, delta_list, merged, table_manifests
from tidelake.storage.fileio.requests import run_requests
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import SnapshotCommit, Statistics
from tidelake.storage.model.table import TableContext


class FileSystemSnapshotCommit:
    """See `SnapshotCommit`. It needs no lock: the FileIO's `create_if_absent` excludes other writers."""

    keeps_partitions: ClassVar[bool] = False

    def __init__(self, context: TableContext) -> None:
        self._table_name = context.name
        self._location = context.location
        self._identity = context.identity
        self._snapshots = context.snapshots
        self._manifests = context.shared(ManifestStore)

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        return self.create(snapshot) and bool(self.confirm(base, [snapshot]))

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        if not self._confirm_or_withdraw(base, [snapshot], None):
            return False
        self._snapshots.hint_committed(self._snapshots.latest_id() or snapshot.id)
        return True

    def create(self, snapshot: Snapshot) -> bool:
        """See `StepwiseCommit`."""
        return self._snapshots.publish(snapshot) or self._snapshots.find(snapshot.id) == snapshot

    def confirm(
        self, base: Snapshot | None, created: Sequence[Snapshot], doubtful: Snapshot | None = None
    ) -> Sequence[Snapshot]:
        """See `StepwiseCommit`."""
        confirmed = self._confirm_or_withdraw(base, created, doubtful)
        if confirmed:
            self._snapshots.hint_committed(confirmed[-1].id)
        return confirmed

    def _confirm_or_withdraw(
        self, base: Snapshot | None, created: Sequence[Snapshot], doubtful: Snapshot | None
    ) -> Sequence[Snapshot]:
        """Return the snapshots, just found in the table, that belong to its history. Deletes the others, last first."""
        questions = [partial(self._find, snapshot) for snapshot in (base, *created[:-1])]
        found_base, *earlier = run_requests(self._location, *questions)
        base_exists = base is not None and found_base == base
        if not base_exists and not self._is_in_history(created[-1], doubtful):
            self._withdraw(created[-1:])
            # Of several, the last may have come too late alone: those before it have to answer for themselves.
            return self._confirm_or_withdraw(base, created[:-1], None) if created[:-1] else ()
        for snapshot, found in zip(created[:-1], earlier, strict=True):
            # Without a base, an earlier one that is missing expired, too: smallest ids first.
            if found != snapshot and (base_exists or found is not None):
                self._withdraw(created[1:])  # replaced by a writer that excludes nobody: the next refresh says so
                return created[:1]
        return created

    def _find(self, snapshot: Snapshot | None) -> Snapshot | None:
        return None if snapshot is None else self._snapshots.find(snapshot.id)

    def _still_exists(self, snapshot: Snapshot) -> bool:
        return self._find(snapshot) == snapshot

    def _withdraw(self, created: Sequence[Snapshot]) -> None:
        for snapshot in reversed(created):
            if self._still_exists(snapshot):
                self._snapshots.delete_snapshot_file(snapshot.id)

    def _is_in_history(self, last: Snapshot, doubtful: Snapshot | None) -> bool:
        """Return whether snapshots without an existing base belong to the table's history.

        With a base, they do: expiry deletes the smallest id first and rollback the largest, so no other snapshot can
        have had their ids before. If the base expired, or never existed, the later snapshots decide.

        last: the last one.
        """
        if self._identity.change_since_open() is not None:
            return False
        newest = max(self._snapshots.ids(), default=0)
        if newest <= last.id and self._snapshots.exists(last.id):  # smaller if the listing is outdated
            return True
        successor = self._snapshots.find(last.id + 1)
        if successor is not None and successor != doubtful:
            return self._is_built_on(successor, last)
        if successor is None and self._snapshots.exists(last.id):
            return False
        if self._is_named_later(last, doubtful):
            return True
        raise CommitOutcomeUnknown(
            f"{self._table_name}: snapshot {last.id} was published, but expired before it was known whether it is "
            "the table's next snapshot. Nothing was deleted. Look whether its rows are in the table before you commit "
            "them again; keep snapshots longer than a commit takes (snapshot.time-retained)"
        )

    def _is_named_later(self, expired: Snapshot, doubtful: Snapshot | None) -> bool:
        """Return whether a later snapshot has a file that one which has expired added."""
        delta = self._manifests.read_list(delta_list(expired))
        added = _live(merged(self._manifests, delta, self._table_name))
        for snapshot_id in (number for number in self._snapshots.ids() if number > expired.id):
            later = self._snapshots.find(snapshot_id)
            if later is not None and later != doubtful:
                with suppress(CorruptFile, FileNotFoundError):  # it expires just now
                    before = self._manifests.read_list(base_list(later))
                    return not added.isdisjoint(_live(merged(self._manifests, before, self._table_name)))
        return False

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
