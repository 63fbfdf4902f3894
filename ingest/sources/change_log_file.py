"""The lines of one change-log file, plain or compressed, as far as they are complete."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard

from storage.errors import BadInput, CorruptFile

# Lines at a time. Each batch has its price: with 4 MiB a pipeline takes half as much CPU time again as with 24. But
# several blocks, and what they became, are on their way at once: with 32 MiB they take 25 MiB more memory, for nothing.
BLOCK_BYTES: Final = 24 << 20
_READ_BYTES: Final = 1 << 20
_COMPRESSED_READ_BYTES: Final = 64 << 10  # change logs shrink twentyfold and more
_LINE_BYTES_MAX: Final = 256 << 20  # Kafka's default is 1 MiB; a file without line ends must not fill the memory


class _Decompressor(Protocol):
    """What `zlib` and `zstandard` have in common. One for each member or frame of a file."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


_DECOMPRESSORS: Final[dict[str, Callable[[], _Decompressor]]] = {
    ".jsonl.gz": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    ".jsonl.zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


class _Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class _Chunks:
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


SUFFIXES: Final = (".jsonl", *_DECOMPRESSORS)


class ChangeLogFile:
    """Reads a file from front to back, in as many passes as it takes to grow.

    Plain files may be appended to; compressed ones too (by whole members or frames, or while the first is being
    written). Lines end with `\\n` only: U+2028 and its like are text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail = b""  # what follows the last line end, after a pass
        self.is_cut = False  # the compressed data ended before its end, after a pass
        self._consumed_bytes = 0  # uncompressed, all in complete lines
        self._seen_bytes = -1  # size of the file when it was last read to its end

    def has_news(self, size_bytes: int) -> bool:
        """Whether a pass may find more than the last one did. Raises BadInput for a file that got smaller."""
        if size_bytes < self._seen_bytes:
            raise BadInput(
                f"{self.path} shrank from {self._seen_bytes} to {size_bytes} bytes: change logs are only appended to. "
                "Write anew under a new name"
            )
        return size_bytes != self._seen_bytes

    def blocks(self) -> Iterator[memoryview]:
        """One pass: the lines since the last one, whole, in blocks of about BLOCK_BYTES.

        A block is gone when the next one is asked for: they share a buffer, as fresh memory for each costs more than
        filling it. After the last one `tail` holds what has no line end yet (see `take_tail`).
        Raises CorruptFile for broken compression.
        """
        self.tail, self.is_cut = b"", False
        buffer, held = bytearray(_READ_BYTES), 0
        with self._opened(self._consumed_bytes) as (file, data):
            while read := _read_behind(data, buffer, held):
                held += read
                if held >= BLOCK_BYTES:
                    held = yield from self._taken(buffer, held)
                    if held > _LINE_BYTES_MAX:
                        raise BadInput(f"{self.path}:{self.line_of(0)}: a line of over {_LINE_BYTES_MAX >> 20} MiB")
                if held == len(buffer):
                    buffer += bytes(min(held, BLOCK_BYTES - held) if held < BLOCK_BYTES else held)
            self._seen_bytes = file.tell()
        held = yield from self._taken(buffer, held)
        self.tail = bytes(memoryview(buffer)[:held])

    def _taken(self, buffer: bytearray, held: int) -> Generator[memoryview, None, int]:
        """Hand out the whole lines among the first `held` bytes, if there are any. Returns how many are left, moved to
        the front.
        """
        end = buffer.rfind(b"\n", 0, held) + 1
        if end:
            block = memoryview(buffer)[:end]
            yield block
            block.release()
            buffer[: held - end] = buffer[end:held]
            self._consumed_bytes += end
        return held - end

    def take_tail(self) -> None:
        """The tail was a complete record without a line end: go on after it."""
        self._consumed_bytes += len(self.tail)
        self.tail = b""

    def line_of(self, block_offset: int) -> int:
        """The number, from 1, of the line at this byte of the block that was yielded last. Reads the file again."""
        left = self._consumed_bytes + block_offset
        lines = 1
        buffer = bytearray(_READ_BYTES)
        with self._opened(0) as (_, data):
            while left > 0 and (read := _read_behind(data, buffer, 0)):
                lines += buffer.count(b"\n", 0, min(read, left))
                left -= read
        return lines

    @contextmanager
    def _opened(self, skip_bytes: int) -> Iterator[tuple[BinaryIO, _Readable]]:
        """The file, and its data from this byte of it on, as far as they go."""
        suffix = next(s for s in reversed(SUFFIXES) if self.path.name.endswith(s))
        with self.path.open("rb", buffering=0) as file:
            if suffix in _DECOMPRESSORS:
                yield file, _Chunks(_without(skip_bytes, self._members(file, _DECOMPRESSORS[suffix])))
            else:
                file.seek(skip_bytes)
                yield file, file

    def _members(self, file: BinaryIO, new: Callable[[], _Decompressor]) -> Iterator[bytes]:
        decompressor: _Decompressor | None = None
        try:
            while data := file.read(_COMPRESSED_READ_BYTES):
                while data:
                    decompressor = decompressor or new()
                    yield decompressor.decompress(data)
                    data = decompressor.unused_data
                    if decompressor.eof:
                        decompressor = None
        except (zlib.error, zstandard.ZstdError) as error:
            raise CorruptFile(str(self.path), "compressed lines", str(error), file.tell()) from error
        self.is_cut = decompressor is not None


def _without(skip_bytes: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if skip_bytes < len(chunk):
            yield chunk[skip_bytes:] if skip_bytes else chunk
        skip_bytes = max(0, skip_bytes - len(chunk))


def _read_behind(data: _Readable, buffer: bytearray, held: int) -> int:
    """Read behind the first `held` bytes of the buffer. Returns how many bytes; 0 at the end."""
    with memoryview(buffer) as view, view[held:] as rest:
        return data.readinto(rest) or 0
