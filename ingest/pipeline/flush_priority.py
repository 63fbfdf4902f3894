"""Gives flush and commit priority over decoding and compaction. A decoding thread holds the GIL for milliseconds and
would delay them.

Flush and commit release the GIL at every step and every file, and would wait for milliseconds each time to get it back.
A batch that is decoded meanwhile belongs to the next checkpoint at the earliest, so it can wait. Compactions that a
flush triggers would start while the next bucket is flushed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelake.compaction.scheduler import CompactionScheduler, shared_scheduler
from tidelake.ingest.clock import Clock, wait_at_most

# A flush that takes longer waits for a store, so more CPU time doesn't help it.
_DECODING_MS_MAX: Final = 100
_COMPACTION_MS_MAX: Final = 200


class FlushPriority:
    """Pauses decoding and compaction during flush and commit.

    interval_ms: time between checkpoints; decoding pauses for at most a fifth of it, compaction for two fifths
    compactions: scheduler to pause; None: that of the process
    """

    def __init__(self, interval_ms: int, clock: Clock, compactions: CompactionScheduler | None = None) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._compactions = compactions or shared_scheduler()
        self._published = asyncio.Event()
        self._published.set()
        self._flush_began_ms = 0

    def begin(self) -> None:
        """Record that a flush begins."""
        self._published.clear()
        self._flush_began_ms = self._clock.now_ms()
        self._compactions.pause(min(_COMPACTION_MS_MAX, self._interval_ms * 2 // 5) / 1000)

    def end(self) -> None:
        """Record the end of flush and commit. Without `begin` this does nothing."""
        self._published.set()
        self._compactions.resume()

    async def wait_for_flush(self) -> None:
        """Wait for a running flush before a batch is decoded."""
        if not self._published.is_set():
            at_most_ms = min(_DECODING_MS_MAX, self._interval_ms // 5)
            left_ms = self._flush_began_ms + at_most_ms - self._clock.now_ms()
            if left_ms > 0:
                await wait_at_most(self._published, left_ms, self._clock)
