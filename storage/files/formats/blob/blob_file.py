"""Reads and writes a blob file: records, then their lengths, then the size of the lengths.

    record      int32 magic │ the value │ int64 length of the record │ int32 CRC-32 of magic, value and length
    file        records │ their lengths │ int32 bytes of the lengths │ int8 version

Numbers are little-endian. Lengths are stored as differences of neighbours, in variable length.

A null has no record, and length -1. A placeholder has no record either, and length -2: the value of that row is in an
older file.

pypaimon's main branch (since July 2026) leaves the length out of the CRC. Java checks none; both are read here.

Source: Java `format/blob/BlobFormatWriter.java`, `BlobFileMeta.java`, `AbstractBlobElementWriter.java`,
`utils/DeltaVarintCompressor.java`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.model.format import BLOB_MAGIC, BLOB_NULL_LENGTH, BLOB_PLACEHOLDER_LENGTH, BLOB_VERSION

_BITS: Final = 7  # bits of a number in each byte; the eighth bit means that more bytes follow
_BYTES_MAX: Final = 10  # bytes of a 64-bit number


def encode_lengths(lengths: NDArray[np.int64]) -> bytes:
    """Encode numbers.

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
    """Decode the result of `encode_lengths`. Raises ValueError for other bytes."""
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


_MAGIC: Final = struct.pack("<i", BLOB_MAGIC)
_LENGTH: Final = struct.Struct("<q")
_RECORD_END: Final = struct.Struct("<qI")
_CRC_BYTES: Final = 4
_FOOTER: Final = struct.Struct("<ib")
RECORD_OVERHEAD: Final = len(_MAGIC) + _RECORD_END.size
_VALUE_BYTES_MAX: Final = 2**31 - 1 - 2**20  # the limit of a bytes column in memory


class BlobFile:
    """An open blob file. Raises CorruptFile, with `path`, if it is not a blob file.

    lengths (n,): the length of each row's record, or BLOB_NULL_LENGTH or BLOB_PLACEHOLDER_LENGTH.
    """

    def __init__(self, source: pa.NativeFile, path: str) -> None:
        self._source = source
        self._path = path
        size = source.size()
        if size < _FOOTER.size:
            raise CorruptFile(path, "a blob file", f"{size} bytes", 0)
        index_bytes, version = _FOOTER.unpack(source.read_at(_FOOTER.size, size - _FOOTER.size))
        if version != BLOB_VERSION:
            raise CorruptFile(path, f"a blob file of version {BLOB_VERSION}", f"version {version}", size - 1)
        index_start = size - _FOOTER.size - index_bytes
        if index_bytes < 0 or index_start < 0:
            raise CorruptFile(path, "the lengths of its records", f"{index_bytes} bytes of them in {size}", size - 5)
        try:
            self.lengths = decode_lengths(source.read_at(index_bytes, index_start))
        except ValueError as e:
            raise CorruptFile(path, "the lengths of its records", str(e), index_start) from None
        stored = np.maximum(self.lengths, 0)
        is_record = self.lengths >= 0
        if (self.lengths[is_record] < RECORD_OVERHEAD).any() or self.lengths.min(initial=0) < BLOB_PLACEHOLDER_LENGTH:
            raise CorruptFile(path, "the lengths of its records", "one that no record has", index_start)
        if int(stored.sum()) != index_start:
            raise CorruptFile(path, f"records of {index_start} bytes", f"lengths of {int(stored.sum())}", index_start)
        self._offsets = np.cumsum(stored) - stored

    @property
    def is_placeholder(self) -> NDArray[np.bool_]:
        """(n,): which rows have their values in an older file."""
        found: NDArray[np.bool_] = self.lengths == BLOB_PLACEHOLDER_LENGTH
        return found

    def value(self, row: int) -> memoryview | None:
        """Return the value of a row; None for a null or a placeholder. Raises CorruptFile.

        Raises UnsupportedFeature for a value that is too large for memory.
        """
        length, offset = int(self.lengths[row]), int(self._offsets[row])
        if length < 0:
            return None
        if length - RECORD_OVERHEAD > _VALUE_BYTES_MAX:
            raise UnsupportedFeature(
                f"a value of {length - RECORD_OVERHEAD} bytes in {self._path}",
                "a value in memory has at most 2 GiB",
                "Read the file itself, or the column as descriptors: set blob-as-descriptor = true",
            )
        record = memoryview(self._source.read_at(length, offset))
        stored_length, crc = _RECORD_END.unpack_from(record, length - _RECORD_END.size)
        of_value = zlib.crc32(record[: length - _RECORD_END.size])
        of_all = zlib.crc32(record[length - _RECORD_END.size : length - _CRC_BYTES], of_value)
        is_whole = crc in (of_all, of_value)
        if record[: len(_MAGIC)] != _MAGIC or stored_length != length or not is_whole:
            raise CorruptFile(self._path, "a record with its magic, length and CRC-32", f"{length} other bytes", offset)
        return record[len(_MAGIC) : length - _RECORD_END.size]

    def place(self, row: int) -> tuple[int, int]:
        """Return offset and length of a row's value. The row must have a value."""
        return int(self._offsets[row]) + len(_MAGIC), int(self.lengths[row]) - RECORD_OVERHEAD

    def close(self) -> None:
        self._source.close()


class BlobFileWriter:
    """A writer of a blob file. It appends records, and `close` writes their lengths. The stream stays open."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._lengths: list[int] = []
        self.written_bytes = 0

    def add(self, value: memoryview | bytes | None) -> None:
        if value is None:
            self._lengths.append(BLOB_NULL_LENGTH)
            return
        length = len(value) + RECORD_OVERHEAD
        self._stream.write(_MAGIC)
        self._stream.write(value)
        size = _LENGTH.pack(length)
        self._stream.write(_RECORD_END.pack(length, zlib.crc32(size, zlib.crc32(value, zlib.crc32(_MAGIC)))))
        self._lengths.append(length)
        self.written_bytes += length

    def add_placeholder(self) -> None:
        self._lengths.append(BLOB_PLACEHOLDER_LENGTH)

    def close(self) -> None:
        index = encode_lengths(np.array(self._lengths, np.int64))
        self._stream.write(index)
        self._stream.write(_FOOTER.pack(len(index), BLOB_VERSION))
        self.written_bytes += len(index) + _FOOTER.size


def pieces(sizes: NDArray[np.int64], rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most rows_max rows and bytes_max bytes, or of one row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + bytes_max, side="right"))
        stop = min(max(stop, start + 1), start + rows_max, len(sizes))
        yield start, stop
        start = stop
