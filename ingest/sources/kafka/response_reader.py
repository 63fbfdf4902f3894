"""What a broker answers, read into one block of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, SupportsIndex

_LARGE_BYTES: Final = 256 << 10  # what a transport brings at a time


class ResponseReader(asyncio.StreamReader):
    """asyncio's, but a large answer is put together once, when all of it is there.

    asyncio's own grows its buffer with each piece, wakes its reader for each, stops the transport at each, and copies
    the answer out at the end: a twelfth of the CPU time of a message from Kafka.
    """

    # what it is built on of asyncio's, the same since Python 3.8
    _buffer: bytearray
    _eof: bool
    _wait_for_data: Callable[[str], Awaitable[None]]
    _wakeup_waiter: Callable[[], None]

    _pieces: list[bytes | memoryview]
    _missing_bytes = 0

    @classmethod
    def adopt(cls, reader: asyncio.StreamReader) -> None:
        """Have a reader that is in use, maybe waited for, be one of these. One of another class stays what it is."""
        if type(reader) is asyncio.StreamReader:
            reader.__class__ = cls

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        if self._missing_bytes <= 0:
            super().feed_data(data)
            return
        piece = bytes(data)  # itself, where it is one
        self._pieces.append(piece)
        self._missing_bytes -= len(piece)
        if self._missing_bytes <= 0:
            self._wakeup_waiter()

    async def readexactly(self, n: int) -> bytes:
        missing_bytes = n - len(self._buffer)
        if missing_bytes < _LARGE_BYTES or self._eof or self.exception() is not None:
            return await super().readexactly(n)
        self._pieces = [bytes(self._buffer)]
        self._buffer.clear()
        self._missing_bytes = missing_bytes
        try:
            while self._missing_bytes > 0 and not self._eof:
                await self._wait_for_data("readexactly")
        except BaseException:  # what came stays to be read
            self._put_back(b"".join(self._pieces))
            raise
        if self._missing_bytes > 0:
            self._put_back(b"".join(self._pieces))
            return await super().readexactly(n)  # says how much there was
        last = memoryview(self._pieces[-1])
        end = len(last) + self._missing_bytes
        self._pieces[-1] = last[:end]
        answer = b"".join(self._pieces)
        self._put_back(last[end:])
        return answer

    def _put_back(self, data: bytes | memoryview) -> None:
        """For the next call."""
        self._pieces = []
        self._missing_bytes = 0
        self._buffer += data
