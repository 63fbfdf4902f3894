"""Paimon's BinaryRow: rows as bytes, the form of partitions, keys and bounds in metadata.

    byte 0            row kind, +I unless another one is requested
    from byte 1       null bits, field 0 lowest; with byte 0 padded to a multiple of 8 bytes
    then              one slot of 8 bytes per field, little-endian
    then              values that don't fit into a slot, in field order, each padded to 8 bytes; the slot has offset and
    length

In manifests, the row follows its number of fields, 4 bytes big-endian. This is the *serialized* form. Columns are
encoded and decoded as a whole, without Python code per row. The exception is encoding ARRAY, MAP, VECTOR and VARIANT,
which keys never contain.

Source: Java `data/BinaryRow.java`, `data/AbstractBinaryWriter.java`, `data/BinaryArray.java`,
`utils/MurmurHashUtils.java`.
"""

from __future__ import annotations

from tidelake.storage.model.binary_row.decode import decode_rows, decode_rows_of_files
from tidelake.storage.model.binary_row.encode import encode_rows, serialize, serialize_row, serialize_rows
from tidelake.storage.model.binary_row.hashing import hash_bytes, hash_rows

__all__ = [
    "decode_rows",
    "decode_rows_of_files",
    "encode_rows",
    "hash_bytes",
    "hash_rows",
    "serialize",
    "serialize_row",
    "serialize_rows",
]
