"""Entries of a manifest list: a manifest, and statistics about its entries.

Source: Java `manifest/ManifestFileMeta.java`, `ManifestFileMetaSerializer.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, stats_from_record, stats_to_record
from tidelake.storage.commit.manifests.record_file import Record, file_name
from tidelake.storage.files.data_file import SimpleStats
from tidelake.storage.model.format import MANIFEST_LIST_VERSION, FileKind


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """A manifest list's description of a manifest.

    partition_stats: statistics of the partition columns.
    schema_id: the largest schema id of the entries.
    min_bucket to max_row_id: bounds of buckets, levels and row ids; None if unknown.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None

    @property
    def num_entries(self) -> int:
        return self.num_added_files + self.num_deleted_files


def describe_manifest(
    file_name: str, file_size: int, entries: Sequence[ManifestEntry], partition_stats: SimpleStats
) -> ManifestFileMeta:
    """Return the description of a manifest.

    entries: all entries of the manifest, at least one.
    """
    buckets = [entry.bucket for entry in entries]
    levels = [entry.file.level for entry in entries]
    row_ids = [(first, first + e.file.row_count - 1) for e in entries if (first := e.file.first_row_id) is not None]
    all_have_row_ids = len(row_ids) == len(entries)
    added = sum(entry.kind is FileKind.ADD for entry in entries)
    return ManifestFileMeta(
        file_name,
        file_size,
        added,
        len(entries) - added,
        partition_stats,
        max(entry.file.schema_id for entry in entries),
        min(buckets),
        max(buckets),
        min(levels),
        max(levels),
        min(first for first, _ in row_ids) if all_have_row_ids else None,
        max(last for _, last in row_ids) if all_have_row_ids else None,
    )


def meta_to_record(meta: ManifestFileMeta) -> Record:
    return {
        "_VERSION": MANIFEST_LIST_VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.num_added_files,
        "_NUM_DELETED_FILES": meta.num_deleted_files,
        "_PARTITION_STATS": stats_to_record(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
        "_MIN_ROW_ID": meta.min_row_id,
        "_MAX_ROW_ID": meta.max_row_id,
    }


def meta_from_record(record: Record) -> ManifestFileMeta:
    """Decode a record. Raises KeyError, TypeError or ValueError if it is of another kind."""
    version = record["_VERSION"]
    if version != MANIFEST_LIST_VERSION:
        raise ValueError(f"a manifest list of version {version}, not {MANIFEST_LIST_VERSION}")
    return ManifestFileMeta(
        file_name(record["_FILE_NAME"]),
        record["_FILE_SIZE"],
        record["_NUM_ADDED_FILES"],
        record["_NUM_DELETED_FILES"],
        stats_from_record(record["_PARTITION_STATS"]),
        record["_SCHEMA_ID"],
        record.get("_MIN_BUCKET"),
        record.get("_MAX_BUCKET"),
        record.get("_MIN_LEVEL"),
        record.get("_MAX_LEVEL"),
        record.get("_MIN_ROW_ID"),
        record.get("_MAX_ROW_ID"),
    )
