"""Measures the costs of each commit to a table.

Uses only the standard library, because peers import it in their Python interpreter.
"""

from __future__ import annotations

import os
import sys
from typing import Final, Self

from benchmarks.clock import Clock

_LISTING_EVENTS: Final = frozenset({"os.listdir", "os.scandir"})
_WRITTEN_TO: Final = ("bucket-0", "manifest", "schema", "snapshot")


class CommitCosts:
    """Measures commits. Each `with` block contains one commit.

    each: for each commit, wall seconds, CPU-seconds, bytes of new files, and how often Python listed a directory.
    total: the time of all commits.
    """

    def __init__(self, table_directory: str) -> None:
        self.each: list[tuple[float, float, int, int]] = []
        self.total = Clock()
        self._directory = table_directory
        self._known: set[str] = set()
        self._listings = 0
        self._new_bytes()
        sys.addaudithook(self._notice)

    def __enter__(self) -> Self:
        self._listings = 0
        self._clock = Clock().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.__exit__()
        listings = self._listings
        self.each.append((self._clock.wall_s, self._clock.cpu_s, self._new_bytes(), listings))
        self.total.wall_s += self._clock.wall_s
        self.total.cpu_s += self._clock.cpu_s

    def _notice(self, event: str, _: object) -> None:
        self._listings += event in _LISTING_EVENTS

    def _new_bytes(self) -> int:
        """Return the size of files created since the last call. Overwritten hints, a few bytes, are not included."""
        found = 0
        for name in _WRITTEN_TO:
            if os.path.isdir(directory := f"{self._directory}/{name}"):
                new = [entry for entry in os.scandir(directory) if entry.path not in self._known]
                found += sum(entry.stat().st_size for entry in new)
                self._known.update(entry.path for entry in new)
        return found
