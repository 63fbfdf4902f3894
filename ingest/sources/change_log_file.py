"""Reads the complete lines of one change-log file, plain or compressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.fileio.access import Access, access

# Size of a block of lines. Each batch has a fixed cost: with 4 MiB a pipeline takes 50 % more CPU time than with 24.
# Several blocks and their decoded batches are in memory at once: 32 MiB take 25 MiB more memory, and are not faster.
BLOCK_BYTES: Final = 24 << 20
MAX_RECORD_BYTES: Final = 64 << 20  # Kafka's default is 1 MiB; a file without line ends must not fill the memory
READ_BYTES: Final = 1 << 20
COMPRESSED_READ_BYTES: Final = 64 << 10  # change logs are compressed by a factor of 20 and more


class _Decompressor(Protocol):
    """The common interface of `zlib` and `zstandard`. Each member or frame of a file has its own decompressor."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Codec:
    """A compression codec.

    new: creates the decompressor of one member or frame.
    slice_bytes: number of compressed bytes that are decompressed at once. The whole output of a slice is in memory, so
        this bounds memory. From one byte, deflate makes up to 1,032 bytes, zstd 32 KiB (a block of 128 KiB in 4 bytes).
    """

    new: Callable[[], _Decompressor]
    slice_bytes: int


_CODECS: Final[dict[str, _Codec]] = {
    ".jsonl.gz": _Codec(lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), 16 << 10),
    ".jsonl.zst": _Codec(lambda: zstandard.ZstdDecompressor().decompressobj(), 1 << 10),
}


class _Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class _ChunkReader:
    """Reads from an iterator of byte chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


SUFFIXES: Final = (".jsonl", *_CODECS)


class ChangeLogFile:
    """Reads a file from beginning to end, in several passes while it grows.

    Plain files may be appended to. So may compressed ones: by whole members or frames, or while the first one is
    written. Only `\\n` ends a line: U+2028 and similar characters are text.

    max_record_bytes: maximum length of a line, uncompressed. It bounds memory for every file.
    """

    def __init__(self, path: Path, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.path = path
        self._max_record_bytes = max_record_bytes
        self.tail = b""  # the data after the last line end, after a pass
        self.is_cut = False  # the compressed data ended before its end, after a pass
        self._consumed_bytes = 0  # uncompressed bytes, all in complete lines
        self._seen_bytes = -1  # size of the file when it was last read to its end

    def has_new_data(self, size_bytes: int) -> bool:
        """Return whether a pass may find new data. Raises BadInput for a file that got smaller."""
        if size_bytes < self._seen_bytes:
            raise BadInput(
                f"{self.path} shrank from {self._seen_bytes} to {size_bytes} bytes: a change log must only grow. "
                "Write it again under a new name"
            )
        return size_bytes != self._seen_bytes

    def blocks(self) -> Iterator[memoryview]:
        """Do one pass: yield the complete lines since the last pass, in blocks of about BLOCK_BYTES.

        A block is valid until the next one is requested. Blocks share a buffer, because new memory for each costs more
        than filling it. After the last block, `tail` has the data without a line end (see `consume_tail`).

        Raises CorruptFile for broken compression, BadInput for a line that is too long.
        """
        self.tail, self.is_cut = b"", False
        buffer, held, wanted = bytearray(READ_BYTES), 0, BLOCK_BYTES
        with self._opened(self._consumed_bytes) as (file, data):
            while read := _read_after(data, buffer, held):
                held += read
                if held >= wanted:
                    held = yield from self._yield_complete_lines(buffer, held)
                    # The size doubles while a line has no end, so that the line is not searched again for each chunk.
                    wanted = max(BLOCK_BYTES, min(2 * held, self._max_record_bytes + 1))
                if held == len(buffer):
                    buffer += bytes(min(held, wanted - held))
            self._seen_bytes = file.tell()
        held = yield from self._yield_complete_lines(buffer, held)
        self.tail = bytes(memoryview(buffer)[:held])

    def _yield_complete_lines(self, buffer: bytearray, held: int) -> Generator[memoryview, None, int]:
        """Yield the complete lines in the first `held` bytes, if any. Moves the remaining bytes to the front, and
        returns their number.
        """
        end = buffer.rfind(b"\n", 0, held) + 1
        if (start := _long_line(buffer, held, self._max_record_bytes)) is not None:
            line = f"{self.path}:{self.line_of(start)}"
            raise BadInput(
                f"{line}: a record has more than {self._max_record_bytes} bytes, uncompressed, the limit of "
                "`source.max_record_bytes`. Raise the limit if the record is correct"
            )
        if end:
            block = memoryview(buffer)[:end]
            yield block
            block.release()
            buffer[: held - end] = buffer[end:held]
            self._consumed_bytes += end
        return held - end

    def consume_tail(self) -> None:
        """Continue after the tail, which was a complete record without a line end."""
        self._consumed_bytes += len(self.tail)
        self.tail = b""

    def line_of(self, block_offset: int) -> int:
        """Return the number, from 1, of the line at this byte of the last block. Reads the file again."""
        left = self._consumed_bytes + block_offset
        lines = 1
        buffer = bytearray(READ_BYTES)
        with self._opened(0) as (_, data):
            while left > 0 and (read := _read_after(data, buffer, 0)):
                lines += buffer.count(b"\n", 0, min(read, left))
                left -= read
        return lines

    @contextmanager
    def _opened(self, skip_bytes: int) -> Iterator[tuple[BinaryIO, _Readable]]:
        """Open the file. Yields it, and a reader of its uncompressed data from this byte on."""
        suffix = next(s for s in reversed(SUFFIXES) if self.path.name.endswith(s))
        with access(Access.READ, str(self.path)):
            opened = self.path.open("rb", buffering=0)
        with opened as file:
            if suffix in _CODECS:
                yield file, _ChunkReader(_skip(skip_bytes, self._decompressed(file, _CODECS[suffix])))
            else:
                file.seek(skip_bytes)
                yield file, file

    def _decompressed(self, file: BinaryIO, codec: _Codec) -> Iterator[bytes]:
        decompressor: _Decompressor | None = None
        try:
            for data in _slices(file, codec.slice_bytes):
                left = data
                while left:
                    decompressor = decompressor or codec.new()
                    yield decompressor.decompress(left)
                    left = decompressor.unused_data
                    if decompressor.eof:
                        decompressor = None
        except (zlib.error, zstandard.ZstdError) as error:
            raise CorruptFile(str(self.path), "compressed lines", str(error), file.tell()) from error
        self.is_cut = decompressor is not None


def _slices(file: BinaryIO, size: int) -> Iterator[bytes]:
    while data := file.read(COMPRESSED_READ_BYTES):
        for start in range(0, len(data), size):
            yield data[start : start + size]


def _long_line(buffer: bytearray, held: int, limit: int) -> int | None:
    """Return the start of the first line of more than `limit` bytes in the first `held` bytes; None if no such line
    exists.

    The search jumps to the last line end within the limit each time, so it doesn't visit every line.
    """
    start = 0
    while held - start > limit:
        end = buffer.rfind(b"\n", start, start + limit + 1)
        if end < 0:
            return start
        start = end + 1
    return None


def _skip(skip_bytes: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if skip_bytes < len(chunk):
            yield chunk[skip_bytes:] if skip_bytes else chunk
        skip_bytes = max(0, skip_bytes - len(chunk))


def _read_after(data: _Readable, buffer: bytearray, held: int) -> int:
    """Read into the buffer after its first `held` bytes. Returns the number of bytes; 0 at the end."""
    with memoryview(buffer) as view, view[held:] as rest:
        return data.readinto(rest) or 0
