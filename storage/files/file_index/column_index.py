"""The interface of all kinds of indexes: they are written, and evaluate conditions on their column.

An answer contains the rows that may match a condition, by their positions in the data file: a bitmap, or None if the
index can't tell. An answer may contain too many rows, but never misses one: the condition is applied to the rows again.

Source: Java `fileindex/FileIndexReader.java`, `FileIndexResult.java`, `bitmap/BitmapIndexResult.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import pyarrow as pa
from pyroaring import BitMap

from tidelake.errors import CorruptFile

Answer: TypeAlias = BitMap | None


def and_answers(one: Answer, other: Answer) -> Answer:
    """Return the rows that may match both conditions."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def or_answers(one: Answer, other: Answer) -> Answer:
    """Return the rows that may match at least one of the conditions."""
    return None if one is None or other is None else one | other


class ColumnIndex(Protocol):
    """An index of a column that evaluates conditions.

    Conditions have the meaning of SQL: a null only matches `is null`. Floats are compared like in Java: -0.0 is less
    than 0.0, and NaN equals itself and is greater than every number.

    The parameter `values` (n,) has the column's type, and no nulls.
    """

    def any_of(self, values: pa.Array) -> Answer:
        """Return the rows that may equal one of the values."""
        ...

    def none_of(self, values: pa.Array) -> Answer:
        """Return the rows that may differ from all values."""
        ...

    def compare(self, operator: str, value: pa.Array) -> Answer:
        """Return the rows that may match a comparison.

        operator: <, <=, > or >=.
        value (1,): the constant.
        """
        ...

    def is_null(self) -> Answer: ...

    def is_not_null(self) -> Answer: ...


class IndexWriter(Protocol):
    def add(self, column: pa.Array) -> None:
        """Add the next rows of the file."""
        ...

    def finish(self) -> bytes | None:
        """Return the index; None if these rows can't be indexed. No rows may be added afterwards."""
        ...


class EmptyIndex:
    """An index to which nothing was written, because the column is null in all rows."""

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
def index_errors(path: str, kind: str) -> Iterator[None]:
    """Convert the errors of readers to CorruptFile: an index has no checksum."""
    try:
        yield
    except (ValueError, struct.error, IndexError, OverflowError) as error:
        raise CorruptFile(path, f"an index of kind {kind}", str(error)) from error
