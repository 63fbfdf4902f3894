"""The files of a table by bucket and level, kept up to date with the changes of each snapshot.

The first look reads the whole state. Later looks read the changes of all snapshots since then, of all writers. If one
of these snapshots has expired, the whole state is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries_of
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import of_latest_snapshot
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader

_ROWS_READ_MAX: Final = 10_000
_FILES_READ_MAX: Final = 16


class LevelFiles(NamedTuple):
    """The files of one level."""

    files: int
    nbytes: int


class RowCount(NamedTuple):
    """The rows of a table.

    is_exact: otherwise it is the number of rows in all files, of which readers merge those of one key.
    """

    rows: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class TableLevels:
    """The levels of one snapshot: for each bucket its levels with files, lowest first.

    rows_in_files: rows of all files, before those of one key are merged
    uncompacted_bytes: bytes below the highest level, which compactions still have to merge; None for a table without
        levels
    flushed_bytes, compacted_bytes: bytes of new files since the first look, of all writers
    """

    snapshot_id: int | None
    buckets: dict[BucketId, dict[int, LevelFiles]]
    rows_in_files: int = 0
    uncompacted_bytes: int | None = None
    flushed_bytes: int = 0
    compacted_bytes: int = 0

    @property
    def write_amplification(self) -> float | None:
        """Bytes that were written for each flushed byte; None if nothing was flushed."""
        return (self.flushed_bytes + self.compacted_bytes) / self.flushed_bytes if self.flushed_bytes else None

    def by_level(self) -> dict[int, LevelFiles]:
        """Return the files of each level, over all buckets."""
        found: dict[int, LevelFiles] = {}
        for levels in self.buckets.values():
            for level, (files, nbytes) in levels.items():
                before = found.get(level, LevelFiles(0, 0))
                found[level] = LevelFiles(before.files + files, before.nbytes + nbytes)
        return dict(sorted(found.items()))

    def sorted_runs_max(self) -> int:
        """Return the sorted runs of the bucket with the most. Each file of level 0 is a run, and each level above."""
        return max(map(sorted_runs, self.buckets.values()), default=0)


def sorted_runs(levels: dict[int, LevelFiles]) -> int:
    return sum(files if level == 0 else 1 for level, (files, _) in levels.items())


class TableLevelsReader:
    """Reads the levels of a table. Methods block; call them from one thread at a time."""

    def __init__(self, context: TableContext) -> None:
        self.context = context
        self._snapshot: Snapshot | None = None
        self._counts: dict[tuple[BucketId, int], tuple[int, int]] = {}
        self._rows_in_files = 0
        self._flushed_bytes = self._compacted_bytes = 0

    def read(self) -> TableLevels:
        """Return the levels of the newest snapshot. Raises the store's errors, and CorruptFile."""
        latest = of_latest_snapshot(self.context, self._read)
        buckets: dict[BucketId, dict[int, LevelFiles]] = {}
        for (key, level), (files, nbytes) in sorted(self._counts.items(), key=_place):
            if files:
                buckets.setdefault(key, {})[level] = LevelFiles(files, nbytes)
        return TableLevels(
            None if latest is None else latest.id,
            buckets,
            self._rows_in_files,
            self._uncompacted_bytes(),
            self._flushed_bytes,
            self._compacted_bytes,
        )

    def _read(self, latest: Snapshot | None) -> Snapshot | None:
        since = self._since(latest)
        if latest is None or since is None:
            entries = live_entries_of(self.context.shared(ManifestStore), latest, None, self.context.name)
            self._counts, self._rows_in_files = {}, 0
            self._count(entries)
        else:
            # An error in between must not leave some of them counted.
            for snapshot, changes in [(one, list(delta_entries(self.context, one))) for one in since]:
                self._count(changes)
                self._count_written(changes, is_compaction=snapshot.commit_kind is CommitKind.COMPACT)
        self._snapshot = latest
        return latest

    def _uncompacted_bytes(self) -> int | None:
        if not self.context.schema.has_primary_key:
            return None
        top = self.context.options.num_levels - 1
        return sum(nbytes for (_, level), (_, nbytes) in self._counts.items() if level < top)

    def count_rows(self) -> RowCount:
        """Return the rows of the snapshot that was read last. They are exact if only few have to be read for it."""
        context, snapshot = self.context, self._snapshot
        options = context.options
        has_deleted_or_partial = options.deletion_vectors_enabled or options.data_evolution_enabled
        is_merged = context.schema.has_primary_key or has_deleted_or_partial
        if not is_merged or not self._rows_in_files:
            return RowCount(self._rows_in_files, True)
        if self._rows_in_files > _ROWS_READ_MAX or sum(files for files, _ in self._counts.values()) > _FILES_READ_MAX:
            return RowCount(self._rows_in_files, False)
        columns = context.schema.primary_keys or context.schema.names[:1]
        batches = SnapshotReader(context, tuple(columns), None).read(TableScan(context, None).plan(snapshot))
        return RowCount(sum(batch.num_rows for batch in batches), True)

    def _since(self, latest: Snapshot | None) -> list[Snapshot] | None:
        """Return the snapshots since the last look, oldest first; None if one of them is missing."""
        if latest is None or self._snapshot is None or latest.id < self._snapshot.id:
            return None
        if latest.id == self._snapshot.id:
            return [] if latest == self._snapshot else None
        found = [self.context.snapshots.find(id_) for id_ in range(self._snapshot.id, latest.id)]
        if found[0] != self._snapshot or None in found:
            return None
        return [*(snapshot for snapshot in found[1:] if snapshot is not None), latest]

    def _count(self, entries: Iterable[ManifestEntry]) -> None:
        for entry in entries:
            key = entry.bucket_id, entry.file.level
            sign = 1 if entry.kind is FileKind.ADD else -1
            files, nbytes = self._counts.get(key, (0, 0))
            self._counts[key] = files + sign, nbytes + sign * entry.file.file_size
            self._rows_in_files += sign * entry.file.row_count

    def _count_written(self, entries: list[ManifestEntry], *, is_compaction: bool) -> None:
        """Count the bytes of new files. A file that only moved to another level was not written."""
        moved = {entry.file.file_name for entry in entries if entry.kind is FileKind.DELETE}
        nbytes = sum(e.file.file_size for e in entries if e.kind is FileKind.ADD and e.file.file_name not in moved)
        if is_compaction:
            self._compacted_bytes += nbytes
        else:
            self._flushed_bytes += nbytes


def _place(count: tuple[tuple[BucketId, int], tuple[int, int]]) -> tuple[bytes, int, int]:
    (key, level), _ = count
    return key.partition, key.bucket, level
