"""Explains for each file of a snapshot why a scan reads or skips it. It opens indexes, but no data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path, partition_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.scan import SkipReason, TableScan
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate
from tidelake.storage.read.split import Split


@dataclass(frozen=True, slots=True)
class ExplainedFile:
    """Why one file is read or skipped.

    partition: the partition as in directory names, "" for a table without partitions
    left_out: why the file is not read; None for a file that is read
    is_merged: its rows are merged with those of other files, so only conditions on the key can skip it
    row_count: rows in the file
    deleted_rows: how many of its rows a deletion vector deletes; None if they were not counted
    index_rows: how many rows its indexes leave to read; None if the indexes can't tell
    """

    partition: str
    bucket: int
    file_name: str
    level: int
    row_count: int
    left_out: SkipReason | None
    is_merged: bool = False
    deleted_rows: int | None = 0
    index_rows: int | None = None

    @property
    def reason(self) -> str:
        """Why the file is read or skipped, in words."""
        match self.left_out:
            case None if self.is_merged:
                return "read, merged with other files: only conditions on the key can leave it out"
            case None if self.deleted_rows == self.row_count:
                return "read, though every row is deleted"
            case None if self.index_rows is not None:
                return f"read: its index leaves {self.index_rows} of {self.row_count} rows"
            case None:
                return "read: its statistics and indexes don't exclude a matching row"
            case SkipReason.LEVEL_0:
                return "left out: rows of level 0 are visible after they were compacted"
            case SkipReason.POSTPONED:
                return "left out: rows of bucket-postpone are visible after a compaction moved them into buckets"
            case SkipReason.INDEX:
                return "left out by its index: no row may match"
            case _:
                return f"left out by its {self.left_out}: no row may match"


def explain_scan(scan: TableScan, snapshot: Snapshot | None) -> list[ExplainedFile]:
    """Explain all files, in the order of partitions, buckets and files. Raises SnapshotExpired."""
    if snapshot is None:
        return []
    left_out: dict[int, SkipReason] = {}
    entries: list[ManifestEntry] = []

    def listed(entry: ManifestEntry) -> bool:
        is_kept = scan.keep_entry is None or scan.keep_entry(entry)
        if is_kept:
            entries.append(entry)
        return is_kept

    def report(file: DataFileMeta, why: SkipReason) -> None:
        left_out.setdefault(id(file), why)

    with raise_if_snapshot_expired(scan.context, snapshot.id):
        splits = replace(scan, keep_entry=listed, report=report).plan(snapshot)
        explained = [found for split in splits for found in _read(scan, split)]
    for entry in entries:
        if (why := left_out.get(id(entry.file))) is not None:
            partition, file = partition_directory(scan.context, entry.partition), entry.file
            explained.append(ExplainedFile(partition, entry.bucket, file.file_name, file.level, file.row_count, why))
    return sorted(explained, key=lambda file: (file.partition, file.bucket, -file.level, file.file_name))


def _read(scan: TableScan, split: Split) -> Iterator[ExplainedFile]:
    """Yield the files of a split, with the answer of their indexes."""
    directory = bucket_directory(scan.context, split.partition, split.bucket)
    keys = frozenset(scan.context.schema.trimmed_primary_keys)
    for section in split.sections:
        is_merged = len(section) > 1
        condition = scan.predicate
        if is_merged and condition is not None:
            condition = condition.within(keys)
        index_predicate = FileIndexPredicate(scan.context, condition)
        for file in (file for run in section for file in run):
            selected = index_predicate.selected_rows(file, data_file_path(directory, file))
            deletion = split.deletion_files.get(file.file_name)
            yield ExplainedFile(
                partition_directory(scan.context, split.partition),
                split.bucket,
                file.file_name,
                file.level,
                file.row_count,
                SkipReason.INDEX if selected is not None and not selected else None,
                is_merged,
                0 if deletion is None else deletion.vector.cardinality,
                None if selected is None else len(selected),
            )
