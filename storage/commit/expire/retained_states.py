"""Retained states of a table: what retains them, and the files that each needs.

| Holder | keeps |
|---|---|
| a snapshot of any branch, from its hint EARLIEST on | the table at it, its changelog, index files, statistics |
| a tag of any branch | the table at it, index files, statistics; its changelog expires with the snapshot |
| a long-lived changelog of any branch | the changes: its changelog, or what its commit added where it has none |
| a consumer of a branch, a pipeline's position (`Pins`) | that branch's snapshots and changelogs from its next one on |

All deletions (`tidelake.storage.commit.expire.file_references`) and `tidelake.storage.maintenance.verify` use this
definition.

Source: Java `operation/FileDeletionBase.java`, `ChangelogDeletion.java`, `table/source/snapshot/*FollowUpScanner.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import base_list, delta_list
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.format import DEFAULT_BRANCH, CommitKind
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.change_history import ChangelogStore
from tidelake.storage.model.snapshots.consumers import consumer_names, min_next_snapshot
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext

Pins: TypeAlias = Callable[[], Iterable[int]]  # ids of snapshots to keep, with all later ones

# ---------------------------------------------------------------- what retains a state


@dataclass(frozen=True, slots=True)
class RetainedStates:
    """The retained states of one branch: ascending ids, and names.

    partially_expired: snapshots below the hint EARLIEST. Their expiry has started, so readers can't rely on them
    """

    snapshots: Sequence[int]
    partially_expired: Sequence[int]
    changelogs: Sequence[int]
    partially_expired_changelogs: Sequence[int]
    tags: Sequence[str]
    consumers: Sequence[str]


def all_branches(io: FileIO, paths: TablePaths) -> list[str]:
    """Return all branches of a table, `main` first."""
    return [DEFAULT_BRANCH, *(name for name in branch_names(io, paths) if name != DEFAULT_BRANCH)]


def is_whole(io: FileIO, paths: TablePaths) -> bool:
    """Return whether the creation of a branch was completed. Others hold nothing: their snapshot may have expired.

    paths: of the branch.
    """
    return bool(SchemaStore(io, paths).ids())


def retained_states(io: FileIO, paths: TablePaths) -> RetainedStates:
    """Return the retained states of a branch.

    paths: of the branch.
    """
    partially_expired, snapshots = snapshot_ids(io, paths)
    partially_expired_changelogs, changelogs = changelog_ids(io, paths)
    tags, consumers = TagStore(io, paths).names(), consumer_names(io, paths)
    return RetainedStates(snapshots, partially_expired, changelogs, partially_expired_changelogs, tags, consumers)


def snapshot_ids(io: FileIO, paths: TablePaths) -> tuple[list[int], list[int]]:
    """Return the partially expired ids, and the retained ids."""
    store = SnapshotStore(io, paths)
    return _split_at_hint(store.ids, store.earliest_hint)


def changelog_ids(io: FileIO, paths: TablePaths) -> tuple[list[int], list[int]]:
    """Return the partially expired ids, and the retained ids."""
    store = ChangelogStore(io, paths)
    return _split_at_hint(store.ids, store.earliest_hint)


def _split_at_hint(
    list_ids: Callable[[], Sequence[int]], read_hint: Callable[[], int | None]
) -> tuple[list[int], list[int]]:
    """Split ids into those below the hint, and those from the hint on.

    A hint that names no existing id is ignored: a fast-forward may leave such a hint.
    """
    ids = list_ids()
    hint = read_hint() if ids else None
    ignored = None
    while hint is not None and hint not in ids and hint != ignored:
        # An expiry may have written the hint after the ids were listed.
        ignored, ids, hint = hint, list_ids(), read_hint()
    earliest = hint if hint is not None and hint in ids else 0
    return [i for i in ids if i < earliest], [i for i in ids if i >= earliest]


def first_needed(io: FileIO, paths: TablePaths, pins: Pins, *, consumers: bool = True) -> int | None:
    """Return the first snapshot that a pin or a consumer of this branch has not read yet. Raises CorruptFile."""
    by_consumers = min_next_snapshot(io, paths) if consumers else None
    return min([*pins(), *([] if by_consumers is None else [by_consumers])], default=None)


# ---------------------------------------------------------------- what they need


def state_lists(snapshot: Snapshot) -> tuple[ListFile, ListFile]:
    """Return the lists whose manifests, in this order, are the table at a snapshot or tag."""
    return base_list(snapshot), delta_list(snapshot)


def changelog_list(snapshot: Snapshot) -> ListFile | None:
    """Return the list of the changelog that was made with a snapshot."""
    name = snapshot.changelog_manifest_list
    return None if name is None else ListFile(name, snapshot.changelog_manifest_list_size)


def changes_list(changelog: Snapshot) -> ListFile | None:
    """Return the list of a long-lived changelog's changes: its changelog, or the files that its commit added.

    None if readers find no changes in either.
    """
    made = changelog_list(changelog)
    return delta_list(changelog) if made is None and changelog.commit_kind is CommitKind.APPEND else made


def index_names(context: TableContext, snapshot: Snapshot) -> set[str]:
    """Return the names of index manifest, index files and statistics of a snapshot or tag. Raises CorruptFile."""
    names = {name for name in (snapshot.index_manifest, snapshot.statistics) if name is not None}
    if snapshot.index_manifest is not None:
        names.update(entry.file.file_name for entry in read_index_manifest(context, snapshot.index_manifest))
    return names


def metadata_names(context: TableContext, manifests: ManifestStore, snapshot: Snapshot) -> set[str]:
    """Return the names of all metadata files of the table at a snapshot or tag. Raises CorruptFile."""
    return names_of_lists(manifests, state_lists(snapshot)) | index_names(context, snapshot)


def names_of_lists(manifests: ManifestStore, lists: Iterable[ListFile]) -> set[str]:
    """Return the names of manifest lists and of their manifests. Raises CorruptFile."""
    names: set[str] = set()
    for file in lists:
        names |= {file.name, *(meta.file_name for meta in manifests.read_list(file))}
    return names
