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

    It knows what its owners held when they last grew. What they released since makes these numbers too high, never too
    low, so the owners are asked only if the numbers exceed the limit: a write costs the same with many open buckets.

    Call `rebalance` without holding an owner's lock: it may take any of these locks.

    limit_bytes: limit for the Arrow bytes of buffered rows of all tables. Additional memory of a flush is not counted.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ValueError(f"limit_bytes must be positive, not {limit_bytes}")
        self.limit_bytes = limit_bytes
        self._held: dict[MemoryOwner, int] = {}
        self._sum = self._greatest = self._large_row = 0
        self._lock = threading.Lock()

    def register(self, owner: MemoryOwner) -> None:
        with self._lock:
            self._held.setdefault(owner, 0)
            self._count(owner)

    def unregister(self, owner: MemoryOwner) -> None:
        with self._lock:
            self._sum -= self._held.pop(owner, 0)

    def grew(self, owner: MemoryOwner) -> None:
        """Learn that rows were added to an owner."""
        with self._lock:
            if owner in self._held:
                self._count(owner)

    @property
    def held_bytes(self) -> int:
        with self._lock:
            return sum(owner.held_bytes for owner in self._held)

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
            if self._fits(incoming_bytes):
                return None
            self._sum = self._greatest = self._large_row = 0
            self._held = dict.fromkeys(self._held, 0)
            for owner in self._held:
                self._count(owner)
            largest = max(self._held, key=self._held.__getitem__, default=None)
            return None if largest is None or not self._held[largest] or self._fits(incoming_bytes) else largest

    def _fits(self, incoming_bytes: int) -> bool:
        needed = self._sum + max(incoming_bytes, self._large_row)
        return needed <= self.limit_bytes and self._greatest <= OWNER_BYTES_MAX

    def _count(self, owner: MemoryOwner) -> None:
        held = owner.held_bytes
        self._sum += held - self._held[owner]
        self._held[owner] = held
        self._greatest = max(self._greatest, held)
        self._large_row = max(self._large_row, owner.large_row_bytes)


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
