"""Writes hints without waiting for the store: small files with a number, which readers use but don't need.

For each path at most one write is under way, and the largest number that came in the meantime is written next. So an
older number never replaces a newer one of this process, and a fast writer does not queue its hints up.

A hint that arrives after its directory was deleted would be all that is left of a table, or name a snapshot that its
successor doesn't have. So whoever deletes, moves or rolls back waits for them first (`settle_hints`), and so does a
writer that is closed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Final

from tidelake.storage.base import env
from tidelake.storage.base.threads import run_in_background
from tidelake.storage.fileio.base import FileIO


class _LateHints:
    """The hints that this process is writing. A forked child has none: the parent's threads write those."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._changed = env.Condition()
        self._next: dict[str, int] = {}
        self._being_written: set[str] = set()

    def write(self, io: FileIO, path: str, number: int) -> None:
        with self._changed:
            self._next[path] = max(number, self._next.get(path, 0))
            if path in self._being_written:
                return
            self._being_written.add(path)
        run_in_background(partial(self._write_all, io, path))

    def settle(self, location: str) -> None:
        if not self._being_written:
            return
        with self._changed:
            self._changed.wait_for(lambda: not any(_is_below(path, location) for path in self._being_written))

    def _write_all(self, io: FileIO, path: str) -> None:
        try:
            while (number := self._take(path)) is not None:
                with suppress(Exception):  # with an outdated hint, readers list the directory
                    io.write(path, str(number).encode(), durable=False)
        except BaseException:
            with self._changed:
                self._next.pop(path, None)
            self._take(path)
            raise

    def _take(self, path: str) -> int | None:
        """Return the next number to write. Without one, the path is not being written any more."""
        with self._changed:
            number = self._next.pop(path, None)
            if number is None:
                self._being_written.discard(path)
                self._changed.notify_all()
            return number


def _is_below(path: str, location: str) -> bool:
    return path == location or path.startswith(f"{location.rstrip('/')}/")


_hints: Final = _LateHints()


def write_hint_later(io: FileIO, path: str, number: int) -> None:
    """Write a hint soon, unless a larger number is written instead. Ignores failures.

    number: at least 1.
    """
    _hints.write(io, path, number)


def settle_hints(location: str) -> None:
    """Wait until no hint is being written at this path or below it."""
    _hints.settle(location)
