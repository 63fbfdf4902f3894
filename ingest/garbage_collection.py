"""Python's garbage collector, paused while thousands of objects come and go and none is in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """For the milliseconds that decoding a piece takes: looking for cycles would cost a tenth of it."""
    if not gc.isenabled():  # off for good, or paused by another thread, which will resume it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
