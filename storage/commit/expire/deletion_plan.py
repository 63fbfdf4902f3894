"""Which files of a branch may be deleted when its snapshots expire, and which directories then become empty.

`file_references` checks whether others reference the files. An interrupted round may have deleted some of them,
metadata included. Missing metadata is skipped: the order of deletion
(`tidelake.storage.commit.expire.snapshot_expiry`) ensures that metadata is deleted after the files that it names.

Source: Java `operation/FileDeletionBase.java`, `SnapshotDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from tidelake.errors import CorruptFile
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.expire.branch_files import DeletionCandidates
from tidelake.storage.commit.expire.retained_states import changelog_list
from tidelake.storage.commit.manifests.index_manifest import index_entry_path, read_index_manifest
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import delta_list, live_entries
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedDataFile:
    """A data file with its extra files.

    made_ms: creation time; None if it was not recorded.
    """

    paths: Sequence[str]
    made_ms: int | None


@dataclass(slots=True)
class DeletionPlan:
    """Files to delete, by name. They are deleted in this order: data files, metadata, manifest lists.

    data: data files
    metadata: name to path of manifests and other metadata files
    lists: name to path of the manifest lists that name them
    """

    data: dict[str, PlannedDataFile] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)  # name to path, as in `lists`
    lists: dict[str, str] = field(default_factory=dict)

    @property
    def data_files(self) -> int:
        return sum(len(file.paths) for file in self.data.values())

    @property
    def metadata_files(self) -> int:
        return len(self.metadata) + len(self.lists)

    def candidates(self) -> DeletionCandidates:
        """Return the files, to check whether they are referenced."""
        made_ms = {name: file.made_ms for name, file in self.data.items()}
        return DeletionCandidates(made_ms, self.metadata.keys() | self.lists.keys())

    def retain(self, names: Set[str]) -> None:
        for name in names:
            self.data.pop(name, None)
            self.metadata.pop(name, None)
            self.lists.pop(name, None)

    def delete(self, io: FileIO, is_cancelled: Callable[[], bool]) -> bool:
        """Delete the files. Returns False if it was cancelled in between; the next plan deletes the rest."""
        data = [path for file in self.data.values() for path in file.paths]
        for paths in (data, self.metadata.values(), self.lists.values()):
            if is_cancelled():
                return False
            io.delete_all(paths)
        return True


class DeletionPlanner:
    def __init__(self, context: TableContext, manifests: ManifestStore) -> None:
        self._context = context
        self._manifests = manifests
        self._directories: dict[BucketId, str] = {}

    def deleted_data(
        self, snapshots: Iterable[Snapshot], keep: Callable[[DataFileMeta], bool] = lambda _: False
    ) -> dict[str, PlannedDataFile]:
        """Return the data files that these snapshots' deltas delete, except those that a delta adds again.

        A file is added again if it moves to another level, or if a rollback restores it.

        snapshots: oldest first.
        """
        expiring: dict[str, PlannedDataFile] = {}
        for snapshot in snapshots:
            entries = list(self._entries(delta_list(snapshot), "data files it deletes stay behind"))
            for entry in entries:
                if entry.kind is FileKind.DELETE and not keep(entry.file):
                    expiring[entry.file.file_name] = self._planned_file(entry)
            for entry in entries:  # in any order of the manifest
                if entry.kind is FileKind.ADD:
                    self._retain(entry, expiring)
        return expiring

    def _retain(self, entry: ManifestEntry, expiring: dict[str, PlannedDataFile]) -> None:
        """Keep a file that is added again, with its current extra files. An index that it no longer has is deleted."""
        planned = expiring.pop(entry.file.file_name, None)
        for name in entry.file.extra_files:
            expiring.pop(name, None)
        if planned is not None:
            kept = set(all_paths(self._directory(entry), entry.file))
            for path in planned.paths:
                if path not in kept:
                    expiring[path.rpartition("/")[2]] = PlannedDataFile([path], planned.made_ms)

    def live_data(self, snapshot: Snapshot) -> dict[str, PlannedDataFile]:
        """Return the data files of the table at a snapshot. Raises CorruptFile."""
        return {entry.file.file_name: self._planned_file(entry) for entry in live_entries(self._context, snapshot)}

    def changelog_data(self, snapshots: Iterable[Snapshot]) -> dict[str, PlannedDataFile]:
        """Return the changelog files of these snapshots."""
        return {
            entry.file.file_name: self._planned_file(entry)
            for snapshot in snapshots
            for entry in self._entries(changelog_list(snapshot), "its changelog files stay behind")
            if entry.kind is FileKind.ADD
        }

    def _planned_file(self, entry: ManifestEntry) -> PlannedDataFile:
        return PlannedDataFile(all_paths(self._directory(entry), entry.file), entry.file.created_epoch_ms)

    def lists(self, files: Iterable[ListFile | None], retained: set[str], plan: DeletionPlan) -> None:
        """Add manifest lists and their manifests to the plan, each once.

        retained: names to skip. The added names are added to it.
        """
        paths = self._context.paths
        for file in files:
            if file is None:
                continue
            for meta in self._metas(file):
                if meta.file_name not in retained:
                    retained.add(meta.file_name)
                    plan.metadata[meta.file_name] = paths.manifest(meta.file_name)
            if file.name not in retained:
                retained.add(file.name)
                plan.lists[file.name] = paths.manifest(file.name)

    def names(self, files: Iterable[ListFile | None]) -> set[str]:
        """Return the names of lists and of their manifests, as far as the lists exist."""
        found: set[str] = set()
        for file in files:
            if file is not None:
                found |= {file.name, *(meta.file_name for meta in self._metas(file))}
        return found

    def index(self, snapshot: Snapshot, retained: set[str], plan: DeletionPlan) -> None:
        """Add index files, the index manifest and statistics to the plan.

        retained: names to skip. The added names are added to it.
        """
        paths = self._context.paths
        if snapshot.statistics is not None and snapshot.statistics not in retained:
            retained.add(snapshot.statistics)
            plan.metadata[snapshot.statistics] = paths.statistics(snapshot.statistics)
        if snapshot.index_manifest is None or snapshot.index_manifest in retained:
            return
        retained.add(snapshot.index_manifest)
        plan.lists[snapshot.index_manifest] = paths.manifest(snapshot.index_manifest)
        try:
            entries = read_index_manifest(self._context, snapshot.index_manifest)
        except CorruptFile as error:
            self._warn_if_exists(paths.manifest(snapshot.index_manifest), error, "index files stay behind")
            return
        for entry in entries:
            name = entry.file.file_name
            if name not in retained:
                retained.add(name)
                plan.metadata[name] = index_entry_path(self._context, entry)

    def _entries(self, file: ListFile | None, otherwise: str) -> Iterator[ManifestEntry]:
        for meta in self._metas(file) if file is not None else ():
            try:
                entries = self._manifests.read(meta)
            except CorruptFile as error:
                self._warn_if_exists(self._context.paths.manifest(meta.file_name), error, otherwise)
                continue
            yield from entries

    def _metas(self, file: ListFile) -> Sequence[ManifestFileMeta]:
        try:
            return self._manifests.read_list(file)
        except CorruptFile as error:
            self._warn_if_exists(self._context.paths.manifest(file.name), error, "what only it names stays behind")
            return ()

    def _warn_if_exists(self, path: str, error: CorruptFile, otherwise: str) -> None:
        """Warn about a file that exists but can't be read. It must not block the table's expiry forever."""
        if self._context.io.exists(path):
            _log.warning("metadata unreadable in expiry", path=path, error=str(error), effect=otherwise)

    def _directory(self, entry: ManifestEntry) -> str:
        bucket = entry.bucket_id
        if bucket not in self._directories:
            self._directories[bucket] = bucket_directory(self._context, *bucket)
        return self._directories[bucket]


def delete_empty_directories(context: TableContext, deleted: Iterable[str]) -> None:
    """Delete the directories of deleted data files, and the partition directories above, if they are empty.

    deleted: paths of data files.
    """
    levels = 1 + len(context.schema.partition_keys)
    for bucket in {path.rpartition("/")[0] for path in deleted}:
        directory = bucket
        for _ in range(levels):
            if not context.io.delete_empty_directory(directory):
                break
            directory = directory.rpartition("/")[0]
