"""Puffin files with the deletion vectors of data files: Iceberg's form of an index file.

    magic "PFA1" · the vectors one after another · magic · footer (JSON) · size of the footer (4 bytes, little-endian) ·
    flags (4 bytes, 0) · magic

Source: Iceberg's specification of Puffin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from tidelake.errors import CorruptFile

_MAGIC: Final = b"PFA1"
_NO_FLAGS: Final = bytes(4)
_TAIL_BYTES: Final = 12  # size of the footer, flags, magic
_BLOB_TYPE: Final = "deletion-vector-v1"
_POSITION_COLUMN_ID: Final = 2_147_483_645  # Iceberg's `_pos`
_UNKNOWN: Final = -1  # vectors inherit snapshot and sequence number
_DATA_FILE: Final = "referenced-data-file"
_CARDINALITY: Final = "cardinality"


@dataclass(frozen=True, slots=True)
class PuffinVector:
    """The place of a deletion vector in a Puffin file.

    data_file: the path of the file whose rows it deletes.
    """

    data_file: str
    cardinality: int
    offset: int
    length: int


def puffin_file(vectors: Sequence[tuple[str, int, bytes]]) -> tuple[bytes, list[PuffinVector]]:
    """Return a file and the places in it.

    vectors: data file, cardinality, and the bytes of a vector of 64 bits.
    """
    starts = accumulate((len(data) for _, _, data in vectors), initial=len(_MAGIC))
    places = [
        PuffinVector(path, cardinality, start, len(data))
        for (path, cardinality, data), start in zip(vectors, starts, strict=False)
    ]
    footer = json.dumps({"blobs": [_blob(place) for place in places], "properties": {}}).encode()
    size = len(footer).to_bytes(4, "little")
    body = b"".join(data for _, _, data in vectors)
    return b"".join((_MAGIC, body, _MAGIC, footer, size, _NO_FLAGS, _MAGIC)), places


def places_in(data: bytes, path: str) -> list[PuffinVector]:
    """Return the places of the vectors in a file. Raises CorruptFile.

    path: for messages.
    """
    size = int.from_bytes(data[-_TAIL_BYTES:][:4], "little")
    try:
        if data[:4] != _MAGIC or data[-4:] != _MAGIC:
            raise ValueError(f"bytes {data[:4]!r} and {data[-4:]!r} at its ends")
        blobs = json.loads(data[-size - _TAIL_BYTES : -_TAIL_BYTES])["blobs"]
        return [
            PuffinVector(
                blob["properties"][_DATA_FILE], int(blob["properties"][_CARDINALITY]), blob["offset"], blob["length"]
            )
            for blob in blobs
        ]
    except (ValueError, KeyError, TypeError) as e:
        raise CorruptFile(path, "a Puffin file of deletion vectors", str(e)) from None


def _blob(place: PuffinVector) -> dict[str, Any]:
    return {
        "type": _BLOB_TYPE,
        "fields": [_POSITION_COLUMN_ID],
        "snapshot-id": _UNKNOWN,
        "sequence-number": _UNKNOWN,
        "offset": place.offset,
        "length": place.length,
        "properties": {_DATA_FILE: place.data_file, _CARDINALITY: str(place.cardinality)},
    }
