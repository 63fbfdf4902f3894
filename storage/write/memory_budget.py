"""One limit for the rows that all writers of a process hold in memory.

If the sum exceeds the limit, the writers that hold most must write their rows to disk, whichever table they belong to.
So a table that gets no more rows gives its memory to the tables that do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES

OWNER_BYTES_MAX: Final = 1 << 30  # for any limit: a column that is written at once has 32-bit offsets
PIECE_BYTES: Final = OWNER_BYTES_MAX // 2


class MemoryOwner(Protocol):
    """Holds rows in memory, as a bucket's write buffer does (Java: MemoryOwner)."""

    @property
    def held_bytes(self) -> int:
        """Read without the owner's lock. The value may be slightly outdated."""
        ...

    @property
    def large_row_bytes(self) -> int:
        """Size of the largest buffered rows, if they are large; otherwise 0."""
        ...

    def flush_memory(self) -> None:
        """Spill or flush the held rows. Takes the owner's own lock."""
        ...


class MemoryBudget:
    """The memory that the write buffers of all tables share. Thread-safe.

    Call `rebalance` without holding an owner's lock: it may take any of these locks.

    limit_bytes: limit for the Arrow bytes of buffered rows of all tables. Additional memory of a flush is not counted.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ValueError(f"limit_bytes must be positive, not {limit_bytes}")
        self.limit_bytes = limit_bytes
        self._owners: set[MemoryOwner] = set()
        self._lock = threading.Lock()

    def register(self, owner: MemoryOwner) -> None:
        with self._lock:
            self._owners.add(owner)

    def unregister(self, owner: MemoryOwner) -> None:
        with self._lock:
            self._owners.discard(owner)

    @property
    def held_bytes(self) -> int:
        with self._lock:
            return sum(owner.held_bytes for owner in self._owners)

    @property
    def is_exceeded(self) -> bool:
        """Whether `rebalance` has something to do."""
        return self._largest() is not None

    def rebalance(self) -> None:
        """Flush the largest owners until the sum is below the limit, and each owner below OWNER_BYTES_MAX.

        With large rows, room for one more is kept: the caller creates the next row in addition to the buffered ones.
        Raises errors of the flushes.
        """
        while (owner := self._largest()) is not None:
            owner.flush_memory()

    def make_room_for(self, rows: pa.RecordBatch) -> None:
        """Flush if large rows don't fit with the buffered ones. Small rows don't wait, which gives larger files."""
        nbytes = rows.nbytes
        while large_row_bytes(nbytes, rows.num_rows) and (owner := self._largest(nbytes)) is not None:
            owner.flush_memory()

    def _largest(self, incoming_bytes: int = 0) -> MemoryOwner | None:
        """Return the owner that must flush next; None if all is within the limits, or if no owner holds anything."""
        with self._lock:
            held = {owner: owner.held_bytes for owner in self._owners}
            incoming_bytes = max([incoming_bytes, *(owner.large_row_bytes for owner in self._owners)])
        largest = max(held, key=held.__getitem__, default=None)
        if largest is None or not held[largest]:
            return None
        if sum(held.values()) + incoming_bytes <= self.limit_bytes and held[largest] <= OWNER_BYTES_MAX:
            return None
        return largest


def large_row_bytes(nbytes: int, num_rows: int) -> int:
    """Return the average size of the rows if it is large, otherwise 0.

    nbytes: size of all rows
    """
    row_bytes = nbytes // max(1, num_rows)
    return row_bytes if row_bytes >= LARGE_ROW_BYTES else 0


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch that would be too large together with the buffered rows of its bucket."""
    count = max(1, -(-batch.nbytes // PIECE_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
