"""How far long work has got, for whoever shows it: a command on a terminal.

The work wraps its loop in `tracked`, or calls what `counted` gives. Without somebody who shows it, this does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")
Advance = Callable[[int], None]


class ProgressDisplay(Protocol):
    """Shows how far some work has got. Thread-safe."""

    def task(self, what: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """Show a task while the block runs. It gets a function that counts what is done; any thread may call it.

        what: in words, as `copying`
        total: amount of the whole work
        unit: of total, as `files`; `bytes` are shown as sizes
        """
        ...


_display: ContextVar[ProgressDisplay | None] = ContextVar("progress display", default=None)


@contextmanager
def shown_on(display: ProgressDisplay) -> Iterator[None]:
    """Show the work of the block, and of the threads and tasks that it starts with its context, on this display."""
    token = _display.set(display)
    try:
        yield
    finally:
        _display.reset(token)


@contextmanager
def counted(what: str, total: int, unit: str = "files") -> Iterator[Advance]:
    """Give the block a function that counts what is done. See `ProgressDisplay.task`."""
    display = _display.get()
    if display is None or total <= 0:
        yield lambda _: None
        return
    with display.task(what, total, unit) as advance:
        yield advance


def tracked(
    what: str, items: Iterable[T], total: int, unit: str = "files", size: Callable[[T], int] = lambda _: 1
) -> Iterator[T]:
    """Yield the items, and count each one once the next is asked for.

    size: amount of an item, in the unit of total
    """
    with counted(what, total, unit) as advance:
        for item in items:
            yield item
            advance(size(item))
