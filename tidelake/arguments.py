"""What calls take: rows and schemas, budgets that writers share, where a follower starts, what ends a call early."""

from __future__ import annotations

from tidelake.compaction.cancellation import CancellationToken
from tidelake.frames.incoming import ArrowArray, ArrowSchema, ArrowStream
from tidelake.homes import give_home
from tidelake.storage.read.follow import CancelEvent
from tidelake.storage.read.stream.start import Start
from tidelake.storage.write.memory_budget import MemoryBudget

__all__ = ["ArrowArray", "ArrowSchema", "ArrowStream", "CancelEvent", "CancellationToken", "MemoryBudget", "Start"]

give_home(__name__, __all__, globals())
