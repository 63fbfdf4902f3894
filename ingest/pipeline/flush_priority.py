"""Who has the processors while rows are on their way from a buffer into a snapshot: the flush, and the commit.

They are what somebody waits for. What else computes can wait for a moment: a batch that is decoded is of the next
checkpoint at the earliest, and a thread that decodes keeps the interpreter's lock for milliseconds, so that who flushes
and publishes, which lets go of it at every step and every file, would wait as long each time to get it back. The
compactions that a flush gives rise to would begin while the next bucket is flushed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from compaction.scheduler import CompactionScheduler, shared_scheduler
from ingest.clock import Clock, wait_at_most

# A flush that takes longer waits for a store, and has no use for more of the processors.
_DECODING_MS_MAX: Final = 100
_COMPACTION_MS_MAX: Final = 200


class FlushPriority:
    """interval_ms: between checkpoints; decoding gives way for a fifth of it at most, compaction for two.
    compactions: None for the process's own.
    """

    def __init__(self, interval_ms: int, clock: Clock, compactions: CompactionScheduler | None = None) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._compactions = compactions or shared_scheduler()
        self._published = asyncio.Event()
        self._published.set()
        self._flush_began_ms = 0

    def begin(self) -> None:
        """A flush begins."""
        self._published.clear()
        self._flush_began_ms = self._clock.now_ms()
        self._compactions.pause(min(_COMPACTION_MS_MAX, self._interval_ms * 2 // 5) / 1000)

    def end(self) -> None:
        """Its rows are published, or won't be. Harmless where none began."""
        self._published.set()
        self._compactions.resume()

    async def give_way(self) -> None:
        """Before a batch is decoded."""
        if not self._published.is_set():
            at_most_ms = min(_DECODING_MS_MAX, self._interval_ms // 5)
            left_ms = self._flush_began_ms + at_most_ms - self._clock.now_ms()
            if left_ms > 0:
                await wait_at_most(self._published, left_ms, self._clock)
