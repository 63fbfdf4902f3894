"""Random access to a remote object, with few and small requests.

Arrow requests exactly what it needs: the end of the file for the footer, then each column chunk in one read (or, with
`pre_buffer`, neighbouring chunks together). These requests are passed on unchanged. Readers of small pieces (Avro, ORC)
get more than they request. The amount grows with the length of the sequential read.

A reader that knows what it will read next says so (`RemoteInput.read_ahead`). Then the requests for these parts go out
side by side, and the next ones while it decodes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from tidelake.storage.base.threads import Begun

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

MIN_REQUEST_BYTES: Final = 64 << 10
MAX_READAHEAD_BYTES: Final = 4 << 20

# Arrow first reads the last 64 KiB of a Parquet file to find its footer. This part is fetched when the file is opened,
# and that request also returns the size. In the time of a request, four times as many bytes make no difference, and
# they are the whole of a small file.
TAIL_BYTES: Final = 256 << 10

_GAP_BYTES: Final = 256 << 10  # between two parts that are fetched by one request
_PIECES_HELD: Final = 3  # one that is being read, one before it for slower columns, and one that is being fetched

Piece: TypeAlias = Sequence[range]
"""Parts of a file that are needed at about the same time."""


def plan_request(position: int, wanted_bytes: int, run_bytes: int, size_bytes: int) -> range:
    """Return the bytes to fetch for `wanted_bytes` at `position`, never past the end of the file.

    run_bytes: how much was read sequentially up to `position`, 0 after a jump. At least this much is fetched, but not
        less than MIN_REQUEST_BYTES and, unless more is wanted, not more than MAX_READAHEAD_BYTES.
    """
    at_least = min(max(run_bytes, MIN_REQUEST_BYTES), MAX_READAHEAD_BYTES)
    return range(position, min(position + max(wanted_bytes, at_least), size_bytes))


def pieces_of(row_groups: Sequence[Sequence[range]], bytes_max: int) -> Iterator[Piece]:
    """Divide the column chunks of row groups into pieces, in the order in which a reader of rows needs them.

    What fits the memory as a whole is one piece, because large requests cost least. Otherwise a piece has the same
    share of each column of a row group, so that it holds about the same rows.

    row_groups: the places of the chunks that are read.
    bytes_max: for all pieces that are in memory at the same time.
    """
    if sum(len(chunk) for chunks in row_groups for chunk in chunks) <= bytes_max:
        row_groups = [[chunk for chunks in row_groups for chunk in chunks]]
        bytes_max *= _PIECES_HELD
    for chunks in row_groups:
        total = sum(len(chunk) for chunk in chunks)
        count = max(1, -(-total * _PIECES_HELD // bytes_max))
        for number in range(count):
            parts = (chunk[len(chunk) * number // count : len(chunk) * (number + 1) // count] for chunk in chunks)
            yield [part for part in parts if part]


def joined(parts: Iterable[range], gap_bytes: int = _GAP_BYTES) -> list[range]:
    """Return the requests for these parts, ascending: parts with a small gap between them are one request."""
    requests: list[range] = []
    for part in sorted(parts, key=lambda part: part.start):
        if requests and part.start <= requests[-1].stop + gap_bytes:
            requests[-1] = range(requests[-1].start, max(requests[-1].stop, part.stop))
        else:
            requests.append(part)
    return requests


class RangedFile:
    """A binary file for `pyarrow.PythonFile`, which locks it: one thread at a time.

    fetch: fetch(start, end) returns the bytes [start, end) of the object.
    known: bytes of the object that were fetched already, kept as long as the reader.
    known_start: their place; None: they are the last ones.
    """

    def __init__(
        self, fetch: Callable[[int, int], Buffer], size_bytes: int, known: Buffer, known_start: int | None = None
    ) -> None:
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._known = memoryview(known)
        self._known_start = size_bytes - len(self._known) if known_start is None else known_start
        self._window = memoryview(b"")
        self._window_start = 0
        self._position = 0
        self._run_end = 0  # where the last read ended
        self._run_bytes = 0
        self._ahead: _ReadAhead | None = None
        self.closed = False

    def read(self, size: int = -1) -> memoryview:
        left = max(self._size_bytes - self._position, 0)
        wanted = left if size < 0 else min(size, left)
        if self._position != self._run_end:
            self._run_bytes = 0
        found = self._find(self._position, wanted)
        self._position += wanted
        self._run_end = self._position
        self._run_bytes += wanted
        return found

    def _find(self, start: int, length: int) -> memoryview:
        if not length:
            return memoryview(b"")
        end = start + length
        known_end = self._known_start + len(self._known)
        if self._known_start <= start and end <= known_end:
            return self._known[start - self._known_start :][:length]
        if self._ahead is not None and (found := self._ahead.find(start, end)) is not None:
            return found
        if not self._window_start <= start <= end <= self._window_start + len(self._window):
            if start < self._known_start < end <= known_end:  # only what is missing is asked for
                return _concatenated([self._fetch(start, self._known_start), self._known[: end - self._known_start]])
            request = plan_request(start, length, self._run_bytes, self._size_bytes)
            self._window = memoryview(self._fetch(request.start, request.stop))
            self._window_start = start
        return self._window[start - self._window_start :][:length]

    def read_ahead(self, pieces: Iterator[Piece]) -> None:
        """See `RemoteInput`."""
        known = range(self._known_start, self._known_start + len(self._known))
        missing = ([part for part in piece if not _contains(known, part)] for piece in pieces)
        self._ahead = _ReadAhead(self._fetch, filter(None, missing))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """whence: os.SEEK_SET, os.SEEK_CUR or os.SEEK_END. Reads past the end return nothing. Raises ValueError."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        if origin + offset < 0:
            raise ValueError(f"cannot seek to {origin + offset}, before the beginning")
        self._position = origin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True
        self._window = self._known = memoryview(b"")
        if self._ahead is not None:
            self._ahead.drop()
            self._ahead = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


class RemoteInput(pa.PythonFile):  # type: ignore[misc]  # pyarrow has no types
    """An open remote file, for Arrow."""

    def __init__(self, file: RangedFile, mode: str = "r") -> None:
        self._ranged = file

    def read_ahead(self, pieces: Iterator[Piece]) -> None:
        """Fetch these pieces, one after the other, before they are read. The first one is asked for at once.

        At most three pieces are in memory. Reads of other parts, or in another order, are answered as well.
        """
        self._ranged.read_ahead(pieces)


class _ReadAhead:
    """The pieces that are in memory, or on their way."""

    def __init__(self, fetch: Callable[[int, int], Buffer], pieces: Iterator[Piece]) -> None:
        self._fetch = fetch
        self._coming = pieces
        self._held: deque[list[_Part]] = deque()
        self._begin_next()

    def find(self, start: int, end: int) -> memoryview | None:
        """Return the bytes; None if a part of them is in no piece."""
        found = []
        while start < end:
            part = self._part_at(start)
            if part is None:
                return None
            found.append(part.bytes(start, min(end, part.place.stop)))
            start = min(end, part.place.stop)
        return _concatenated(found)

    def _part_at(self, position: int) -> _Part | None:
        for number, parts in enumerate(self._held):
            for part in parts:
                if position in part.place:
                    if number == len(self._held) - 1:  # the newest piece: fetch the next one while this one is read
                        self._begin_next()
                    return part
        return None

    def _begin_next(self) -> None:
        for piece in islice(self._coming, 1):
            self._held.append([_Part(place, self._fetch) for one in joined(piece) for place in _divided(one)])
            while len(self._held) > _PIECES_HELD:
                self._held.popleft()

    def drop(self) -> None:
        for parts in self._held:
            for part in parts:
                part.drop()


class _Part:
    """Bytes that were asked for."""

    def __init__(self, place: range, fetch: Callable[[int, int], Buffer]) -> None:
        self.place = place
        self._fetched = Begun(partial(fetch, place.start, place.stop))

    def bytes(self, start: int, end: int) -> memoryview:
        return memoryview(self._fetched.result())[start - self.place.start : end - self.place.start]

    def drop(self) -> None:
        self._fetched.drop()


def _divided(request: range) -> Iterator[range]:
    """Divide a large request: a store sends several answers faster than one."""
    return (request[start : start + MAX_READAHEAD_BYTES] for start in range(0, len(request), MAX_READAHEAD_BYTES))


def _contains(outer: range, inner: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _concatenated(parts: Sequence[Buffer]) -> memoryview:
    return memoryview(parts[0]) if len(parts) == 1 else memoryview(b"".join(parts))
