"""The latest compactions of a table and its write amplification, read from its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import delta_entries
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
    """

    compactions: tuple[PastCompaction, ...]
    snapshots: int
    bytes_added: int

    @property
    def write_amplification(self) -> float | None:
        """Bytes written by commits and compactions, for each byte of new rows. None if no new rows were written."""
        rewritten = sum(one.bytes_written for one in self.compactions)
        return (self.bytes_added + rewritten) / self.bytes_added if self.bytes_added else None

    @classmethod
    def of(cls, context: TableContext, latest: Snapshot | None, snapshots_max: int) -> CompactionHistory:
        """Read the changes of the newest snapshots."""
        compactions: list[PastCompaction] = []
        count = bytes_added = 0
        for snapshot in islice(_newest_first(context, latest), snapshots_max):
            count += 1
            delta = delta_entries(context, snapshot)
            if snapshot.commit_kind is not CommitKind.COMPACT:
                bytes_added += sum(entry.file.file_size for entry in delta if entry.kind is FileKind.ADD)
            elif delta:  # empty if only manifests were rewritten
                compactions.append(_compaction(snapshot, delta))
        return cls(tuple(compactions), count, bytes_added)


def _newest_first(context: TableContext, latest: Snapshot | None) -> Iterator[Snapshot]:
    if latest is not None:
        yield from context.snapshots.backwards_from(latest)


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
