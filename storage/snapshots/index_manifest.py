"""Index manifests: which files of the table's index (hashes of dynamic buckets, deletion vectors) a snapshot has.

Read only. What is in the files, others know.

Source: Java `manifest/IndexManifestEntry.java`, `index/IndexFileHandler.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.deletion_vectors.index_file import DeletionFile, VectorMeta
from storage.errors import CorruptFile
from storage.files.bucket_directory import bucket_directory
from storage.format import DELETION_VECTORS_INDEX, INDEX_MANIFEST_VERSION
from storage.snapshots.metadata_file import Record, file_name, read_records
from storage.table import TableContext


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """partition: serialized BinaryRow. external_path: None for a file inside the table. vectors: of deletion vectors,
    where each lies in the file.
    """

    partition: bytes
    bucket: int
    index_type: str
    file_name: str
    file_size: int
    external_path: str | None = None
    vectors: tuple[VectorMeta, ...] = ()


def read_index_manifest(context: TableContext, name: str) -> Sequence[IndexEntry]:
    """All index files of a snapshot: the manifest is always complete. Raises CorruptFile."""
    path = context.paths.manifest(name)
    try:
        data = context.io.read(path)
    except FileNotFoundError:
        raise CorruptFile(path, "an index manifest that a snapshot refers to", "no file") from None
    return read_records(data, path, _entry)


def index_file_path(context: TableContext, entry: IndexEntry) -> str:
    """Under `index/`, or in the bucket (option `index-file-in-data-file-dir`)."""
    if entry.external_path is not None:
        return entry.external_path
    if context.options.index_file_in_data_file_directory:
        return f"{bucket_directory(context, entry.partition, entry.bucket)}/{entry.file_name}"
    return context.paths.index(entry.file_name)


def deletion_files(context: TableContext, name: str | None) -> dict[tuple[bytes, int], dict[str, DeletionFile]]:
    """By (partition, bucket) the deletion vector of each data file that has one. name: of the index manifest."""
    found: dict[tuple[bytes, int], dict[str, DeletionFile]] = {}
    for entry in read_index_manifest(context, name) if name is not None else ():
        if entry.index_type == DELETION_VECTORS_INDEX:
            path = index_file_path(context, entry)
            of_bucket = found.setdefault((entry.partition, entry.bucket), {})
            of_bucket.update({vector.data_file: DeletionFile(path, vector) for vector in entry.vectors})
    return found


def _entry(record: Record) -> IndexEntry:
    if record["_VERSION"] != INDEX_MANIFEST_VERSION:
        raise ValueError(f"an index manifest of version {record['_VERSION']}, not {INDEX_MANIFEST_VERSION}")
    return IndexEntry(
        record["_PARTITION"],
        record["_BUCKET"],
        record["_INDEX_TYPE"],
        file_name(record["_FILE_NAME"]),
        record["_FILE_SIZE"],
        None if (path := record.get("_EXTERNAL_PATH")) is None else file_name(path),
        tuple(
            VectorMeta(part["f0"], part["f1"], part["f2"], part.get("_CARDINALITY"))
            for part in record.get("_DELETIONS_VECTORS_RANGES") or ()
        ),
    )
