"""Random access to a remote object, with few and small requests.

Arrow requests exactly what it needs: the end of the file for the footer, then each column chunk in one read (or, with
`pre_buffer`, neighbouring chunks together). These requests are passed on unchanged. Readers of small pieces (Avro, ORC)
get more than they request. The amount grows with the length of the sequential read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

MIN_REQUEST_BYTES: Final = 64 << 10
MAX_READAHEAD_BYTES: Final = 4 << 20

# Arrow first reads this part of a Parquet file to find its footer. It is fetched when the file is opened, and that
# request also returns the size.
TAIL_BYTES: Final = 64 << 10


def plan_request(position: int, wanted_bytes: int, run_bytes: int, size_bytes: int) -> range:
    """Return the bytes to fetch for `wanted_bytes` at `position`, never past the end of the file.

    run_bytes: how much was read sequentially up to `position`, 0 after a jump. At least this much is fetched, but not
        less than MIN_REQUEST_BYTES and, unless more is wanted, not more than MAX_READAHEAD_BYTES.
    """
    at_least = min(max(run_bytes, MIN_REQUEST_BYTES), MAX_READAHEAD_BYTES)
    return range(position, min(position + max(wanted_bytes, at_least), size_bytes))


class RangedFile:
    """A binary file for `pyarrow.PythonFile`, which locks it: one thread at a time.

    fetch: fetch(start, end) returns the bytes [start, end) of the object.
    tail: the last bytes of the object, kept as long as the reader.
    """

    def __init__(self, fetch: Callable[[int, int], Buffer], size_bytes: int, tail: Buffer) -> None:
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._tail = memoryview(tail)
        self._tail_start = size_bytes - len(self._tail)
        self._window = memoryview(b"")
        self._window_start = 0
        self._position = 0
        self._run_end = 0  # where the last read ended
        self._run_bytes = 0
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
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:length]
        if not self._window_start <= start <= start + length <= self._window_start + len(self._window):
            request = plan_request(start, length, self._run_bytes, self._size_bytes)
            self._window = memoryview(self._fetch(request.start, request.stop))
            self._window_start = start
        return self._window[start - self._window_start :][:length]

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
        self._window = self._tail = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
