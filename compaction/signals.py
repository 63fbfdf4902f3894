"""SIGTERM and Ctrl-C as requests to a compaction job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from compaction.stopping import StopRequest


@contextmanager
def stopped_by_signals() -> Iterator[StopRequest]:
    """The first SIGTERM or SIGINT asks, the second insists. Outside of the main thread, where none arrive, neither."""
    stop = StopRequest()

    def on_signal(*_: object) -> None:
        if stop.is_asked:
            stop.insist()
        else:
            stop.ask()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
