"""The lines of one change-log file, plain or compressed, as far as they are complete."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard

from storage.errors import BadInput, CorruptFile

# Lines at a time. Each batch has its price: with 4 MiB a pipeline takes a fifth more time than with 16. But some eight
# blocks, and what they became, are on their way at once: with 16 MiB they take 125 MiB more memory than with 8.
BLOCK_BYTES: Final = 12 << 20
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
        buffer, held = bytearray(), 0
        for chunk in self._decompressed(self._consumed_bytes):
            if held + len(chunk) > len(buffer):
                buffer += bytes(max(held + len(chunk) - len(buffer), min(len(buffer), BLOCK_BYTES)))
            buffer[held : held + len(chunk)] = chunk
            held += len(chunk)
            if held >= BLOCK_BYTES:
                held = yield from self._taken(buffer, held)
                if held > _LINE_BYTES_MAX:
                    raise BadInput(f"{self.path}:{self.line_of(0)}: a line of over {_LINE_BYTES_MAX >> 20} MiB")
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
        for chunk in self._decompressed(0):
            lines += chunk.count(b"\n", 0, left)
            left -= len(chunk)
            if left <= 0:
                break
        return lines

    def _decompressed(self, skip_bytes: int) -> Iterator[bytes]:
        """The file's data, as far as it goes, from this byte of it on."""
        suffix = next(s for s in reversed(SUFFIXES) if self.path.name.endswith(s))
        with self.path.open("rb", buffering=0) as file:
            if suffix not in _DECOMPRESSORS:
                file.seek(skip_bytes)
                yield from iter(lambda: file.read(_READ_BYTES), b"")
                self._seen_bytes = file.tell()
                return
            for chunk in self._members(file, _DECOMPRESSORS[suffix]):
                if skip_bytes < len(chunk):
                    yield chunk[skip_bytes:] if skip_bytes else chunk
                skip_bytes = max(0, skip_bytes - len(chunk))
            self._seen_bytes = file.tell()

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
