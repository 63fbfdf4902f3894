"""Encodes the record lengths of a blob file: as differences of neighbours, in variable length.

Source: Java `utils/DeltaVarintCompressor.java`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_BITS: Final = 7  # bits of a number in each byte; the eighth bit means that more bytes follow
_BYTES_MAX: Final = 10  # bytes of a 64-bit number


def encode_lengths(lengths: NDArray[np.int64]) -> bytes:
    """Encodes numbers.

    lengths (n,): any 64-bit numbers.
    """
    deltas = np.diff(lengths, prepend=np.int64(0))
    zigzag = ((deltas << 1) ^ (deltas >> 63)).view(np.uint64)
    shifts = np.arange(_BYTES_MAX, dtype=np.uint64) * np.uint64(_BITS)
    groups = zigzag[:, None] >> shifts
    is_written = groups != 0
    is_written[:, 0] = True
    has_more = np.zeros_like(is_written)
    has_more[:, :-1] = is_written[:, 1:]
    octets = ((groups & np.uint64(0x7F)) | (has_more.astype(np.uint64) << np.uint64(_BITS))).astype(np.uint8)
    written: NDArray[np.uint8] = octets[is_written]
    return written.tobytes()


def decode_lengths(data: bytes) -> NDArray[np.int64]:
    """Decodes the result of `encode_lengths`. Raises ValueError for other bytes."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets < 1 << _BITS)
    if not len(octets):
        return np.empty(0, np.int64)
    if not len(ends) or ends[-1] != len(octets) - 1:
        raise ValueError("the last number has no end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    if sizes.max() > _BYTES_MAX:
        raise ValueError(f"a number of {sizes.max()} bytes")
    shifts = (np.arange(len(octets)) - np.repeat(starts, sizes)).astype(np.uint64) * np.uint64(_BITS)
    parts = (octets & 0x7F).astype(np.uint64) << shifts
    zigzag = np.add.reduceat(parts, starts)
    deltas = (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64)
    return np.cumsum(deltas)
