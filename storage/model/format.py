"""All numbers and names in files on disk. They are permanent: never renumber, never reuse.

FORMAT.md in this directory shows the whole format; Java Paimon is the reference. Readers reject unknown versions.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

SNAPSHOT_VERSION: Final = 3
SCHEMA_VERSION: Final = 3
MANIFEST_LIST_VERSION: Final = 2
MANIFEST_ENTRY_VERSION: Final = 2
INDEX_MANIFEST_VERSION: Final = 1

# Identifier of commits that are not part of a numbered stream (Java: BatchWriteBuilder.COMMIT_IDENTIFIER).
BATCH_COMMIT_IDENTIFIER: Final = 2**63 - 1

# Property of our COMPACT snapshots with the reason for the compaction, for people. Paimon's own properties have other
# prefixes, and it keeps unknown ones.
COMPACTION_REASON_PROPERTY: Final = "tidelake.compaction.reason"


class RowKind(IntEnum):
    """Column `_VALUE_KIND` (TINYINT)."""

    INSERT = 0  # +I
    UPDATE_BEFORE = 1  # -U
    UPDATE_AFTER = 2  # +U
    DELETE = 3  # -D

    @property
    def symbol(self) -> str:
        return ("+I", "-U", "+U", "-D")[self]

    @property
    def is_retract(self) -> bool:
        """-U and -D retract a row; +I and +U add one."""
        return self in (RowKind.UPDATE_BEFORE, RowKind.DELETE)


class FileKind(IntEnum):
    """Field `_KIND` of a manifest entry."""

    ADD = 0
    DELETE = 1


class FileSource(IntEnum):
    """Field `_FILE_SOURCE` of a data file's metadata."""

    APPEND = 0
    COMPACT = 1


class CommitKind(StrEnum):
    """Member `commitKind` of a snapshot."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


# Columns of a primary-key data file before the table's own columns (Java: SpecialFields).
KEY_COLUMN_PREFIX: Final = "_KEY_"
SEQUENCE_COLUMN: Final = "_SEQUENCE_NUMBER"
KIND_COLUMN: Final = "_VALUE_KIND"
LEVEL_COLUMN: Final = "_LEVEL"
ROW_ID_COLUMN: Final = "_ROW_ID"
POSITION_COLUMN: Final = "_POSITION"  # position of a row in its file; exists only while reading
RESERVED_COLUMNS: Final = frozenset({SEQUENCE_COLUMN, KIND_COLUMN, LEVEL_COLUMN, ROW_ID_COLUMN, "rowkind"})
"""Names that no column of a table may have; the last one is a column of the system table audit_log."""


def is_reserved_column(name: str) -> bool:
    """Return whether no column of a table may have this name."""
    return name in RESERVED_COLUMNS or name.startswith(KEY_COLUMN_PREFIX)


# Blob files (Java: BlobFormatWriter, BlobDescriptor). Little-endian.
BLOB_MAGIC: Final = 1481511375  # before each value
BLOB_VERSION: Final = 1  # last byte of a file. Readers reject unknown versions
BLOB_NULL_LENGTH: Final = -1
BLOB_PLACEHOLDER_LENGTH: Final = -2  # the value is in an older file
BLOB_DESCRIPTOR_VERSION: Final = 2  # first byte of a descriptor; version 1 had no magic number
BLOB_DESCRIPTOR_MAGIC: Final = 0x424C4F4244455343  # "BLOBDESC"
BLOB_FORMAT: Final = "blob"  # file extension
VECTOR_FILE_MARK: Final = ".vector."  # part of the name of a file that holds only vectors

SYSTEM_FIELD_ID_START: Final = 2**30 - 1  # larger field ids are Paimon's own; `_KEY_x` = id of x + this
SEQUENCE_FIELD_ID: Final = 2**31 - 1 - 1
KIND_FIELD_ID: Final = 2**31 - 1 - 2
LEVEL_FIELD_ID: Final = 2**31 - 1 - 3
ROW_ID_FIELD_ID: Final = 2**31 - 1 - 5  # 4 belongs to a column of a system table
POSITION_FIELD_ID: Final = 2**31 - 1 - 1000  # not in files

# Ids of list elements, map keys and map values inside data files (Java: SpecialFields.getArrayElementFieldId, ...).
NESTED_FIELD_ID_BASE: Final = 536_870_911  # 2**29 - 1
NESTED_FIELD_ID_DEPTH_LIMIT: Final = 1024

BUCKET_DIRECTORY_PREFIX: Final = "bucket-"
POSTPONE_BUCKET: Final = -2
UNAWARE_BUCKET: Final = -1  # option value `bucket`; rows of such append tables are in bucket 0
DEFAULT_BRANCH: Final = "main"
LATEST_HINT: Final = "LATEST"
EARLIEST_HINT: Final = "EARLIEST"

# Names of compressions in options, and their names in the format.
PARQUET_CODECS: Final = {
    "none": "NONE",
    "uncompressed": "NONE",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "lz4": "LZ4",
    "lz4_raw": "LZ4",
    "zstd": "ZSTD",
    "brotli": "BROTLI",
}
AVRO_CODECS: Final = {
    "zstd": "zstandard",
    "none": "null",  # Java accepts only the word "null"
    **{codec: codec for codec in ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")},
}

AVRO_NAMESPACE: Final = "org.apache.paimon.avro.generated"
AVRO_RECORD: Final = "record"

# Hashes of the keys of a dynamic bucket (Java: HashIndexFile).
HASH_INDEX: Final = "HASH"  # `_INDEX_TYPE` of an index manifest's entry

# Deletion vectors (Java: DeletionVectorsIndexFile, BitmapDeletionVector, Bitmap64DeletionVector).
DELETION_VECTORS_INDEX: Final = "DELETION_VECTORS"  # `_INDEX_TYPE` of an index manifest's entry
DELETION_VECTORS_VERSION: Final = 1  # first byte of an index file. Readers reject unknown versions
DELETION_VECTOR_32_MAGIC: Final = 1581511376  # big-endian
DELETION_VECTOR_64_MAGIC: Final = 1681511377  # little-endian; Apache Iceberg's

# File indexes (Java: FileIndexFormat).
FILE_INDEX_MAGIC: Final = 1493475289347502  # big-endian
FILE_INDEX_VERSION: Final = 1
