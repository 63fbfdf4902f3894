"""What the indexes of a data file say to a condition: which of its rows may fulfil it.

An index compares floats as Java does, where -0.0 is less than 0.0 and NaN a value like others; a condition compares
them as IEEE 754 does. What differs is widened, so that no row is missed.

Source: Java `fileindex/FileIndexPredicate.java`, `io/FileIndexEvaluator.java`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyroaring import BitMap

from storage.file_index.base import Answer, ColumnIndex, both, damage, either
from storage.file_index.values import is_cut_off
from storage.files.data_file import DataFileMeta
from storage.files.file_index import FileIndexes, file_indexes, may_have_indexes
from storage.read.predicate import And, Compare, IsIn, IsNan, IsNull, Not, Or, Predicate, StartsWith
from storage.table import TableContext
from storage.types import AtomicType, DataType

_ROWS_MAX: Final = 2**31 - 1  # positions of indexes have 32 bits
_NEGATED: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

Ask = Callable[[ColumnIndex], Answer]


def selected_rows(
    context: TableContext, file: DataFileMeta, path: str, condition: Predicate | None, *, embedded_only: bool = False
) -> Answer:
    """Rows of a data file that may fulfil the condition, by its indexes; None: they can't tell, read all.

    context: under the schema to read with.
    path: of the data file.
    embedded_only: an index in a file of its own is not opened.
    Raises CorruptFile.
    """
    if condition is None or not may_have_indexes(file) or file.row_count > _ROWS_MAX:
        return None
    if not context.options.file_index_read_enabled:
        return None
    with file_indexes(context, file, path, embedded_only=embedded_only) as indexes:
        return None if indexes is None else IndexAnswers(context, indexes).of(condition)


@dataclass(frozen=True, slots=True)
class IndexAnswers:
    """Asks the indexes of one data file."""

    context: TableContext
    indexes: FileIndexes

    def of(self, condition: Predicate) -> Answer:
        return self._answer(condition, False)

    def _answer(self, condition: Predicate, negated: bool) -> Answer:
        match condition:
            case Not(inner=inner):
                return self._answer(inner, not negated)
            case And(parts=parts) | Or(parts=parts):
                return self._joined(parts, isinstance(condition, And) != negated, negated)
            case Compare():
                return self._compared(condition, negated)
            case IsIn():
                return self._contained(condition, negated)
            case IsNull(column=column):
                return self._asked(column, lambda index: index.is_not_null() if negated else index.is_null())
            case IsNan(column=column) if not negated:
                nan = pa.array([math.nan], self._arrow_type(column))
                return self._asked(column, lambda index: index.any_of(nan))
            case StartsWith() if not negated:
                return self._begun(condition)
        return None

    def _joined(self, parts: Iterable[Predicate], all_of_them: bool, negated: bool) -> Answer:
        if all_of_them:
            return _all(self._answer(part, negated) for part in parts)
        return reduce(either, (self._answer(part, negated) for part in parts))

    def _compared(self, condition: Compare, negated: bool) -> Answer:
        operator, scalar = condition.in_type_of_column(self.context.schema.arrow)
        kind = scalar.type
        is_float = pa.types.is_floating(kind)
        if negated:
            if is_float and operator not in ("==", "!="):
                return None  # a row with NaN fulfils it, whatever the operator
            operator = _NEGATED[operator]
        values = pa.repeat(scalar, 1)
        if is_float:
            plain = scalar.as_py()
            if math.isnan(plain):
                return None if operator == "!=" else BitMap()
            if plain == 0:
                values = _zeros(operator, kind)
        column = condition.column
        if is_cut_off_type(self._type(column)):
            operator = {"<": "<=", ">": ">=", "!=": ""}.get(operator, operator)
        match operator:
            case "==":
                return self._asked(column, lambda index: index.any_of(values))
            case "!=":
                return self._asked(column, lambda index: index.none_of(values))
            case "":
                return None
        return self._asked(column, lambda index: index.compare(operator, values))

    def _contained(self, condition: IsIn, negated: bool) -> Answer:
        values = condition.value_set(self.context.schema.arrow)
        if not negated:
            return self._asked(condition.column, lambda index: index.any_of(values)) if len(values) else BitMap()
        if not len(values) or is_cut_off_type(self._type(condition.column)):
            return None
        return self._asked(condition.column, lambda index: index.none_of(values))

    def _begun(self, condition: StartsWith) -> Answer:
        """As texts from the prefix up to the first one behind all that begin with it."""
        start = condition.prefix.encode()
        if not start:
            return self._asked(condition.column, lambda index: index.is_not_null())
        end = start[:-1] + bytes([start[-1] + 1])  # the last byte of a text is never 255

        def ask(index: ColumnIndex) -> Answer:
            least = index.compare(">=", pa.array([start], pa.binary()))
            return both(least, index.compare("<", pa.array([end], pa.binary())))

        return self._asked(condition.column, ask)

    def _asked(self, column: str, ask: Ask) -> Answer:
        with damage(self.indexes.path, "of column " + column):
            return _all(ask(index) for index in self.indexes.of_column(column))

    def _type(self, column: str) -> DataType:
        return self.context.schema.by_name[column].type

    def _arrow_type(self, column: str) -> pa.DataType:
        return self.context.schema.arrow.field(column).type


def is_cut_off_type(data_type: DataType) -> bool:
    return isinstance(data_type, AtomicType) and is_cut_off(data_type)


def _all(answers: Iterator[Answer]) -> Answer:
    """Asks no further once no row is left."""
    found: Answer = None
    for answer in answers:
        found = both(found, answer)
        if found is not None and not found:
            break
    return found


def _zeros(operator: str, kind: pa.DataType) -> pa.Array:
    """What an index is asked instead of a zero: both are one to the condition."""
    match operator:
        case "==" | "!=":
            return pa.array([0.0, -0.0], kind)
        case "<" | ">=":
            return pa.array([-0.0], kind)
        case _:
            return pa.array([0.0], kind)
