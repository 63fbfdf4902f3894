"""SIGTERM and Ctrl-C cancel a compaction job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from compaction.cancellation import CancellationToken


@contextmanager
def cancelled_by_signals() -> Iterator[CancellationToken]:
    """The first SIGTERM or SIGINT cancels, the second cancels at once. Outside of the main thread no signal arrives."""
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
