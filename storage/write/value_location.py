"""The location of a value in a batch: its row and its path, as `tags[3].name`. It is computed for error messages only.

A nested column is split into arrays of its parts. A location maps an index in such an array back to the row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import shown
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.types import DataType, arrow_type
from tidelake.storage.write.alter_hints import AlterHints


class ValueLocation(ABC):
    """The location of an array of values in a batch, for error messages."""

    @property
    @abstractmethod
    def alter_hints(self) -> AlterHints: ...

    @property
    @abstractmethod
    def schema_path(self) -> tuple[str, ...]:
        """The path through the column's type; empty if the type can't be altered there (keys of maps)."""

    @abstractmethod
    def at(self, index: int | None) -> tuple[int | None, str]:
        """Return (row in the batch, path) of the value at this index; None means all values."""

    def mismatch_error(
        self,
        data_type: DataType,
        given: pa.DataType,
        reason: str,
        index: int | None = None,
        *,
        remedy: str | None = None,
    ) -> BadInput:
        """Return the error for values of type `given` that don't fit.

        index: the first value that doesn't fit; None if the type itself doesn't
        """
        row, path = self.at(index)
        where = "" if row is None else f" in row {row} of the batch"
        remedy = remedy or self._cast_or_alter(data_type, given)
        return self._error(path, f"is {data_type}, and {given} does not fit without loss{where}: {reason}. {remedy}")

    def _cast_or_alter(self, data_type: DataType, given: pa.DataType) -> str:
        wanted = arrow_type(data_type)
        if given == wanted:
            return "Correct the value"
        alter = self.alter_hints.set_type(self.schema_path, data_type, given) if self.schema_path else ""
        return f"Cast the batch to {wanted}{alter}"

    def null(self, index: int) -> BadInput:
        """Return the error for a null in a column that allows none."""
        row, path = self.at(index)
        return self._error(path, f"is NOT NULL, but null in row {row} of the batch; give it a value")

    def missing_value_error(self) -> BadInput:
        """Return the error for required values that the batch lacks."""
        return self._error(self.at(None)[1], "is NOT NULL, but the batch lacks it; add it")

    def unknown(self, name: str, given: pa.DataType, known: Sequence[str]) -> BadInput:
        """Return the error for a field that the column lacks."""
        added = self.alter_hints.add_column((*self.schema_path, name), given) if self.schema_path else "another column"
        hint = did_you_mean(name, known) or "."
        return self._error(
            self.at(None)[1],
            f"has no field {name!r} (it has {', '.join(known)}){hint} Drop the field from the batch, or add it to the "
            f"table: {added}",
        )

    def refused(self, what: str) -> BadInput:
        return self._error(self.at(None)[1], what)

    def _error(self, path: str, what: str) -> BadInput:
        return BadInput(f"{self.alter_hints.table_name}: column {path!r} {what}")


@dataclass(frozen=True, slots=True)
class ColumnLocation(ValueLocation):
    """A column of the batch."""

    table: AlterHints
    name: str

    @property
    def alter_hints(self) -> AlterHints:
        return self.table

    @property
    def schema_path(self) -> tuple[str, ...]:
        return (self.name,)

    def at(self, index: int | None) -> tuple[int | None, str]:
        return index, self.name


@dataclass(frozen=True, slots=True)
class FieldLocation(ValueLocation):
    """A field of a ROW, with one value for each row."""

    parent: ValueLocation
    name: str

    @property
    def alter_hints(self) -> AlterHints:
        return self.parent.alter_hints

    @property
    def schema_path(self) -> tuple[str, ...]:
        return (*self.parent.schema_path, self.name) if self.parent.schema_path else ()

    def at(self, index: int | None) -> tuple[int | None, str]:
        row, path = self.parent.at(index)
        return row, f"{path}.{self.name}"


@dataclass(frozen=True, slots=True)
class ElementLocation(ValueLocation):
    """The elements of all lists, in one array."""

    parent: ValueLocation
    lists: pa.Array

    @property
    def alter_hints(self) -> AlterHints:
        return self.parent.alter_hints

    @property
    def schema_path(self) -> tuple[str, ...]:
        return (*self.parent.schema_path, "element") if self.parent.schema_path else ()

    def at(self, index: int | None) -> tuple[int | None, str]:
        if index is None:
            return None, f"{self.parent.at(None)[1]}[]"
        number, within = _list_of(self.lists, index)
        row, path = self.parent.at(number)
        return row, f"{path}[{within}]"


@dataclass(frozen=True, slots=True)
class EntryLocation(ValueLocation):
    """The keys or the values of all maps, in one array.

    lists: the maps as lists of entries.
    """

    parent: ValueLocation
    lists: pa.Array
    keys: pa.Array
    of_key: bool

    @property
    def alter_hints(self) -> AlterHints:
        return self.parent.alter_hints

    @property
    def schema_path(self) -> tuple[str, ...]:
        return (*self.parent.schema_path, "value") if self.parent.schema_path and not self.of_key else ()

    def at(self, index: int | None) -> tuple[int | None, str]:
        if index is None:
            return None, f"{self.parent.at(None)[1]}.{'key' if self.of_key else 'value'}"
        number, within = _list_of(self.lists, index)
        row, path = self.parent.at(number)
        return row, f"{path}.key[{within}]" if self.of_key else f"{path}[{shown(_plain(self.keys[index]))}]"


def _list_of(lists: pa.Array, index: int) -> tuple[int, int]:
    """Return which list holds the element, and the position in it."""
    ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))
    number = int(np.searchsorted(ends, index, side="right"))
    return number, index - (int(ends[number - 1]) if number else 0)


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # bytes that are not UTF-8, or a day outside of Python's calendar
        return str(value.type)
