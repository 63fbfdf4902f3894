"""Waits for files to appear on a local disk. One thread of the process polls for all waiters.

A check takes a microsecond, so a hundred waiting readers cost almost nothing. Each is notified within about thirty
milliseconds. The thread ends when no reader waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidelake.storage.base import env
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO

_POLL_INTERVAL_S: Final = 0.025


@dataclass(frozen=True, eq=False, slots=True)
class _FileWait:
    path: str
    call: Callable[[], None]
    or_when: Callable[[], bool] | None


class FileWatch:
    """Polls for files. Thread-safe. A forked child process starts with a new, empty watch."""

    def __init__(self) -> None:
        self._lock = env.Lock()
        self._waits: set[_FileWait] = set()
        self._thread: env.Thread | None = None

    def call_when_exists(
        self, path: str, call: Callable[[], None], or_when: Callable[[], bool] | None = None
    ) -> Callable[[], None]:
        """Call `call` once, in another thread, when the file exists or `or_when` returns true.

        Returns a function that ends the waiting.
        """
        wait = _FileWait(path, call, or_when)
        with self._lock:
            self._waits.add(wait)
            if self._thread is None:
                self._thread = env.Thread(target=self._poll_files, name="file-watch", daemon=True)
                self._thread.start()

        def cancel() -> None:
            with self._lock:
                self._waits.discard(wait)

        return cancel

    def _poll_files(self) -> None:
        while True:
            with self._lock:
                if not self._waits:
                    self._thread = None
                    return
                waits = tuple(self._waits)
            exists = os.access
            over = [
                wait for wait in waits if exists(wait.path, os.F_OK) or (wait.or_when is not None and wait.or_when())
            ]
            if over:
                self._notify(over)
            env.sleep(_POLL_INTERVAL_S)

    def _notify(self, over: Sequence[_FileWait]) -> None:
        with self._lock:
            called = [wait for wait in over if wait in self._waits]
            self._waits.difference_update(called)
        for wait in called:
            with suppress(RuntimeError):  # raised by an event loop that was closed in the meantime
                wait.call()


_watch = FileWatch()


def _restart_in_child() -> None:
    global _watch  # noqa: PLW0603
    _watch = FileWatch()


os.register_at_fork(after_in_child=_restart_in_child)


def call_when_exists(
    io: FileIO, path: str, call: Callable[[], None], or_when: Callable[[], bool] | None = None
) -> Callable[[], None] | None:
    """See `FileWatch.call_when_exists`. Returns None if files are not on a local disk: the caller must poll."""
    return _watch.call_when_exists(path, call, or_when) if isinstance(io, LocalFileIO) else None
