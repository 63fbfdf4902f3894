"""The latest compactions of a table, its write amplification and what its commits wrote, read from its snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import changelog_list, delta_entries, delta_list
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY, CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class PastCompaction:
    """One COMPACT snapshot.

    reason: why its files were picked; None if its writer (Java, pypaimon) doesn't record it
    files_written: the number of new files; others only changed their level
    bytes_written: the size of the new files
    """

    snapshot_id: int
    time_ms: int
    commit_user: str
    reason: str | None
    buckets: int
    files_before: int
    files_after: int
    files_written: int
    bytes_before: int
    bytes_after: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class CompactionHistory:
    """The recent compactions of a table.

    compactions: newest first
    snapshots: the number of snapshots that were read
    bytes_added: the bytes of files with new rows
    commits: the number of commits that made these snapshots; a compaction may be a part of a commit
    data_puts: the number of data, changelog and index files that they wrote. In an object store, each is a request; a
        large file needs more
    metadata_puts: the number of their metadata files and hints. Manifests that were only merged are not counted
    """

    compactions: tuple[PastCompaction, ...]
    snapshots: int
    bytes_added: int
    commits: int = 0
    data_puts: int = 0
    metadata_puts: int = 0

    @property
    def write_amplification(self) -> float | None:
        """Bytes written by commits and compactions, for each byte of new rows. None if no new rows were written."""
        rewritten = sum(one.bytes_written for one in self.compactions)
        return (self.bytes_added + rewritten) / self.bytes_added if self.bytes_added else None

    @classmethod
    def of(cls, context: TableContext, latest: Snapshot | None, snapshots_max: int) -> CompactionHistory:
        """Read the changes of the newest snapshots."""
        compactions: list[PastCompaction] = []
        count = bytes_added = data_puts = metadata_puts = 0
        commits = set[tuple[str, int]]()
        newest_first = _newest_first(context, latest)
        following = next(newest_first, None)
        while (snapshot := following) is not None and count < snapshots_max:
            following = next(newest_first, None)
            count += 1
            delta = delta_entries(context, snapshot)
            commits.add((snapshot.commit_user, snapshot.commit_identifier if snapshot.is_numbered else -snapshot.id))
            of_data, of_metadata = _puts(context, snapshot, following, delta)
            data_puts, metadata_puts = data_puts + of_data, metadata_puts + of_metadata
            if snapshot.commit_kind is not CommitKind.COMPACT:
                bytes_added += sum(entry.file.file_size for entry in delta if entry.kind is FileKind.ADD)
            elif delta:  # empty if only manifests were rewritten
                compactions.append(_compaction(snapshot, delta))
        metadata_puts += len(commits)  # the hint
        return cls(tuple(compactions), count, bytes_added, len(commits), data_puts, metadata_puts)


def _newest_first(context: TableContext, latest: Snapshot | None) -> Iterator[Snapshot]:
    if latest is not None:
        yield from context.snapshots.backwards_from(latest)


def _puts(
    context: TableContext, snapshot: Snapshot, before: Snapshot | None, delta: Sequence[ManifestEntry]
) -> tuple[int, int]:
    """Return the number of data files and of metadata files that a snapshot added."""
    manifests = context.shared(ManifestStore)
    removed = {entry.file.file_name for entry in delta if entry.kind is FileKind.DELETE}
    added = [e.file for e in delta if e.kind is FileKind.ADD and e.file.file_name not in removed]
    data = sum(1 + len(file.extra_files) for file in added)
    metadata = 3 + len(manifests.read_list(delta_list(snapshot)))  # the snapshot, and its two lists
    if (changelog := changelog_list(snapshot)) is not None:
        metas = manifests.read_list(changelog)
        data += sum(meta.num_added_files for meta in metas)
        metadata += 1 + len(metas)
    index = snapshot.index_manifest
    if index is not None and before is not None and index != before.index_manifest:
        known = {entry.file.file_name for entry in manifests.read_index(before.index_manifest)}
        data += len({entry.file.file_name for entry in manifests.read_index(index)} - known)
        metadata += 1
    return data, metadata


def _compaction(snapshot: Snapshot, delta: list[ManifestEntry]) -> PastCompaction:
    before = [entry.file for entry in delta if entry.kind is FileKind.DELETE]
    after = [entry.file for entry in delta if entry.kind is FileKind.ADD]
    kept = {file.file_name for file in before}
    written = [file for file in after if file.file_name not in kept]
    return PastCompaction(
        snapshot.id,
        snapshot.time_ms,
        snapshot.commit_user,
        snapshot.properties.get(COMPACTION_REASON_PROPERTY),
        len({entry.bucket_id for entry in delta}),
        len(before),
        len(after),
        len(written),
        sum(file.file_size for file in before),
        sum(file.file_size for file in after),
        sum(file.file_size for file in written),
    )
