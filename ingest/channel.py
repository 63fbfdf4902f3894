"""A bounded queue between two tasks, measured in bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import takewhile
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class ChannelClosed(Exception):
    """The channel is closed: there are no more items (receive), or no more can be sent (send)."""


class Channel(Generic[T]):
    """A queue limited by bytes. Items keep their order. A full channel blocks its producer: a slow table pauses its
    source.

    limit_bytes: maximum size of all items. A larger item is accepted alone, when the channel is empty

    The producer closes the channel, preferably by `with channel:`. The consumer then gets the remaining items, and
    after that ChannelClosed (`async for` ends). Several waiting producers are served in any order. (`asyncio.Queue`
    counts items, and can be shut down only from Python 3.13.)
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ValueError(f"limit_bytes={limit_bytes}: the limit of a channel must be above 0")
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._closed = False
        self._items: deque[tuple[T, int]] = deque()
        # Woken tasks check again before they act, and nothing is awaited between check and action. So an extra wake-up
        # does no harm, and a task that is cancelled while it waits has neither added nor removed an item.
        self._changed = asyncio.Event()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def __len__(self) -> int:
        return len(self._items)

    def waiting(self, after: object = None) -> list[T]:
        """Return the items that were not received yet, oldest first. They stay in the channel.

        after: only what was sent after this item
        """
        newest_first = takewhile(lambda item: item is not after, (item for item, _ in reversed(self._items)))
        return list(newest_first)[::-1]

    async def send(self, item: T, nbytes: int) -> None:
        """Append an item of `nbytes` as soon as the channel has room.

        If cancelled, the item is not in the channel. Raises ChannelClosed if the channel is closed, also while waiting.
        """
        while not self._closed and self._items and self._held_bytes + nbytes > self._limit_bytes:
            await self._wait()
        if self._closed:
            raise ChannelClosed
        self._items.append((item, nbytes))
        self._held_bytes += nbytes
        self._changed.set()

    async def receive(self) -> T:
        """Remove and return the oldest item. Wait for one if the channel is empty.

        If cancelled, the channel is unchanged. Raises ChannelClosed if the channel is closed and empty.
        """
        while not self._items:
            if self._closed:
                raise ChannelClosed
            await self._wait()
        item, nbytes = self._items.popleft()
        self._held_bytes -= nbytes
        self._changed.set()
        return item

    def close(self) -> None:
        """Close the channel for new items. Items in the channel can still be received. Closing twice is no error."""
        self._closed = True
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except ChannelClosed:
            raise StopAsyncIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
