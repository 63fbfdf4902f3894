"""Cancellation of a compaction: gracefully (`cancel`, the first signal) or at once (`cancel_now`, the second)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tidelake.storage.base import env

IsCancelled: TypeAlias = Callable[[], bool]  # polled by running work: whether to raise CompactionCancelled


class CompactionCancelled(Exception):
    """The compaction was cancelled. The files that it wrote are deleted; the table has not changed."""


class CancellationToken:
    """Cancels a job, from any thread or signal handler. Compare Java's ExecutorService: shutdown and shutdownNow."""

    def __init__(self) -> None:
        self._cancelled = env.Event()
        self._cancelled_now = env.Event()

    def cancel(self) -> None:
        """Start no new compaction. Running ones finish and are committed."""
        self._cancelled.set()

    def cancel_now(self) -> None:
        """Cancel running compactions, too, and delete their files."""
        self._cancelled_now.set()
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def is_cancelled_now(self) -> bool:
        return self._cancelled_now.is_set()

    def wait_ms(self, wait_ms: float) -> None:
        """Wait until `cancel` is called, or for this long."""
        self._cancelled.wait(wait_ms / 1000)


@contextmanager
def cancelled_by_signals() -> Iterator[CancellationToken]:
    """Cancel at the first SIGTERM or SIGINT, and at once at the second.

    Outside of the main thread no signal arrives.
    """
    token = CancellationToken()

    def on_signal(*_: object) -> None:
        if token.is_cancelled:
            token.cancel_now()
        else:
            token.cancel()

    if threading.current_thread() is not threading.main_thread():
        yield token
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield token
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
