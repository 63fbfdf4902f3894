"""Refuses clients whose threads were lost in a fork."""

from __future__ import annotations

import os
from functools import cache

from tidelake.errors import UnsupportedFeature


def require_own_process(used: str) -> None:
    """Raise UnsupportedFeature in a child that was forked from a process that used the same kind of client.

    The client's threads exist only in the parent; in the child every request would wait for them forever.

    used: what is used, for the message: `an object store`.
    """
    if _first_user(used) != os.getpid():
        raise UnsupportedFeature(
            "fork",
            f"this process was forked from a process that had used {used}, and the client's threads don't "
            "exist after a fork",
            "Start processes with multiprocessing's 'spawn' or 'forkserver', or fork before the first use",
        )


@cache
def _first_user(used: str) -> int:
    return os.getpid()
