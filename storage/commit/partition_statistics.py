"""Counts what a commit changes in each partition, from its files.

Source: Java `manifest/PartitionEntry.java`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot_commit import PartitionStatistics


def partition_statistics(entries: Iterable[ManifestEntry]) -> list[PartitionStatistics]:
    """Returns one result for each partition, in the order in which the partitions occur first.

    entries: the entries of one commit, in its order.
    """
    found: dict[bytes, PartitionStatistics] = {}
    for entry in entries:
        now = _of_entry(entry)
        before = found.get(entry.partition)
        found[entry.partition] = now if before is None else _added(before, now)
    return list(found.values())


def _of_entry(entry: ManifestEntry) -> PartitionStatistics:
    sign = 1 if entry.kind is FileKind.ADD else -1
    file = entry.file
    return PartitionStatistics(
        partition=entry.partition,
        record_count=sign * file.row_count,
        file_size_bytes=sign * file.file_size,
        file_count=sign,
        last_file_creation_time_ms=file.creation_time_ms,
        total_buckets=entry.total_buckets,
    )


def _added(one: PartitionStatistics, other: PartitionStatistics) -> PartitionStatistics:
    times = [t for t in (one.last_file_creation_time_ms, other.last_file_creation_time_ms) if t is not None]
    return PartitionStatistics(
        partition=one.partition,
        record_count=one.record_count + other.record_count,
        file_size_bytes=one.file_size_bytes + other.file_size_bytes,
        file_count=one.file_count + other.file_count,
        last_file_creation_time_ms=max(times, default=None),
        total_buckets=other.total_buckets,
    )
