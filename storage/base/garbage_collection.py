"""Pauses Python's garbage collector, which would otherwise scan a growing list again and again.

Reading 100,000 entries of manifests takes 5 % less time while it is paused (measured side by side, with `t$files`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tidelake.storage.base import env

_lock = env.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause it in the whole process until the last caller is done. For short work that creates no reference cycles."""
    global _pauses, _was_enabled  # noqa: PLW0603 - the collector is global, too
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
