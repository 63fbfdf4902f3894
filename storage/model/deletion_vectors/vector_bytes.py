"""The bytes of one deletion vector: the positions of a data file's deleted rows, as a Roaring bitmap.

                 bitmap32 (default)                 bitmap64 (deletion-vectors.bitmap64)
    size         4 bytes, big-endian: bytes of magic and bitmap
    magic        4 bytes, big-endian 1581511376     4 bytes, little-endian 1681511377
    bitmap       Roaring, portable form             count n (8 bytes), then n times key (4 bytes) and Roaring,
                                                    little-endian; keys 0 to n - 1, empty ones too
    CRC-32       4 bytes, big-endian, of magic and bitmap
    `length`     of magic and bitmap                of everything
    (metadata)

Both forms may be in one index file; the magic distinguishes them. bitmap64 is the form of Apache Iceberg's deletion
vectors.

Source: Java `deletionvectors/BitmapDeletionVector.java`, `Bitmap64DeletionVector.java`, `DeletionVector.java`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from tidelake.errors import CorruptFile
from tidelake.storage.base.roaring import serialize, serialized_bytes
from tidelake.storage.model.format import DELETION_VECTOR_32_MAGIC, DELETION_VECTOR_64_MAGIC

POSITION_32_MAX: Final = 2**31 - 1

_INT: Final = struct.Struct(">i")
_PREFIX_BYTES: Final = 4
_CRC_BYTES: Final = 4


def vector_to_bytes(positions: NDArray[np.int64], *, bitmap64: bool) -> bytes:
    """Return the bytes of a vector.

    positions (n,): >= 0, in any order.

    Raises ValueError for a position that the form can't hold.
    """
    if bitmap64:
        body = DELETION_VECTOR_64_MAGIC.to_bytes(4, "little") + _to_bitmap64(positions)
    else:
        if len(positions) and int(positions.max()) > POSITION_32_MAX:
            raise ValueError(f"position {int(positions.max())} of a deletion vector of 32 bits")
        body = _INT.pack(DELETION_VECTOR_32_MAGIC) + _roaring(positions)
    return _INT.pack(len(body)) + body + zlib.crc32(body).to_bytes(4, "big")


def metadata_length(size_bytes: int, *, bitmap64: bool) -> int:
    """Return the length in the index manifest of a vector of this size."""
    return size_bytes if bitmap64 else size_bytes - _PREFIX_BYTES - _CRC_BYTES


def stored_bytes(length: int) -> int:
    """Return the number of bytes to read for a vector of this length in the metadata, whichever form it has."""
    return length + _PREFIX_BYTES + _CRC_BYTES


def size_of_stored(data: bytes) -> int:
    """Return the size of the vector at the beginning, from its own size field; all bytes if that is invalid."""
    size = _INT.unpack_from(data)[0] if len(data) >= _PREFIX_BYTES else -1
    return size + _PREFIX_BYTES + _CRC_BYTES if size >= 0 else len(data)


def vector_from_bytes(data: bytes, length: int, path: str, offset: int) -> NDArray[np.int64]:
    """Return the positions (n,), ascending.

    data: from the size field on, at least the whole vector.
    length: from the metadata.
    path: the file of the vector, for messages.
    offset: where the vector is in the file, for messages.

    Raises CorruptFile. The CRC is checked, which Java doesn't do.
    """
    if len(data) < 2 * _PREFIX_BYTES:
        raise CorruptFile(path, "a deletion vector", f"{len(data)} bytes", offset)
    size = _INT.unpack_from(data)[0]
    is_32 = _INT.unpack_from(data, _PREFIX_BYTES)[0] == DELETION_VECTOR_32_MAGIC
    if not is_32 and int.from_bytes(data[4:8], "little") != DELETION_VECTOR_64_MAGIC:
        raise CorruptFile(path, "the magic of a deletion vector", data[4:8].hex(), offset + _PREFIX_BYTES)
    expected = length if is_32 else length - _PREFIX_BYTES - _CRC_BYTES
    body = data[_PREFIX_BYTES : _PREFIX_BYTES + size]
    if size != expected or len(body) != size:
        raise CorruptFile(path, f"a deletion vector of {expected} bytes", f"one of {size} in {len(data)}", offset)
    crc = data[_PREFIX_BYTES + size : _PREFIX_BYTES + size + _CRC_BYTES]
    if crc != zlib.crc32(body).to_bytes(4, "big"):
        raise CorruptFile(path, "a deletion vector with its CRC-32", f"CRC {crc.hex()}", offset)
    try:
        return _from_roaring(body[4:]) if is_32 else _from_bitmap64(body[4:])
    except (ValueError, struct.error) as error:
        raise CorruptFile(path, "a Roaring bitmap", str(error), offset) from error


def _roaring(values: NDArray[np.int64]) -> bytes:
    return serialize(BitMap(values.astype(np.uint32)))


def _from_roaring(data: bytes) -> NDArray[np.int64]:
    return np.array(BitMap.deserialize(data).to_array(), np.uint32).astype(np.int64)


def _to_bitmap64(positions: NDArray[np.int64]) -> bytes:
    highs = positions >> 32
    count = int(highs.max()) + 1 if len(positions) else 0
    parts = [struct.pack("<q", count)]
    for key in range(count):
        parts += [struct.pack("<i", key), _roaring(positions[highs == key] & 0xFFFFFFFF)]
    return b"".join(parts)


def _from_bitmap64(data: bytes) -> NDArray[np.int64]:
    (count,) = struct.unpack_from("<q", data)
    at, parts = 8, [np.zeros(0, np.int64)]
    for _ in range(count):
        (key,) = struct.unpack_from("<I", data, at)
        bitmap = BitMap.deserialize(data[at + 4 :])
        parts.append((key << 32) + np.array(bitmap.to_array(), np.uint32).astype(np.int64))
        at += 4 + serialized_bytes(data, at + 4)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after {count} bitmaps")
    return np.concatenate(parts)
