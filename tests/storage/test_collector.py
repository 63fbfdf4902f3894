"""Garbage collection is paused while any caller requests it, and restored afterwards."""

from __future__ import annotations

import gc
import threading

from tidelake.storage.base.garbage_collection import paused_collection


def test_garbage_collection_is_paused_until_the_last_holder_ends() -> None:
    assert gc.isenabled()
    leave, inside = threading.Event(), threading.Event()

    def other() -> None:
        with paused_collection():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with paused_collection():
        thread.start()
        assert inside.wait(60)
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_disabled_garbage_collection_stays_disabled() -> None:
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
