"""Decodes ORC's run-length encodings of integers (version 2) and of bits.

Source: ORC specification v1, "Run Length Encoding".
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.files.formats.orc.protobuf import varint, zigzag

Integers: TypeAlias = NDArray[np.int64]

_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # bits, by five-bit code
_SHORT_REPEAT, _DIRECT, _PATCHED_BASE, _DELTA = range(4)


def decode_integers(data: bytes, count: int, *, signed: bool) -> Integers:
    """Decode `count` integers in run-length encoding version 2. Raises pa.ArrowInvalid if `data` ends early."""
    out = np.empty(count, np.int64)
    runs = _Runs(data, signed)
    filled = 0
    try:
        while filled < count:
            run = runs.next()[: count - filled]
            out[filled : filled + len(run)] = run
            filled += len(run)
    except (IndexError, ValueError):
        raise pa.ArrowInvalid(f"a stream ends after {filled} of {count} integers") from None
    return out


class _Runs:
    """Decodes one run after the other. A run has at most 512 integers."""

    def __init__(self, data: bytes, signed: bool) -> None:
        self._data = data
        self._signed = signed
        self._at = 0

    def next(self) -> Integers:
        header = self._data[self._at]
        kind = header >> 6
        if kind == _SHORT_REPEAT:
            return self._short_repeat(header)
        code = header >> 1 & 0x1F
        length = ((header & 1) << 8 | self._data[self._at + 1]) + 1
        self._at += 2
        if kind == _DIRECT:
            return self._unzigzag(self._packed(length, _WIDTHS[code]))
        if kind == _DELTA:
            return self._delta(length, _WIDTHS[code] if code else 0)
        return self._patched_base(length, _WIDTHS[code])

    def _short_repeat(self, header: int) -> Integers:
        width = (header >> 3 & 7) + 1
        value = self._big_endian(1, width)
        repeated = np.full((header & 7) + 3, value, np.uint64)
        return self._unzigzag(repeated)

    def _delta(self, length: int, width: int) -> Integers:
        base, self._at = varint(self._data, self._at)
        step, self._at = varint(self._data, self._at)
        first, second = _as_int64(zigzag(base) if self._signed else base), _as_int64(zigzag(step))
        deltas = np.full(length - 1, second, np.int64)
        if width and length > 2:
            magnitudes = self._packed(length - 2, width).view(np.int64)
            deltas[1:] = magnitudes if second >= 0 else -magnitudes
        return np.cumsum(np.concatenate([[first], deltas]), dtype=np.int64)

    def _patched_base(self, length: int, width: int) -> Integers:
        third, fourth = self._data[self._at], self._data[self._at + 1]
        self._at += 2
        base_bytes, patch_width = (third >> 5) + 1, _WIDTHS[third & 0x1F]
        gap_width, patches = (fourth >> 5) + 1, fourth & 0x1F
        raw = self._big_endian(0, base_bytes)
        sign = 1 << (8 * base_bytes - 1)
        base = -(raw & ~sign) if raw & sign else raw
        values = self._packed(length, width)
        entry_width = next(w for w in _WIDTHS if w >= gap_width + patch_width)
        position = 0
        for entry in self._packed(patches, entry_width).tolist():
            position += entry >> patch_width
            values[position] |= np.uint64((entry & ((1 << patch_width) - 1)) << width)
        return values.view(np.int64) + base

    def _big_endian(self, skip: int, size: int) -> int:
        start = self._at + skip
        if start + size > len(self._data):
            raise IndexError
        self._at = start + size
        return int.from_bytes(self._data[start : self._at], "big")

    def _packed(self, count: int, width: int) -> NDArray[np.uint64]:
        """Decode `count` big-endian numbers of `width` bits each."""
        size = -(-count * width // 8)
        bits = np.unpackbits(np.frombuffer(self._data[self._at : self._at + size], np.uint8), count=count * width)
        self._at += size
        words = np.zeros((count, 64), np.uint8)
        words[:, 64 - width :] = bits.reshape(count, width)
        return np.packbits(words, axis=1).view(">u8")[:, 0].astype(np.uint64)

    def _unzigzag(self, values: NDArray[np.uint64]) -> Integers:
        if not self._signed:
            return values.view(np.int64)
        return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)


def _as_int64(number: int) -> int:
    """Convert to a signed number: the C++ library writes negative nanoseconds as unsigned numbers."""
    return (number + 2**63) % 2**64 - 2**63


def decode_bits(data: bytes, count: int) -> NDArray[np.bool_]:
    """Decode bits in byte run-length encoding. The highest bit of a byte comes first."""
    out = bytearray()
    at = 0
    while len(out) * 8 < count:
        if at >= len(data):
            raise pa.ArrowInvalid(f"a stream ends after {len(out) * 8} of {count} bits")
        control = data[at]
        if control < 0x80:
            out += data[at + 1 : at + 2] * (control + 3)
            at += 2
        else:
            out += data[at + 1 : at + 1 + 256 - control]
            at += 1 + 256 - control
    return np.unpackbits(np.frombuffer(out, np.uint8), count=count).astype(np.bool_)
