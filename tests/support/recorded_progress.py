"""What long work says about its progress, remembered instead of shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelake.storage.base.progress import Advance


class Recorded:
    """A display that remembers each task: words, unit, total, and what was done."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, str, int, int]] = []

    @contextmanager
    def task(self, what: str, total: int, unit: str) -> Iterator[Advance]:
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount

        yield advance
        self.tasks.append((what, unit, total, done))
