"""The lines of one change-log file, plain or compressed, as far as they are complete."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard

from storage.errors import BadInput, CorruptFile
from storage.fileio.access import Access, access

# Lines at a time. Each batch has its price: with 4 MiB a pipeline takes half as much CPU time again as with 24. But
# several blocks, and what they became, are on their way at once: with 32 MiB they take 25 MiB more memory, for nothing.
BLOCK_BYTES: Final = 24 << 20
MAX_RECORD_BYTES: Final = 64 << 20  # Kafka's default is 1 MiB; a file without line ends must not fill the memory
READ_BYTES: Final = 1 << 20
COMPRESSED_READ_BYTES: Final = 64 << 10  # change logs shrink twentyfold and more


class _Decompressor(Protocol):
    """What `zlib` and `zstandard` have in common. One for each member or frame of a file."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Codec:
    """new: what reads one member or frame. slice_bytes: how much it is given at once. What comes out of a slice is held
    whole, so this bounds memory: deflate makes up to 1,032 bytes of one, zstd 32 KiB (a block of 128 KiB in 4 bytes).
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
    """Bytes that come in pieces, to be read."""

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
    """Reads a file from front to back, in as many passes as it takes to grow.

    Plain files may be appended to; compressed ones too (by whole members or frames, or while the first is being
    written). Lines end with `\\n` only: U+2028 and its like are text.

    max_record_bytes: how long a line may be, uncompressed. Memory is bounded by it, whatever a file was made to hold.
    """

    def __init__(self, path: Path, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.path = path
        self._max_record_bytes = max_record_bytes
        self.tail = b""  # what follows the last line end, after a pass
        self.is_cut = False  # the compressed data ended before its end, after a pass
        self._consumed_bytes = 0  # uncompressed, all in complete lines
        self._seen_bytes = -1  # size of the file when it was last read to its end

    def has_grown(self, size_bytes: int) -> bool:
        """Whether a pass may find more than the last one did. Raises BadInput for a file that got smaller."""
        if size_bytes < self._seen_bytes:
            raise BadInput(
                f"{self.path} shrank from {self._seen_bytes} to {size_bytes} bytes: change logs are only appended to. "
                "Write it again under a new name"
            )
        return size_bytes != self._seen_bytes

    def blocks(self) -> Iterator[memoryview]:
        """One pass: the lines since the last one, whole, in blocks of about BLOCK_BYTES.

        A block is gone when the next one is asked for: they share a buffer, as fresh memory for each costs more than
        filling it. After the last one `tail` holds what has no line end yet (see `consume_tail`).
        Raises CorruptFile for broken compression, BadInput for a line that is too long.
        """
        self.tail, self.is_cut = b"", False
        buffer, held, wanted = bytearray(READ_BYTES), 0, BLOCK_BYTES
        with self._opened(self._consumed_bytes) as (file, data):
            while read := _read_after(data, buffer, held):
                held += read
                if held >= wanted:
                    held = yield from self._yield_whole_lines(buffer, held)
                    # twice as much of a line that is still without end: it is not searched for each piece of it
                    wanted = max(BLOCK_BYTES, min(2 * held, self._max_record_bytes + 1))
                if held == len(buffer):
                    buffer += bytes(min(held, wanted - held))
            self._seen_bytes = file.tell()
        held = yield from self._yield_whole_lines(buffer, held)
        self.tail = bytes(memoryview(buffer)[:held])

    def _yield_whole_lines(self, buffer: bytearray, held: int) -> Generator[memoryview, None, int]:
        """Hand out the whole lines among the first `held` bytes, if there are any. Returns how many are left, moved to
        the front.
        """
        end = buffer.rfind(b"\n", 0, held) + 1
        if (start := _long_line(buffer, held, self._max_record_bytes)) is not None:
            line = f"{self.path}:{self.line_of(start)}"
            raise BadInput(
                f"{line}: a record of more than {self._max_record_bytes} bytes, uncompressed, "
                "and `source.max_record_bytes` allows no more. Raise it if the record is as it should be"
            )
        if end:
            block = memoryview(buffer)[:end]
            yield block
            block.release()
            buffer[: held - end] = buffer[end:held]
            self._consumed_bytes += end
        return held - end

    def consume_tail(self) -> None:
        """The tail was a complete record without a line end: go on after it."""
        self._consumed_bytes += len(self.tail)
        self.tail = b""

    def line_of(self, block_offset: int) -> int:
        """The number, from 1, of the line at this byte of the block that was yielded last. Reads the file again."""
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
        """The file, and its data from this byte of it on, as far as they go."""
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
    """Where the first line of more than `limit` bytes begins among the first `held`; None if there is none.

    Leaps from line end to line end, each as far as the limit reaches: lines are not counted.
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
    """Read behind the first `held` bytes of the buffer. Returns how many bytes; 0 at the end."""
    with memoryview(buffer) as view, view[held:] as rest:
        return data.readinto(rest) or 0
