"""The files that any state of any branch of a table names. Orphan cleaning must not delete them.

The states are those of `tidelake.storage.commit.expire.retained_states`. Each manifest is read once, however often
`referenced_hashes` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.commit.expire.retained_states import (
    RetainedStates,
    all_branches,
    changelog_ids,
    changelog_list,
    changes_list,
    is_whole,
    retained_states,
    snapshot_ids,
    state_lists,
)
from tidelake.storage.commit.manifests.file_names import Hashes, hashes_of, hashes_of_manifest
from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.model.snapshots.change_history import ChangelogStore
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class _State:
    """A state of a branch, and the manifest lists that name its files.

    is_held: called if a file of the state can't be read: whether the state is still retained.
    optional: lists that may have been deleted before the state.
    is_newest: whether it is the newest snapshot of its branch.
    """

    snapshot: Snapshot
    lists: Iterable[ListFile | None]
    is_held: Callable[[], bool]
    optional: Iterable[ListFile | None] = ()
    is_newest: bool = False


class ReferencedFiles:
    """Collects the references of all branches. Not thread-safe."""

    def __init__(self, context: TableContext) -> None:
        self._context = context = context.uncached()
        self._manifests = context.shared(ManifestStore)
        self._of_manifest: dict[str, Hashes] = {}
        self._of_index: dict[str, Hashes] = {}

    def referenced_hashes(self) -> Hashes:
        """Return the hashes of all referenced file names, sorted and unique.

        Raises OSError, and CorruptFile for metadata of a held state that can't be read.
        """
        metadata: set[str] = set()
        manifests: set[str] = set()
        for branch in all_branches(self._context.io, self._context.paths):
            while not self._add_branch(branch, metadata, manifests):
                pass  # all snapshots that were listed expired before they were read: there are newer ones
        parts = [hashes_of(metadata), *(self._of_manifest[name] for name in manifests)]
        parts += [self._of_index[name] for name in metadata if name in self._of_index]
        return np.unique(np.concatenate(parts))

    def _add_branch(self, branch: str, metadata: set[str], manifests: set[str]) -> bool:
        """Add the references of a branch. Returns whether the newest snapshot was read, if there is one.

        Once it was read, later snapshots don't matter: the files that they share with older ones are files of this one.
        """
        context = replace(self._context, branch=branch)
        is_complete = is_whole(context.io, context.paths)
        held = retained_states(context.io, context.paths)
        is_newest_read = not is_complete or not held.snapshots
        for state in self._states(context, held, is_complete=is_complete):
            try:
                self._add(state, metadata, manifests)
                is_newest_read |= state.is_newest
            except (CorruptFile, OSError):
                if state.is_held():
                    raise
                # perhaps partly expired: the expiry has to delete the rest of its files
                self._add(replace(state, lists=(), optional=(*state.lists, *state.optional)), metadata, manifests)
        return is_newest_read

    # ------------------------------------------------------------ states

    def _states(self, context: TableContext, held: RetainedStates, *, is_complete: bool) -> Iterator[_State]:
        io, paths, store = context.io, context.paths, context.snapshots
        for snapshot_id in (*held.partially_expired, *held.snapshots):
            snapshot = store.find(snapshot_id)
            if snapshot is None:
                continue
            is_first = snapshot_id == held.snapshots[0] if held.snapshots else False
            changes = changelog_list(snapshot)
            may_lack = is_first and changes is not None and context.history.may_be_without_changelog(snapshot)
            is_held = is_complete and snapshot_id in held.snapshots
            yield _State(
                snapshot,
                (*state_lists(snapshot), None if may_lack else changes),
                lambda i=snapshot_id, is_held=is_held: is_held and i in snapshot_ids(io, paths)[1],  # type: ignore[misc]
                (changes,) if may_lack else (),
                is_newest=snapshot_id == held.snapshots[-1] if held.snapshots else False,
            )
        changelogs = ChangelogStore(io, paths)
        for changelog_id in (*held.partially_expired_changelogs, *held.changelogs):
            changelog = changelogs.find(changelog_id)
            if changelog is not None:
                is_held = changelog_id in held.changelogs
                yield _State(
                    replace(changelog, index_manifest=None),
                    (changes_list(changelog),),
                    lambda i=changelog_id, is_held=is_held: is_held and i in changelog_ids(io, paths)[1],  # type: ignore[misc]
                    state_lists(changelog),
                )
        tags = TagStore(io, paths)
        for name in held.tags:
            try:
                tagged = tags.get(name)
            except BadInput:  # another process deleted it
                continue
            yield _State(
                tagged,
                state_lists(tagged),
                lambda name=name: is_complete and name in tags.names(),  # type: ignore[misc]
                (changelog_list(tagged),),
            )

    # ------------------------------------------------------------ references

    def _add(self, state: _State, metadata: set[str], manifests: set[str]) -> None:
        metadata.update(name for name in (state.snapshot.statistics, state.snapshot.index_manifest) if name)
        for file in state.lists:
            self._add_list(file, metadata, manifests)
        for file in state.optional:
            try:
                self._add_list(file, metadata, manifests)
            except (CorruptFile, FileNotFoundError):
                continue
        name = state.snapshot.index_manifest
        if name is None or name in self._of_index:
            return
        try:
            entries = read_index_manifest(self._context, name)
        except (CorruptFile, FileNotFoundError):
            if state.lists:
                raise
            return
        self._of_index[name] = hashes_of(entry.file.file_name for entry in entries)

    def _add_list(self, file: ListFile | None, metadata: set[str], manifests: set[str]) -> None:
        if file is None:
            return
        metadata.add(file.name)
        for meta in self._manifests.read_list(file):
            metadata.add(meta.file_name)
            if meta.file_name not in self._of_manifest:
                self._of_manifest[meta.file_name] = self._hashes(meta)
            manifests.add(meta.file_name)

    def _hashes(self, meta: ManifestFileMeta) -> Hashes:
        path = self._context.paths.manifest(meta.file_name)
        try:
            data = self._context.io.read(path)
        except FileNotFoundError:
            raise CorruptFile(path, "a manifest that a list names", "no file") from None
        return hashes_of_manifest(data, path, meta.file_size)
