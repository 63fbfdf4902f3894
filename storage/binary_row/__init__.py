"""Paimon's BinaryRow: rows as bytes, the form of partitions, keys and bounds in metadata.

    byte 0            row kind, always +I here but on request
    from byte 1       null bits, field 0 lowest; with byte 0 padded to a multiple of 8 bytes
    then              one 8-byte slot a field, little-endian
    then              what does not fit a slot, in field order, each padded to 8 bytes; its slot says offset and length

In manifests a row is preceded by its number of fields, 4 bytes big-endian: the *serialized* form. Columns go in and
columns come out; no code here runs per row, but for encoding ARRAY, MAP, VECTOR and VARIANT, which keys never hold.

Source: Java `data/BinaryRow.java`, `data/AbstractBinaryWriter.java`, `data/BinaryArray.java`,
`utils/MurmurHashUtils.java`.
"""

from __future__ import annotations

from storage.binary_row.decode import decode_rows, decode_rows_of_files
from storage.binary_row.encode import encode_rows, serialize, serialize_row, serialize_rows
from storage.binary_row.hashing import hash_bytes, hash_rows

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
