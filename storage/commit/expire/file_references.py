"""Checks whether a file that a branch no longer needs is still referenced by one of its tags or by another branch.

The check runs before any file of old snapshots or changelogs is deleted.
`tidelake.storage.commit.expire.retained_states` defines the retained states and their files. A branch shares files with
the branch it was created from, a fast-forward copies snapshots, and a merge adds another branch's files. So names or
ids prove nothing: each snapshot of another branch is read, once per expiry
(`tidelake.storage.commit.expire.branch_files`).

If two branches expire at the same time, each may keep a file that the other one releases. That leaves an orphan, but
never loses a file.

Source: Java `operation/FileDeletionBase.java` (manifestSkippingSet, tags), which does not look at other branches.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors import CorruptFile
from tidelake.storage.commit.expire.branch_files import BranchFiles, DeletionCandidates, TaggedFiles
from tidelake.storage.commit.expire.retained_states import all_branches, index_names
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import delta_entries
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


class References:
    """The references to the files of one branch, except those of its own retained snapshots.

    A file that one of its own snapshots deleted is not used by later ones, unless an OVERWRITE adds it again, such as a
    rollback that is committed as a snapshot. `restored_by_overwrites` checks that. Not thread-safe.
    """

    def __init__(self, context: TableContext, manifests: ManifestStore) -> None:
        self._context = context
        self._manifests = manifests
        self._own_tags = TaggedFiles(context, manifests, context.paths)
        self._others: dict[str, BranchFiles] = {}
        self._overwrites: dict[int, DeletionCandidates] = {}  # by snapshot id: the files that the OVERWRITE names
        self.scanned_to = 0  # own snapshots up to this one are checked for OVERWRITEs

    def referenced(self, candidates: DeletionCandidates, begin: int, earliest_kept_id: int) -> set[str]:
        """Return the candidates that a tag or another branch references.

        begin: the first snapshot of this branch to delete
        earliest_kept_id: the first snapshot of this branch to keep

        Raises CorruptFile if the references can't be read: then nothing may be deleted.
        """
        if not candidates.data and not candidates.metadata:
            return set()
        found = self._referenced_by_own_tags(candidates, begin, earliest_kept_id)
        for branch in self._files_of_other_branches():
            found |= branch.referenced(candidates)
        return found

    def branches_and_tags(self) -> frozenset[tuple[str, str, int, int]]:
        """Return the current branches and tags.

        A different result later means that some were created, replaced or deleted.

        Each element is (branch, tag, size of its file, time of its file).
        """
        io, paths = self._context.io, self._context.paths
        found = set()
        for branch in all_branches(io, paths):
            found.add((branch, "", 0, 0))
            for entry in io.list_directory(paths.for_branch(branch).tag_directory):
                found.add((branch, entry.name, entry.size_bytes, entry.modified_ms))
        return frozenset(found)

    def restored_by_overwrites(
        self, candidates: DeletionCandidates, later: Iterable[Snapshot], first: int, latest: int
    ) -> set[str]:
        """Return the candidates that an OVERWRITE of this branch names again, from snapshot `first` on.

        later: all snapshots up to `latest`, or their long-lived changelogs. Those up to `scanned_to` may be left out,
            once `scan_from` has compared it with `latest`.
        """
        self._overwrites = {i: names for i, names in self._overwrites.items() if i >= first}
        for snapshot in later:
            if snapshot.id > self.scanned_to and snapshot.commit_kind is CommitKind.OVERWRITE:
                self._overwrites[snapshot.id] = self._files_of_overwrite(snapshot)
        self.scanned_to = max(self.scanned_to, latest)
        found: set[str] = set()
        for names in self._overwrites.values():
            found |= candidates.metadata & names.metadata
            found |= candidates.data.keys() & names.data.keys()
        return found

    def scan_from(self, first: int, latest: int) -> int:
        """Return the first snapshot that `restored_by_overwrites` has to check.

        latest: smaller than before after a rollback.
        """
        if latest < self.scanned_to:
            self.scanned_to = 0
            self._overwrites.clear()
        return max(first, self.scanned_to + 1)

    def _files_of_overwrite(self, overwrite: Snapshot) -> DeletionCandidates:
        """Return the files that an OVERWRITE names.

        None for a changelog whose lists were deleted with its snapshot: the deltas before it are deleted, too.
        """
        try:
            delta = delta_entries(self._context, overwrite)
            index = index_names(self._context, overwrite)
        except CorruptFile:
            if self._context.io.exists(self._context.paths.snapshot(overwrite.id)):
                raise
            return DeletionCandidates()
        return DeletionCandidates({entry.file.file_name: None for entry in delta if entry.kind is FileKind.ADD}, index)

    def _referenced_by_own_tags(self, candidates: DeletionCandidates, begin: int, earliest_kept_id: int) -> set[str]:
        """Return the candidates that own tags reference.

        Tags from earliest_kept_id on consist of the same files as the snapshots that are kept.
        """
        self._own_tags.refresh()
        below = [tag for tag in self._own_tags.tagged if tag.id < earliest_kept_id]
        newest_older = max(sum(tag.id <= begin for tag in below) - 1, 0)
        return (
            self._own_tags.data_referenced_by_tags(candidates, below)
            # a manifest to delete is in the newest of the older tags, or in none of them
            | self._own_tags.metadata_referenced_by_tags(candidates, below[newest_older:])
            | self._own_tags.index_referenced_by_tags(candidates, below[:newest_older])
        )

    def _files_of_other_branches(self) -> list[BranchFiles]:
        context = self._context
        paths = context.paths
        names = [name for name in all_branches(context.io, paths) if name != context.branch]
        self._others = {
            name: self._others.get(name) or BranchFiles(context, self._manifests, paths.for_branch(name))
            for name in names
        }
        for branch in self._others.values():
            branch.refresh()
        return list(self._others.values())
