"""Which files go with snapshots that expire: those that these name and nothing that stays does.

A round that was interrupted may have deleted some already, metadata included: what is gone has done its part. The order
of deletion (`storage.snapshots.expire`) sees to it that metadata goes after what it names.

Source: Java `operation/FileDeletionBase.java`, `SnapshotDeletion.java`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storage.errors import CorruptFile
from storage.fileio.base import FileIO
from storage.files.bucket_directory import all_paths, bucket_directory, data_file_path
from storage.format import FileKind
from storage.logs import get_logger
from storage.snapshots.index_manifest import index_file_path, read_index_manifest
from storage.snapshots.live_files import base_list, delta_list, live_entries
from storage.snapshots.manifest_entry import ManifestEntry
from storage.snapshots.manifest_list import ManifestFileMeta
from storage.snapshots.manifest_store import ListFile, ManifestStore
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext

_log = get_logger(__name__)

Keep = Callable[[ManifestEntry], bool]


@dataclass(slots=True)
class Doomed:
    """Paths, in the order they are to go: data files, then metadata, then the lists that name it."""

    data: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)

    def delete(self, io: FileIO, stop: Callable[[], bool]) -> bool:
        """False when `stop` said so in between; what is left goes when this is planned anew."""
        for paths in (self.data, self.metadata, self.lists):
            if stop():
                return False
            io.delete_all(paths)
        return True


class TagFiles:
    """Names of the files that tagged snapshots are made of. Holds those of one tag at a time: they are asked in order.

    tagged: by ascending id.
    """

    def __init__(self, context: TableContext, manifests: ManifestStore, tagged: Sequence[Snapshot]) -> None:
        self._context = context
        self._manifests = manifests
        self._tagged = tagged
        self._ids = [snapshot.id for snapshot in tagged]
        self._known: tuple[Snapshot | None, frozenset[str]] = None, frozenset()

    def before(self, snapshot_id: int) -> frozenset[str]:
        """Of the newest tag below: a file that goes here was in that one, or in none at all. Raises CorruptFile."""
        place = bisect_left(self._ids, snapshot_id) - 1
        if place < 0:
            return frozenset()
        tag = self._tagged[place]
        if self._known[0] != tag:
            live = live_entries(self._context, tag, manifests=self._manifests)
            self._known = tag, frozenset(entry.file.file_name for entry in live)
        return self._known[1]

    def around(self, begin: int, end: int) -> Sequence[Snapshot]:
        """Tags that may share metadata with snapshots begin to end: the newest one at `begin` or below, and all from
        there to `end`.
        """
        first = max(bisect_left(self._ids, begin + 1) - 1, 0)
        return self._tagged[first : bisect_left(self._ids, end)]


class DeletionPlanner:
    def __init__(self, context: TableContext, manifests: ManifestStore) -> None:
        self._context = context
        self._manifests = manifests
        self._directories: dict[tuple[bytes, int], str] = {}

    def deleted_data(self, snapshots: Iterable[Snapshot], keep: Callable[[Snapshot], Keep]) -> list[str]:
        """Data files that these snapshots' deltas delete, with those beside them, but for those that come back (moved
        to another level, brought back by a rollback). snapshots: oldest first. keep: of a snapshot, what it must spare.
        """
        going: dict[str, Sequence[str]] = {}
        for snapshot in snapshots:
            keeps = keep(snapshot)
            for entry in self._entries(delta_list(snapshot), "data files it deletes stay behind"):
                path = data_file_path(self._directory(entry), entry.file)
                if entry.kind is FileKind.ADD:
                    going.pop(path, None)
                elif not keeps(entry):
                    going[path] = all_paths(self._directory(entry), entry.file)
        return [path for paths in going.values() for path in paths]

    def changelog_data(self, snapshots: Iterable[Snapshot]) -> list[str]:
        """Changelog files of these snapshots."""
        return [
            path
            for snapshot in snapshots
            for entry in self._entries(changelog_list(snapshot), "its changelog files stay behind")
            if entry.kind is FileKind.ADD
            for path in all_paths(self._directory(entry), entry.file)
        ]

    def lists(self, files: Iterable[ListFile | None], spared: set[str], doomed: Doomed) -> None:
        """Adds manifest lists and the manifests they name, each once. spared: grows by what was added."""
        paths = self._context.paths
        for file in files:
            if file is None:
                continue
            for meta in self._metas(file):
                if meta.file_name not in spared:
                    spared.add(meta.file_name)
                    doomed.metadata.append(paths.manifest(meta.file_name))
            if file.name not in spared:
                spared.add(file.name)
                doomed.lists.append(paths.manifest(file.name))

    def names(self, files: Iterable[ListFile | None]) -> set[str]:
        """Of lists and their manifests, as far as they are there."""
        found: set[str] = set()
        for file in files:
            if file is not None:
                found |= {file.name, *(meta.file_name for meta in self._metas(file))}
        return found

    def index(self, snapshot: Snapshot, spared: set[str], doomed: Doomed) -> None:
        """Adds index files, the index manifest and statistics. spared: grows by what was added."""
        paths = self._context.paths
        if snapshot.statistics is not None and snapshot.statistics not in spared:
            spared.add(snapshot.statistics)
            doomed.metadata.append(paths.statistics(snapshot.statistics))
        if snapshot.index_manifest is None or snapshot.index_manifest in spared:
            return
        spared.add(snapshot.index_manifest)
        doomed.lists.append(paths.manifest(snapshot.index_manifest))
        try:
            entries = read_index_manifest(self._context, snapshot.index_manifest)
        except CorruptFile as error:
            self._told_unless_gone(paths.manifest(snapshot.index_manifest), error, "index files stay behind")
            return
        for entry in entries:
            if entry.file_name not in spared:
                spared.add(entry.file_name)
                doomed.metadata.append(index_file_path(self._context, entry))

    def _entries(self, file: ListFile | None, otherwise: str) -> Iterator[ManifestEntry]:
        for meta in self._metas(file) if file is not None else ():
            try:
                entries = self._manifests.read(meta)
            except CorruptFile as error:
                self._told_unless_gone(self._context.paths.manifest(meta.file_name), error, otherwise)
                continue
            yield from entries

    def _metas(self, file: ListFile) -> Sequence[ManifestFileMeta]:
        try:
            return self._manifests.read_list(file)
        except CorruptFile as error:
            self._told_unless_gone(self._context.paths.manifest(file.name), error, "what only it names stays behind")
            return ()

    def _told_unless_gone(self, path: str, error: CorruptFile, otherwise: str) -> None:
        """A file that is there and can't be read must not keep the table from expiring for ever."""
        if self._context.io.exists(path):
            _log.warning("metadata unreadable in expiry", path=path, error=str(error), effect=otherwise)

    def _directory(self, entry: ManifestEntry) -> str:
        bucket = entry.partition, entry.bucket
        if bucket not in self._directories:
            self._directories[bucket] = bucket_directory(self._context, *bucket)
        return self._directories[bucket]


def changelog_list(snapshot: Snapshot) -> ListFile | None:
    name = snapshot.changelog_manifest_list
    return None if name is None else ListFile(name, snapshot.changelog_manifest_list_size)


def table_lists(snapshot: Snapshot) -> tuple[ListFile, ListFile]:
    return base_list(snapshot), delta_list(snapshot)
