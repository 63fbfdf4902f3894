"""The files that the states of one branch name, kept from one refresh to the next.

The data files of all snapshots of a branch are the live files of the first one and the files that the others added.
The files of a snapshot are remembered as long as it exists, so the next refresh reads new snapshots only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.commit.expire.retained_states import (
    changelog_ids,
    changelog_list,
    changes_list,
    index_names,
    is_whole,
    metadata_names,
    snapshot_ids,
    state_lists,
)
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.model.format import DEFAULT_BRANCH, FileKind
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.snapshots.change_history import ChangelogStore
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.snapshots.tags import TagStore, tagged_snapshots
from tidelake.storage.model.table import TableContext

# A file's time comes from its writer's clock and time zone, a tag's time from its committer's clock.
_CLOCK_SLACK_MS: Final = 36 * 3_600_000

_State: TypeAlias = tuple[str, str]  # base and delta list: they identify a tagged snapshot


@dataclass(frozen=True, slots=True)
class DeletionCandidates:
    """Names of files that a branch no longer references.

    data: data files with their creation times, None if unknown.
    """

    data: Mapping[str, int | None] = field(default_factory=dict)
    metadata: Set[str] = frozenset()


class BranchFiles:
    """The files that the snapshots, changelogs and tags of a branch name. Not thread-safe.

    paths: of the branch.
    manifests: of any branch of the table.
    """

    def __init__(self, context: TableContext, manifests: ManifestStore, paths: TablePaths) -> None:
        self._context = context
        self._paths = paths
        self._snapshots = _SnapshotFiles(context, manifests, paths)
        self._changelogs = _ChangelogFiles(context, manifests, paths)
        self._tags = TaggedFiles(context, manifests, paths)

    def refresh(self) -> None:
        """Read the current states of the branch. Raises CorruptFile for a retained state that can't be read.

        Partially expired states count if they can be read. A fast-forward leaves a hint that names a deleted snapshot.
        Later another snapshot may get that id, while complete ones exist below it.
        """
        while not self._snapshots.refresh([i for ids in snapshot_ids(self._context.io, self._paths) for i in ids]):
            if not is_whole(self._context.io, self._paths):
                break
            # All of them expired before they were read: there are newer ones.
        self._changelogs.refresh([i for ids in changelog_ids(self._context.io, self._paths) for i in ids])
        self._tags.refresh()

    def referenced(self, candidates: DeletionCandidates) -> set[str]:
        """Return the candidates that a snapshot, tag or changelog named at the last refresh."""
        return (
            self._snapshots.referenced(candidates)
            | self._changelogs.referenced(candidates)
            | self._tags.referenced(candidates)
        )


class _SnapshotHistory:
    """The snapshots of a branch by id, each read once.

    Each snapshot is built on the one before. So if the newest snapshot that was read is unchanged, all before it are,
    too. If it has changed, the branch was rolled back or replaced, and all are read again.
    """

    def __init__(self, find: Callable[[int], Snapshot | None]) -> None:
        self._find = find
        self._read: dict[int, Snapshot] = {}

    def refresh(self, ids: Sequence[int]) -> list[Snapshot]:
        """Return the existing snapshots, oldest first."""
        newest = max(self._read, default=None)
        if newest is not None and (newest not in ids or self._find(newest) != self._read[newest]):
            self._read.clear()
        found = ((i, self._read.get(i) or self._find(i)) for i in ids)
        self._read = {i: snapshot for i, snapshot in found if snapshot is not None}
        return list(self._read.values())


@dataclass(frozen=True, slots=True)
class _SnapshotFilesDelta:
    """The files of one snapshot: its metadata, and the data files that it adds, removes or wrote as changelog."""

    snapshot: Snapshot
    metadata: frozenset[str]
    added: frozenset[str]
    removed: frozenset[str]
    changelog: frozenset[str]


class _SnapshotFiles:
    def __init__(self, context: TableContext, manifests: ManifestStore, paths: TablePaths) -> None:
        self._context = context
        self._manifests = manifests
        self._paths = paths
        self._history = _SnapshotHistory(SnapshotStore(context.io, paths).find)
        self._steps: dict[int, _SnapshotFilesDelta] = {}
        self._first: Snapshot | None = None
        self._initially_live: set[str] = set()

    def refresh(self, ids: Sequence[int]) -> bool:
        """Read these snapshots, oldest first. Returns whether the newest of them was read, if there is one.

        Once it was read, later snapshots don't matter: the files that they share with older ones are files of this one.
        """
        known, self._steps = self._steps, {}
        for snapshot in self._history.refresh(ids):
            step = known.get(snapshot.id)
            if step is None or step.snapshot != snapshot:
                step = self._step(snapshot)
            if step is None:
                self._steps.clear()  # partially expired, like all snapshots before it
            else:
                self._steps[snapshot.id] = step
        for step in list(self._steps.values()):
            if self._begins_with(step.snapshot, known):
                return ids[-1] in self._steps
            del self._steps[step.snapshot.id]
        self._first, self._initially_live = None, set()
        return not ids

    def referenced(self, candidates: DeletionCandidates) -> set[str]:
        found = candidates.data.keys() & self._initially_live
        for step in self._steps.values():
            found |= candidates.metadata & step.metadata
            found |= candidates.data.keys() & step.added
            found |= candidates.data.keys() & step.changelog
        return found

    def _step(self, snapshot: Snapshot) -> _SnapshotFilesDelta | None:
        """Return the files of a snapshot, or None if it expired meanwhile."""
        try:
            delta = delta_entries(self._context, snapshot)
            metadata = metadata_names(self._context, self._manifests, snapshot)
        except CorruptFile as error:
            self._raise_if_held(snapshot, error)
            return None
        changelog, changelog_data = _existing_files(self._context, self._manifests, changelog_list(snapshot))
        return _SnapshotFilesDelta(
            snapshot,
            frozenset(metadata | changelog),
            frozenset(_names(delta, FileKind.ADD)),
            frozenset(_names(delta, FileKind.DELETE)),
            frozenset(changelog_data),
        )

    def _begins_with(self, new: Snapshot, known: Mapping[int, _SnapshotFilesDelta]) -> bool:
        """Find the live files of the first snapshot: from the deltas since the previous first one, or by reading it.

        Returns False if it expired meanwhile.
        """
        old, self._first = self._first, new
        if old == new:
            return True
        since = [known[i] for i in range(old.id + 1, new.id + 1) if i in known] if old is not None else []
        if old is not None and since and len(since) == new.id - old.id and since[-1].snapshot == new:
            for step in since:
                self._initially_live -= step.removed
                self._initially_live |= step.added
            return True
        try:
            live = live_entries(self._context, new)
        except CorruptFile as error:
            self._first = None
            self._raise_if_held(new, error)
            return False
        self._initially_live = set(_names(live, FileKind.ADD))
        return True

    def _raise_if_held(self, snapshot: Snapshot, error: CorruptFile) -> None:
        is_retained = snapshot.id in snapshot_ids(self._context.io, self._paths)[1]
        if is_retained and is_whole(self._context.io, self._paths):
            raise error


class _ChangelogFiles:
    """The files of long-lived changelogs."""

    def __init__(self, context: TableContext, manifests: ManifestStore, paths: TablePaths) -> None:
        self._context = context
        self._manifests = manifests
        self._history = _SnapshotHistory(ChangelogStore(context.io, paths).find)
        self._files: dict[str, tuple[set[str], set[str]]] = {}  # by base list: metadata, data

    def refresh(self, ids: Sequence[int]) -> None:
        known, self._files = self._files, {}
        for changelog in self._history.refresh(ids):
            key = changelog.base_manifest_list
            self._files[key] = known.get(key) or self._read(changelog)

    def referenced(self, candidates: DeletionCandidates) -> set[str]:
        found: set[str] = set()
        for metadata, data in self._files.values():
            found |= candidates.metadata & metadata
            found |= candidates.data.keys() & data
        return found

    def _read(self, changelog: Snapshot) -> tuple[set[str], set[str]]:
        metadata, data = _existing_files(self._context, self._manifests, changes_list(changelog))
        if changelog_list(changelog) is None:  # its deltas and lists are kept until it expires
            for file in state_lists(changelog):
                metadata |= _existing_files(self._context, self._manifests, file, with_data=False)[0]
        return metadata, data


class TaggedFiles:
    """The files of the tags of a branch.

    A tag's data files are read only if a candidate is old enough to be among them.
    """

    def __init__(self, context: TableContext, manifests: ManifestStore, paths: TablePaths) -> None:
        self._context = context
        self._manifests = manifests
        self._paths = paths
        self._metadata: dict[_State, set[str]] = {}
        self._data: set[str] = set()  # union of all tags in `_data_read`: many tags share most of their files
        self._data_read: set[_State] = set()
        self.tagged: list[Snapshot] = []  # at the last refresh, by id

    def refresh(self) -> None:
        self.tagged = tagged_snapshots(self._context.io, self._paths)
        there = {_state(tag) for tag in self.tagged}
        self._metadata = {state: names for state, names in self._metadata.items() if state in there}
        if not self._data_read <= there:
            self._data, self._data_read = set(), set()

    def referenced(self, candidates: DeletionCandidates) -> set[str]:
        return self.data_referenced_by_tags(candidates, self.tagged) | self.metadata_referenced_by_tags(
            candidates, self.tagged
        )

    def data_referenced_by_tags(self, candidates: DeletionCandidates, tags: Sequence[Snapshot]) -> set[str]:
        """Return the candidates that one of these tags names. A tag doesn't contain files created after it."""
        open_ = {name: made_ms for name, made_ms in candidates.data.items() if name not in self._data}
        for tag in sorted(tags, key=lambda tag: tag.time_ms, reverse=True):
            youngest_ms = tag.time_ms + _CLOCK_SLACK_MS
            if _state(tag) in self._data_read:
                continue
            if any(made_ms is None or made_ms <= youngest_ms for made_ms in open_.values()):
                self._read_data(tag)
                open_ = {name: made_ms for name, made_ms in open_.items() if name not in self._data}
        return candidates.data.keys() & self._data

    def metadata_referenced_by_tags(self, candidates: DeletionCandidates, tags: Iterable[Snapshot]) -> set[str]:
        found: set[str] = set()
        for tag in tags if candidates.metadata else ():
            found |= candidates.metadata & self._metadata_of(tag)
        return found

    def index_referenced_by_tags(self, candidates: DeletionCandidates, tags: Iterable[Snapshot]) -> set[str]:
        """Return the candidates among index manifests, index files and statistics that the tags name."""
        found: set[str] = set()
        for tag in tags:
            if tag.index_manifest is not None or tag.statistics is not None:
                found |= candidates.metadata & index_names(self._context, tag)
        return found

    def _read_data(self, tag: Snapshot) -> None:
        try:
            live = live_entries(self._context, tag)
        except CorruptFile as error:
            self._raise_if_exists(tag, error)
            return
        self._data.update(_names(live, FileKind.ADD))
        self._data_read.add(_state(tag))

    def _metadata_of(self, tag: Snapshot) -> set[str]:
        state = _state(tag)
        if state not in self._metadata:
            try:
                self._metadata[state] = metadata_names(self._context, self._manifests, tag)
            except CorruptFile as error:
                self._raise_if_exists(tag, error)
                return set()
        return self._metadata[state]

    def _raise_if_exists(self, tag: Snapshot, error: CorruptFile) -> None:
        tags = TagStore(self._context.io, self._paths)
        for name in tags.names():
            try:
                is_one = tags.get(name) == tag
            except BadInput:  # another process deleted it
                continue
            if is_one:
                table = self._context.name.partition("$")[0]
                if self._paths.branch != DEFAULT_BRANCH:
                    table = f"'{table}$branch_{self._paths.branch}'"
                raise CorruptFile(
                    self._paths.tag(name),
                    "a tag whose files are there",
                    f"that one is lost ({error}). If the tag was created while its snapshot expired, by a process that "
                    f"was killed, delete it: `tidelake table tag delete {table} {name}`",
                ) from error


def _state(tag: Snapshot) -> _State:
    return tag.base_manifest_list, tag.delta_manifest_list


def _names(entries: Iterable[ManifestEntry], kind: FileKind) -> Iterable[str]:
    """Return the names of data files and of their index files.

    An index may be replaced, and then expires before its data file.
    """
    return (name for entry in entries if entry.kind is kind for name in (entry.file.file_name, *entry.file.extra_files))


def _existing_files(
    context: TableContext, manifests: ManifestStore, file: ListFile | None, *, with_data: bool = True
) -> tuple[set[str], set[str]]:
    """Return the existing metadata and added data files of a list.

    A changelog may expire before the tag of its snapshot.

    Raises CorruptFile for an existing file that can't be read.
    """
    metadata: set[str] = set()
    data: set[str] = set()
    if file is None:
        return metadata, data
    metadata.add(file.name)
    try:
        metas = manifests.read_list(file)
    except CorruptFile:
        if context.io.exists(context.paths.manifest(file.name)):
            raise
        return metadata, data
    for meta in metas:
        metadata.add(meta.file_name)
        try:
            entries = manifests.read(meta) if with_data else ()
        except CorruptFile:
            if context.io.exists(context.paths.manifest(meta.file_name)):
                raise
            continue
        data.update(_names(entries, FileKind.ADD))
    return metadata, data
