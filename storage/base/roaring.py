"""Roaring bitmaps of 32 bits in the portable format, with optimised runs as Java's `RoaringBitmap` writes them.

Source: Java `utils/RoaringBitmap32.java`; https://github.com/RoaringBitmap/RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from pyroaring import BitMap


def serialize(bitmap: BitMap) -> bytes:
    """Return the bytes. It may change the internal form of the bitmap, but not its values."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


_NO_RUNS: Final = 12346
_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4  # number of containers; with runs, a bitmap with fewer has no offsets
_BITSET_FROM: Final = 4_096  # number of values; a container with more is a bitset of 8 KiB


def serialized_bytes(data: bytes, start: int) -> int:
    """Return the length of the Roaring bitmap at `start`, from its header: CRoaring does not report it."""
    (cookie,) = struct.unpack_from("<I", data, start)
    at: int = start + 4
    if cookie & 0xFFFF == _WITH_RUNS:
        containers = (cookie >> 16) + 1
        flags = np.unpackbits(np.frombuffer(data, np.uint8, (containers + 7) // 8, at), bitorder="little")
        is_run = flags[:containers].astype(bool)
        at += (containers + 7) // 8
    elif cookie == _NO_RUNS:
        (containers,) = struct.unpack_from("<I", data, at)
        is_run = np.zeros(containers, bool)
        at += 4
    else:
        raise ValueError(f"cookie {cookie} of a Roaring bitmap")
    cardinalities = np.frombuffer(data, "<u2", 2 * containers, at)[1::2].astype(np.int64) + 1
    at += 4 * containers
    if cookie == _NO_RUNS or containers >= _OFFSETS_FROM:
        at += 4 * containers
    for runs, cardinality in zip(is_run.tolist(), cardinalities.tolist(), strict=True):
        if runs:
            at += 2 + 4 * int.from_bytes(data[at : at + 2], "little")
        else:
            at += 2 * cardinality if cardinality <= _BITSET_FROM else 8_192
    return at - start
