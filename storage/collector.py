"""Python's garbage collector, kept from looking at a long list again and again while it grows.

Reading 100,000 entries of manifests takes a twentieth less time without it (measured side by side, `t$files`).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused_collection() -> Iterator[None]:
    """Of the whole process, until the last who asked for it is done. For work that makes no circles, and ends soon."""
    global _pauses, _was_enabled  # noqa: PLW0603 - the collector is one, too
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _was_enabled:
                gc.enable()
