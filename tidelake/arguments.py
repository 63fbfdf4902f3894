"""What calls take: budgets that writers share, where a follower starts, and what ends a call early."""

from __future__ import annotations

from tidelake.compaction.cancellation import CancellationToken
from tidelake.homes import give_home
from tidelake.storage.read.follow import CancelEvent
from tidelake.storage.read.stream.start import Start
from tidelake.storage.write.memory_budget import MemoryBudget

__all__ = ["CancelEvent", "CancellationToken", "MemoryBudget", "Start"]

give_home(__name__, __all__, globals())
