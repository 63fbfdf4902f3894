"""What each kind of index can do: be written, and answer conditions on its column.

An answer is the rows that may fulfil the condition, by their positions in the data file: a bitmap, or None when the
index can't tell. It may hold rows too many, never one too few: the condition is applied to the rows again.

Source: Java `fileindex/FileIndexReader.java`, `FileIndexResult.java`, `bitmap/BitmapIndexResult.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import pyarrow as pa
from pyroaring import BitMap

from storage.errors import CorruptFile

Answer: TypeAlias = BitMap | None


def and_answers(one: Answer, other: Answer) -> Answer:
    """Rows that may fulfil both of two conditions."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def or_answers(one: Answer, other: Answer) -> Answer:
    """Rows that may fulfil one of two conditions."""
    return None if one is None or other is None else one | other


class ColumnIndex(Protocol):
    """One index of a column, to be asked.

    values: (n,) of the column's type, none null. Conditions are those of SQL: a null fulfils none but `is null`.
    Floats are compared as Java does: -0.0 is less than 0.0, NaN equals itself and is greater than every number.
    """

    def any_of(self, values: pa.Array) -> Answer:
        """Equal to one of them."""
        ...

    def none_of(self, values: pa.Array) -> Answer:
        """Equal to none of them."""
        ...

    def compare(self, operator: str, value: pa.Array) -> Answer:
        """operator: < <= > or >=; value: (1,)."""
        ...

    def is_null(self) -> Answer: ...

    def is_not_null(self) -> Answer: ...


class IndexWriter(Protocol):
    def add(self, column: pa.Array) -> None:
        """The next rows of the file."""
        ...

    def finish(self) -> bytes | None:
        """The index; None when the rows have none. Rows never go in afterwards."""
        ...


class NothingWritten:
    """What an index tells that its writer never wrote to: the column has no value in any row."""

    def any_of(self, values: pa.Array) -> Answer:
        return BitMap()

    def none_of(self, values: pa.Array) -> Answer:
        return None

    def compare(self, operator: str, value: pa.Array) -> Answer:
        return BitMap()

    def is_null(self) -> Answer:
        return None

    def is_not_null(self) -> Answer:
        return BitMap()


@contextmanager
def damage(path: str, kind: str) -> Iterator[None]:
    """Turns what readers stumble over into CorruptFile: an index has no checksum."""
    try:
        yield
    except (ValueError, struct.error, IndexError, OverflowError) as error:
        raise CorruptFile(path, f"an index of kind {kind}", str(error)) from error
