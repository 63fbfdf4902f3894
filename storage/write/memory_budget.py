"""One limit for the rows that all writers of a process hold in memory.

When the sum passes the limit, the largest holders are asked to write down what they hold, wherever they belong: a table
that stopped receiving rows gives its memory back to the ones that still do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

OWNER_BYTES_MAX: Final = 1 << 30  # whatever the limit: a column of what is written down together has 32-bit offsets
# Of rows this large a copy counts: they are merged as runs of one row each, and come where there is room for them.
LARGE_ROW_BYTES: Final = 4 * 1024 * 1024
PIECE_BYTES: Final = OWNER_BYTES_MAX // 2


class MemoryOwner(Protocol):
    """Something that holds rows in memory: a bucket's write buffer (Java: MemoryOwner)."""

    @property
    def held_bytes(self) -> int:
        """Read without the holder's lock: a moment old is fine."""
        ...

    @property
    def large_row_bytes(self) -> int:
        """Size of the largest buffered rows, if they are large; otherwise 0."""
        ...

    def flush_memory(self) -> None:
        """Write down (spill or flush) what is held. Takes the holder's own lock."""
        ...


class MemoryBudget:
    """The memory that the write buffers of all tables share. Thread-safe.

    limit_bytes: Arrow bytes of rows in buffers, over all tables. What a flush needs besides is not counted.

    Thread-safe. Call `rebalance` without holding a holder's lock: it may take any of them.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ValueError(f"a memory budget is more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes
        self._holders: set[MemoryOwner] = set()
        self._lock = threading.Lock()

    def join(self, holder: MemoryOwner) -> None:
        with self._lock:
            self._holders.add(holder)

    def leave(self, holder: MemoryOwner) -> None:
        with self._lock:
            self._holders.discard(holder)

    @property
    def held_bytes(self) -> int:
        with self._lock:
            return sum(holder.held_bytes for holder in self._holders)

    @property
    def is_exceeded(self) -> bool:
        """Whether `rebalance` has something to do."""
        return self._largest() is not None

    def rebalance(self) -> None:
        """Make the largest holders give back until the sum is below the limit, and each below OWNER_BYTES_MAX. Of large
        rows there must be room for one more: its caller creates it in addition to the buffered ones. Errors of their
        writes come through.
        """
        while (holder := self._largest()) is not None:
            holder.flush_memory()

    def make_room_for(self, rows: pa.RecordBatch) -> None:
        """Flush before large rows that don't fit with the buffered ones. Smaller ones don't wait: larger files."""
        nbytes = rows.nbytes
        while large_row_bytes(nbytes, rows.num_rows) and (holder := self._largest(nbytes)) is not None:
            holder.flush_memory()

    def _largest(self, coming_bytes: int = 0) -> MemoryOwner | None:
        """The owner that must flush next; None when all is within the limits, or no owner holds anything."""
        with self._lock:
            held = {holder: holder.held_bytes for holder in self._holders}
            coming_bytes = max([coming_bytes, *(holder.large_row_bytes for holder in self._holders)])
        largest = max(held, key=held.__getitem__, default=None)
        if largest is None or not held[largest]:
            return None
        if sum(held.values()) + coming_bytes <= self.limit_bytes and held[largest] <= OWNER_BYTES_MAX:
            return None
        return largest


def large_row_bytes(nbytes: int, num_rows: int) -> int:
    """Of a row on average, where that is large; else 0.

    nbytes: of all the rows
    """
    row_bytes = nbytes // max(1, num_rows)
    return row_bytes if row_bytes >= LARGE_ROW_BYTES else 0


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch that is too large to fit with the buffered rows of its bucket is split."""
    count = max(1, -(-batch.nbytes // PIECE_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
