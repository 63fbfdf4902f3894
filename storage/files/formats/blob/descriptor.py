"""Blob descriptors: references to the bytes of a BLOB, stored instead of the bytes.

    int8 version │ int64 magic │ int32 bytes of the URI │ URI │ int64 offset │ int64 length, -1: to the end

Numbers are little-endian.

Source: Java `data/BlobDescriptor.java`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidelake.storage.model.format import BLOB_DESCRIPTOR_MAGIC, BLOB_DESCRIPTOR_VERSION

_HEAD: Final = struct.Struct("<bq")
_SIZE: Final = struct.Struct("<i")
_PLACE: Final = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """A reference to the bytes of a BLOB.

    uri: the file.
    offset: the first byte.
    length: the number of bytes; -1 means up to the end of the file.
    """

    uri: str
    offset: int
    length: int

    def to_bytes(self) -> bytes:
        uri = self.uri.encode()
        head = _HEAD.pack(BLOB_DESCRIPTOR_VERSION, BLOB_DESCRIPTOR_MAGIC) + _SIZE.pack(len(uri))
        return head + uri + _PLACE.pack(self.offset, self.length)

    @classmethod
    def from_bytes(cls, data: bytes) -> BlobDescriptor:
        """Parse a descriptor. Raises ValueError for invalid bytes, and for a later version."""
        try:
            version, at = data[0], 1
            if version > BLOB_DESCRIPTOR_VERSION:
                raise ValueError(f"a descriptor of version {version}")
            if version > 1:  # version 1 has no magic
                if _HEAD.unpack_from(data)[1] != BLOB_DESCRIPTOR_MAGIC:
                    raise ValueError("no magic of a descriptor")
                at = _HEAD.size
            (size,) = _SIZE.unpack_from(data, at)
            at += _SIZE.size
            if not 0 <= size <= len(data) - at:
                raise ValueError(f"a URI of {size} bytes")
            uri = data[at : at + size].decode()
            offset, length = _PLACE.unpack_from(data, at + size)
        except (struct.error, IndexError):
            raise ValueError(f"{len(data)} bytes, too few for a descriptor") from None
        return cls(uri, offset, length)
