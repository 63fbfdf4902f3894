"""Reads sections side by side, in bounded memory, for tables that are far away.

A section waits for its indexes, then for footers, then for pages. In an object store each of these takes a round trip.
So the next sections are begun while the consumer has the rows of the current one, as long as their first batches fit
the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final, Generic, TypeVar, cast

from tidelake.storage.base.threads import Begun
from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES
from tidelake.storage.merge.sections import batch_size, estimated_row_bytes
from tidelake.storage.merge.sorted_run import Section

A = TypeVar("A")
T = TypeVar("T")

_SECTIONS_MAX: Final = 32
_BYTES_MAX: Final = 64 << 20
_PAGES_BYTES_MAX: Final = 16 << 20  # of one open file


def bytes_ahead(section: Section) -> int | None:
    """Return about how much memory the first batch of a section takes, with the pages that were fetched for it.

    None for large rows: they are not read ahead.
    """
    row_bytes = estimated_row_bytes(section)
    if row_bytes >= LARGE_ROW_BYTES:
        return None
    rows = batch_size(section).rows
    return sum(
        min(rows, run[0].row_count) * row_bytes + min(run[0].file_size, _PAGES_BYTES_MAX) for run in section if run
    )


def read_side_by_side(
    sections: Iterable[A], read: Callable[[A], Iterator[T]], bytes_of: Callable[[A], int | None]
) -> Iterator[T]:
    """Yield the rows of all sections, in their order.

    bytes_of: the memory of a section that was begun; None if it must be read alone.
    """
    coming = iter(sections)
    following = next(coming, None)
    begun = deque[_BegunSection[T]]()
    try:
        while following is not None or begun:
            while following is not None and (nbytes := bytes_of(following)) is not None:
                held = sum(one.nbytes for one in begun)
                if begun and (len(begun) >= _SECTIONS_MAX or held + nbytes > _BYTES_MAX):
                    break
                begun.append(_BegunSection(read(following), nbytes, is_next=not begun))
                following = next(coming, None)
            if begun:
                yield from begun[0].rows()
                begun.popleft()
            elif following is not None:
                yield from read(following)
                following = next(coming, None)
    finally:
        with ExitStack() as ended:  # ends all of them, whatever one raises
            for one in begun:
                ended.callback(one.end)


class _BegunSection(Generic[T]):
    """The rows of a section, of which another thread reads the first batch.

    The others are read in the consumer's thread: in changing threads a merge would leave memory in each of them.

    is_next: the consumer reads it at once, so no thread is needed.
    """

    _END: Final = object()

    def __init__(self, rows: Iterator[T], nbytes: int, *, is_next: bool) -> None:
        self.nbytes = nbytes
        self._rows = rows
        self._first: Begun[object] | None = None if is_next else Begun(partial(next, rows, self._END), decodes=True)

    def rows(self) -> Iterator[T]:
        first = self._END if self._first is None else self._first.result()
        if first is not self._END:
            yield cast(T, first)
        first = None
        yield from self._rows

    def end(self) -> None:
        if self._first is not None:
            self._first.end()
        if isinstance(self._rows, Generator):
            self._rows.close()
