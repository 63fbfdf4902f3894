"""The metadata and the paths of a table's index files.

Deletion vectors are read by `tidelake.storage.model.deletion_vectors`, and hashes of dynamic buckets by
`tidelake.storage.write.assigners`. Global indexes are not read.

Source: Java `index/IndexFileMeta.java`, `index/IndexFileHandler.java`, `utils/FileStorePathFactory.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelake.storage.files.bucket_directory import bucket_directory
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, DeletionVectorMeta
from tidelake.storage.model.format import DELETION_VECTORS_INDEX
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class IndexFileMeta:
    """One immutable index file of a bucket.

    index_type: HASH, DELETION_VECTORS, or a kind of global index.
    row_count: the number of hashes or vectors in the file.
    vectors: the place of each deletion vector in the file.
    external_path: the path of a file outside of the table; None for a file inside the table.
    global_index: the manifest's description of a global index. It is kept unchanged, and not interpreted.
    """

    index_type: str
    file_name: str
    file_size: int = 0
    row_count: int = 0
    vectors: tuple[DeletionVectorMeta, ...] = ()
    external_path: str | None = None
    global_index: Mapping[str, Any] | None = None

    @property
    def holds_deletion_vectors(self) -> bool:
        return self.index_type == DELETION_VECTORS_INDEX


def index_file_path(context: TableContext, partition: bytes, bucket: int, file: IndexFileMeta) -> str:
    """Return the path of an index file: under `index/`, or in the bucket (option `index-file-in-data-file-dir`)."""
    if file.external_path is not None:
        return file.external_path
    return index_path_of_name(context, partition, bucket, file.file_name)


def index_path_of_name(context: TableContext, partition: bytes, bucket: int, name: str) -> str:
    """Return the path of an index file inside the table."""
    if context.options.index_file_in_data_file_directory:
        return f"{bucket_directory(context, partition, bucket)}/{name}"
    return context.paths.index(name)


def deletion_files_of(
    context: TableContext, partition: bytes, bucket: int, files: Iterable[IndexFileMeta]
) -> dict[str, DeletionFile]:
    """Return the place of each deletion vector, by the name of its data file.

    files: the index files of one bucket, of any type.
    """
    found: dict[str, DeletionFile] = {}
    for file in files:
        if file.vectors:
            path = index_file_path(context, partition, bucket, file)
            found.update({vector.data_file: DeletionFile(path, vector) for vector in file.vectors})
    return found
