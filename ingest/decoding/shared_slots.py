"""Memory that two processes share: a few slots of one size.

It has no name, so nothing remains when both processes have ended, however they end. Pages that were never written take
no memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Final

import pyarrow as pa

SLOTS: Final = 2
"""One batch is decoded while the next one waits for it, so that a process never waits for another batch."""
SLOT_BYTES: Final = 32 << 20
"""Twice the size to which sources collect records (`BATCH_BYTES`). Larger batches don't go through a slot."""


class SharedSlots:
    """Slots of `SLOT_BYTES` each.

    fd: the memory's file descriptor, which another process inherits.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, SLOTS * SLOT_BYTES)
        self._octets = memoryview(self._map)

    @classmethod
    def new(cls) -> SharedSlots:
        """Return new slots. Raises OSError if there is no memory for them."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("tidelake-decoding")
        else:  # a file without a name, on systems other than Linux
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        try:
            os.ftruncate(fd, SLOTS * SLOT_BYTES)
            return cls(fd)
        except BaseException:
            os.close(fd)
            raise

    def part(self, slot: int, begin: int, nbytes: int) -> memoryview:
        """Return `nbytes` of a slot."""
        at = slot * SLOT_BYTES + begin
        return self._octets[at : at + nbytes]

    def copied(self, slot: int, nbytes: int) -> pa.Buffer:
        """Return a copy of a slot's first bytes.

        The copy costs a fiftieth of decoding them. Without it, an array that anything still refers to would change when
        the slot is used again.
        """
        copy = pa.allocate_buffer(nbytes)
        memoryview(copy).cast("B")[:] = self.part(slot, 0, nbytes)
        return copy

    def close(self) -> None:
        self._octets.release()
        self._map.close()
        os.close(self.fd)
