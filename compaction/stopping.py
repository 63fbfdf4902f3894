"""How a compaction is told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

ShouldStop: TypeAlias = Callable[[], bool]  # asked by what works, now and then: whether to raise CompactionStopped


class CompactionStopped(Exception):
    """Somebody no longer wants the result. What was written is deleted; nothing has changed."""


class StopRequest:
    """How others end a job, from any thread or signal handler."""

    def __init__(self) -> None:
        self._gently = threading.Event()
        self._at_once = threading.Event()

    def ask(self) -> None:
        """Begin nothing new; compactions that run come to their end and are committed."""
        self._gently.set()

    def insist(self) -> None:
        """Give up compactions that run, too, and delete what they wrote."""
        self._at_once.set()
        self._gently.set()

    @property
    def is_asked(self) -> bool:
        return self._gently.is_set()

    @property
    def is_insisted(self) -> bool:
        return self._at_once.is_set()

    def wait_ms(self, wait_ms: float) -> None:
        """Wait until somebody asks, or for this long."""
        self._gently.wait(wait_ms / 1000)
