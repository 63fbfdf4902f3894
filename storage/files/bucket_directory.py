"""The directories and paths of the data files of a bucket.

Source: Java `io/DataFilePathFactory.java`, `utils/FileStorePathFactory.java`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.paths import partition_path
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.partition_text import partition_texts


def bucket_directory(context: TableContext, partition: bytes, bucket: int) -> str:
    """Return the directory of a bucket.

    partition: the serialized BinaryRow of the partition columns.
    """
    return context.paths.bucket_directory(partition_directory(context, partition), bucket)


def partition_directory(context: TableContext, partition: bytes) -> str:
    """Return the directory of a partition: `dt=2024-05-14/hour=7`, or "" for an unpartitioned table."""
    return partition_directories(context, [partition])[0]


def partition_directories(context: TableContext, partitions: Sequence[bytes]) -> list[str]:
    """Return the directory of each partition, see `partition_directory`."""
    fields = context.schema.partition_fields
    if not fields or not partitions:
        return [""] * len(partitions)
    types = [field.type for field in fields]
    names = [field.name for field in fields]
    columns = decode_rows(partitions, types)
    options = context.options
    return [
        partition_path(
            names, partition_texts(values, types, options.partition_legacy_name), options.partition_default_name
        )
        for values in zip(*columns, strict=True)
    ]


def data_file_path(directory: str, file: DataFileMeta) -> str:
    """Return the path of a data file. A file outside of the table has its path in its metadata.

    directory: the directory of the bucket.
    """
    return file.external_path if file.external_path is not None else f"{directory}/{file.file_name}"


def all_paths(directory: str, file: DataFileMeta) -> Sequence[str]:
    """Return the paths of the file and of its extra files, which are deleted together with it."""
    path = data_file_path(directory, file)
    folder = path.rpartition("/")[0]
    return [path, *(f"{folder}/{name}" for name in file.extra_files)]
