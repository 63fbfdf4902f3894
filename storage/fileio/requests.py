"""Decides which requests to a store go out side by side, and which ones nobody waits for.

A request to an object store takes tens of milliseconds, however little it asks for. So what doesn't depend on one
another is sent together. On a local disk a call takes less time than handing it to a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar, cast

from tidelake.storage.base.threads import map_ahead, map_parallel, run_side_by_side
from tidelake.storage.fileio.location import LOCAL_SCHEME, scheme_of

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_AT_ONCE: Final = 16


def is_remote(location: str) -> bool:
    """Return whether a request to this location takes so long that it is worth a thread."""
    return scheme_of(location) != LOCAL_SCHEME


def run_requests(location: str, *requests: Callable[[], T]) -> list[T]:
    """Run independent requests to a location: side by side if it is remote, else one after the other.

    Returns their results in the same order. If some fail, the first error is raised when none is running any more. On a
    local disk those after it are not run.
    """
    if is_remote(location):
        return run_side_by_side(*requests)
    return [request() for request in requests]


def map_requests(location: str, request: Callable[[A], T], items: Sequence[A]) -> Iterator[T]:
    """Send a request for each item: side by side if the location is remote, else one after the other.

    Returns the results in the order of the items. An error is raised in its place.
    """
    return map_parallel(request, items) if is_remote(location) else map(request, items)


def run_both(location: str, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Run two independent requests in the same way."""
    left, right = run_requests(location, cast("Callable[[], object]", first), second)
    return cast("tuple[A, B]", (left, right))


def read_side_by_side(location: str, read: Callable[[A], T], items: Sequence[A]) -> Iterator[T]:
    """Yield the results of `read` in the order of items. If the location is remote, the next items are read meanwhile.

    At most sixteen results are in memory.
    """
    return map_ahead(read, items, _AT_ONCE) if is_remote(location) and len(items) > 1 else map(read, items)
