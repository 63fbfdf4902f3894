"""Index manifests: the index files of a snapshot (hashes of dynamic buckets, deletion vectors).

An index manifest is always complete. A commit that changes the index writes the whole manifest; any other commit keeps
the file.

Source: Java `manifest/IndexManifestEntry.java`, `manifest/IndexManifestEntrySerializer.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelake.errors import CorruptFile
from tidelake.storage.commit.manifests.record_file import Record, file_name, read_records
from tidelake.storage.files.index_file import IndexFileMeta, index_file_path
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionVectorMeta
from tidelake.storage.model.format import INDEX_MANIFEST_VERSION, FileKind
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index file of a bucket.

    kind: DELETE occurs only in the changes of a commit; manifests contain only ADD.
    partition: serialized BinaryRow.
    """

    partition: bytes
    bucket: int
    file: IndexFileMeta
    kind: FileKind = FileKind.ADD

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    def as_delete(self) -> IndexEntry:
        return replace(self, kind=FileKind.DELETE)


def read_index_manifest(context: TableContext, name: str | None) -> Sequence[IndexEntry]:
    """Return all index files of a snapshot.

    name: None for a snapshot without an index manifest.
    Raises CorruptFile.
    """
    if name is None:
        return ()
    path = context.paths.manifest(name)
    try:
        data = context.io.read(path)
    except FileNotFoundError:
        raise CorruptFile(path, "an index manifest that a snapshot references", "no file") from None
    return read_records(data, path, entry_from_record)


def index_entry_path(context: TableContext, entry: IndexEntry) -> str:
    return index_file_path(context, entry.partition, entry.bucket, entry.file)


def index_files_by_bucket(entries: Sequence[IndexEntry]) -> dict[BucketId, list[IndexFileMeta]]:
    """Return the index files by (partition, bucket)."""
    found: dict[BucketId, list[IndexFileMeta]] = defaultdict(list)
    for entry in entries:
        found[entry.bucket_id].append(entry.file)
    return found


def entry_from_record(record: Record) -> IndexEntry:
    if record["_VERSION"] != INDEX_MANIFEST_VERSION:
        raise ValueError(f"an index manifest of version {record['_VERSION']}, not {INDEX_MANIFEST_VERSION}")
    file = IndexFileMeta(
        record["_INDEX_TYPE"],
        file_name(record["_FILE_NAME"]),
        record["_FILE_SIZE"],
        record["_ROW_COUNT"],
        tuple(
            DeletionVectorMeta(part["f0"], part["f1"], part["f2"], part.get("_CARDINALITY"))
            for part in record.get("_DELETIONS_VECTORS_RANGES") or ()
        ),
        None if (path := record.get("_EXTERNAL_PATH")) is None else file_name(path),
        record.get("_GLOBAL_INDEX"),
    )
    return IndexEntry(record["_PARTITION"], record["_BUCKET"], file)


def entry_to_record(entry: IndexEntry) -> Record:
    file = entry.file
    vectors = [
        {"f0": vector.data_file, "f1": vector.offset, "f2": vector.length, "_CARDINALITY": vector.cardinality}
        for vector in file.vectors
    ]
    return {
        "_VERSION": INDEX_MANIFEST_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": vectors if file.holds_deletion_vectors else None,
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": file.global_index,
    }
