"""Reads BLOB columns that are stored as descriptors in ordinary files (`blob-descriptor-field`).

The bytes are in other files, which the descriptors name.

Source: Java `data/Blob.java` (fromBytes), `data/columnar/ColumnarRow.java` (getBlob).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelake.storage.base.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.files.formats.blob.descriptor import BlobDescriptor
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, Root


def with_inline_blobs(context: TableContext, batch: pa.RecordBatch, fields: Sequence[DataField]) -> pa.RecordBatch:
    """Replaces the descriptors of BLOB columns by the bytes they refer to, unless the options ask for descriptors.

    fields: the fields of the batch

    Raises CorruptFile with the path that a descriptor names.
    """
    blobs = [i for i, field in enumerate(fields) if field.type.root is Root.BLOB]
    if not blobs or context.options.is_on("blob-as-descriptor"):
        return batch
    columns = list(batch.columns)
    for i in blobs:
        values = [None if value is None else _bytes_of(context, fields[i], value) for value in columns[i].to_pylist()]
        columns[i] = pa.array(values, pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _bytes_of(context: TableContext, field: DataField, value: bytes) -> bytes:
    try:
        descriptor = BlobDescriptor.from_bytes(value)
    except ValueError as e:
        raise UnsupportedFeature(
            f"{context.name}: a value of column {field.name} BLOB in an ordinary file",
            f"it is not a descriptor: {e}",
            "Set blob-as-descriptor = true to see its bytes",
        ) from None
    try:
        with context.io.open_input(descriptor.uri) as source:
            left = source.size() - descriptor.offset
            length = left if descriptor.length < 0 else descriptor.length
            if descriptor.offset < 0 or not 0 <= length <= left:
                raise CorruptFile(descriptor.uri, f"{length} bytes at {descriptor.offset}", f"{left}")
            return bytes(source.read_at(length, descriptor.offset))
    except FileNotFoundError:
        raise CorruptFile(descriptor.uri, f"a file that column {field.name} refers to", "none") from None
