"""One limit for the rows that all writers of a process hold in memory.

If the sum exceeds the limit, the writers that hold most must write their rows to disk, whichever table they belong to.
So a table that gets no more rows gives its memory to the tables that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa

from tidelake.storage.base import env
from tidelake.storage.write.buffered_rows import BufferedRows, large_row_bytes

OWNER_BYTES_MAX: Final = 1 << 30  # for any limit: a column that is written at once has 32-bit offsets
PIECE_BYTES: Final = OWNER_BYTES_MAX // 2


class MemoryOwner(Protocol):
    """Holds rows in memory, as a bucket's writer does (Java: MemoryOwner)."""

    @property
    def buffered(self) -> BufferedRows:
        """The rows in memory. Its counts are read without the owner's lock."""
        ...

    def flush(self) -> None:
        """Write all rows to a file. Takes the owner's own lock."""
        ...

    def flush_memory(self) -> None:
        """Spill or flush the held rows. Takes the owner's own lock."""
        ...


class MemoryBudget:
    """The memory that the write buffers of all tables share, and the decision which of them is flushed. Thread-safe.

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
        self._full: set[MemoryOwner] = set()
        self._sum = self._large_row = 0
        self._lock = env.Lock()

    def register(self, owner: MemoryOwner) -> None:
        with self._lock:
            self._held.setdefault(owner, 0)
            self._count(owner)

    def unregister(self, owner: MemoryOwner) -> None:
        with self._lock:
            self._sum -= self._held.pop(owner, 0)
            self._full.discard(owner)

    def grew(self, owner: MemoryOwner) -> None:
        """Learn that rows were added to an owner. Fast, however many owners there are."""
        with self._lock:
            if owner in self._held:
                self._count(owner)

    @property
    def held_bytes(self) -> int:
        """What all owners hold now. It asks each of them, so it is for metrics."""
        with self._lock:
            return sum(owner.buffered.nbytes for owner in self._held)

    @property
    def needs_rebalance(self) -> bool:
        """Whether `rebalance` would flush anything. It asks no owner while the known numbers fit."""
        return bool(self._due())

    def rebalance(self) -> None:
        """Flush the owners that are full, then the largest until the sum is below the limit.

        With large rows, room for one more is kept: the caller creates the next row in addition to the buffered ones.
        Raises errors of the flushes.
        """
        while flushes := self._due():
            for flush in flushes:
                flush()

    def make_room_for(self, rows: pa.RecordBatch) -> None:
        """Flush if large rows don't fit with the buffered ones. Small rows don't wait, which gives larger files."""
        nbytes = rows.nbytes
        while large_row_bytes(nbytes, rows.num_rows) and (flushes := self._due(nbytes)):
            for flush in flushes:
                flush()

    def _due(self, incoming_bytes: int = 0) -> Sequence[Callable[[], None]]:
        """Return the next flushes; nothing if all is within the limits, or if no owner holds anything.

        Others may be due after them: full owners come first, and the size of large rows is only known after a flush.
        """
        with self._lock:
            self._full = {owner for owner in self._full if _is_full(owner.buffered)}
            if self._full:
                return [owner.flush for owner in self._full]
            if self._needed(incoming_bytes) <= self.limit_bytes:
                return ()
            self._ask_all()
            excess = self._needed(incoming_bytes) - self.limit_bytes
            flushes = list[Callable[[], None]]()
            largest_first = sorted(self._held, key=self._held.__getitem__, reverse=True)
            for owner in largest_first:
                if excess <= 0 or not self._held[owner]:
                    break
                flushes.append(owner.flush_memory)
                excess -= self._held[owner]
                if owner.buffered.large_row_bytes:
                    break
            return flushes

    def _ask_all(self) -> None:
        self._sum = self._large_row = 0
        self._held = dict.fromkeys(self._held, 0)
        for owner in self._held:
            self._count(owner)

    def _needed(self, incoming_bytes: int) -> int:
        return self._sum + max(incoming_bytes, self._large_row)

    def _count(self, owner: MemoryOwner) -> None:
        buffered = owner.buffered
        held = buffered.nbytes
        self._sum += held - self._held[owner]
        self._held[owner] = held
        self._large_row = max(self._large_row, buffered.large_row_bytes)
        if _is_full(buffered):
            self._full.add(owner)


def _is_full(buffered: BufferedRows) -> bool:
    """Return whether rows must be flushed, however much memory is left."""
    return buffered.nbytes > OWNER_BYTES_MAX


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch that would be too large together with the buffered rows of its bucket."""
    count = max(1, -(-batch.nbytes // PIECE_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
