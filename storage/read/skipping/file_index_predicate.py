"""Evaluates a condition on the indexes of a data file: which of its rows may fulfil the condition.

An index compares floats as Java does: -0.0 is less than 0.0, and NaN is a value like others. A condition compares them
as IEEE 754 does. Where the two differ, more rows are selected, so that no matching row is missed.

Source: Java `fileindex/FileIndexPredicate.java`, `io/FileIndexEvaluator.java`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

import pyarrow as pa
from pyroaring import BitMap

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.file_index.column_index import Answer, ColumnIndex, and_answers, index_errors, or_answers
from tidelake.storage.files.file_index.index_settings import IndexedColumn, value_type
from tidelake.storage.files.file_index.indexed_values import is_cut_off
from tidelake.storage.files.file_indexes import FileIndexes, file_indexes, may_have_indexes
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import AtomicType, DataType
from tidelake.storage.read.predicate import (
    And,
    ArrowCondition,
    Compare,
    IsIn,
    IsNan,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    literal_prefix,
)

_ROWS_MAX: Final = 2**31 - 1  # positions of indexes have 32 bits
_NEGATED: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

ColumnCondition: TypeAlias = Compare | IsIn | IsNull | IsNan | StartsWith
Ask: TypeAlias = Callable[[ColumnIndex], Answer]
Evaluator: TypeAlias = Callable[[FileIndexes], Answer]
"""A prepared condition. Its values are converted once for all files."""


class FileIndexPredicate:
    """A condition that is evaluated on the indexes of data files.

    context: its schema is used for the read.
    """

    def __init__(self, context: TableContext, condition: Predicate | None) -> None:
        self.condition = condition
        self._context = context
        is_enabled = condition is not None and context.options.file_index_read_enabled
        self._evaluator = _Evaluators(context).of(condition) if is_enabled and condition is not None else None

    def selected_rows(self, file: DataFileMeta, path: str, *, embedded_only: bool = False) -> Answer:
        """Return the rows of a data file that may fulfil the condition; None if the indexes can't tell: read all rows.

        path: path of the data file.
        embedded_only: use only indexes in the file's metadata, and open no index file.
        Raises CorruptFile.
        """
        if self._evaluator is None or not may_have_indexes(file, embedded_only=embedded_only):
            return None
        if file.row_count > _ROWS_MAX:
            return None
        with file_indexes(self._context, file, path) as indexes:
            return None if indexes is None else self._evaluator(indexes)


@dataclass(frozen=True, slots=True)
class _Evaluators:
    """Prepares conditions. The evaluator is None for a condition that no index can evaluate."""

    context: TableContext

    def of(self, condition: Predicate, negated: bool = False) -> Evaluator | None:
        match condition:
            case Compare(path=path) | IsIn(path=path) | IsNull(path=path) | StartsWith(path=path) if path:
                return None  # no index is of a field in a ROW
            case Not(inner=inner):
                return self.of(inner, not negated)
            case And(parts=parts) | Or(parts=parts):
                evaluators = [self.of(part, negated) for part in parts]
                return _all_of(evaluators) if isinstance(condition, And) != negated else _one_of(evaluators)
            case Compare():
                return self._compared(condition, negated)
            case IsIn():
                return self._contained(condition, negated)
            case IsNull():
                return _column(condition, lambda index: index.is_not_null() if negated else index.is_null())
            case IsNan() if not negated and not condition.path:
                nan = pa.array([math.nan], condition.values_in(self.context.schema.arrow).type)
                return _column(condition, lambda index: index.any_of(nan))
            case StartsWith() if not negated:
                return self._starts_with(condition)
            case Like() if not negated and not condition.path and (prefix := literal_prefix(condition.pattern)):
                return self._starts_with(StartsWith(condition.column, prefix, key=condition.key))
            case ArrowCondition() if not negated and condition.implied is not None:
                return self.of(condition.implied)
        return None

    def _compared(self, condition: Compare, negated: bool) -> Evaluator | None:
        operator, scalar = condition.in_type_of_column(self.context.schema.arrow)
        kind = scalar.type
        is_float = pa.types.is_floating(kind)
        if negated:
            if is_float and operator not in ("==", "!="):
                return None  # a row with NaN fulfils the negated condition, whatever the operator is
            operator = _NEGATED[operator]
        values = pa.repeat(scalar, 1)
        if is_float:
            plain = scalar.as_py()
            if math.isnan(plain):
                return None if operator == "!=" else _no_row
            if plain == 0:
                values = _zeros(operator, kind)
        if self._is_cut_off(condition):
            operator = {"<": "<=", ">": ">=", "!=": ""}.get(operator, operator)
        match operator:
            case "==":
                return _column(condition, lambda index: index.any_of(values))
            case "!=":
                return _column(condition, lambda index: index.none_of(values))
            case "":
                return None
        return _column(condition, lambda index: index.compare(operator, values))

    def _contained(self, condition: IsIn, negated: bool) -> Evaluator | None:
        values = condition.value_set(self.context.schema.arrow)
        if not negated:
            return _column(condition, lambda index: index.any_of(values)) if len(values) else _no_row
        if not len(values) or self._is_cut_off(condition):
            return None
        return _column(condition, lambda index: index.none_of(values))

    def _starts_with(self, condition: StartsWith) -> Evaluator | None:
        """Select texts from the prefix up to the first text after all texts with this prefix."""
        start = condition.prefix.encode()
        if not start:
            return _column(condition, lambda index: index.is_not_null())
        end = start[:-1] + bytes([start[-1] + 1])  # the last byte of a text is never 255
        least, behind = (pa.array([text], pa.binary()) for text in (start, end))
        return _column(condition, lambda index: and_answers(index.compare(">=", least), index.compare("<", behind)))

    def _is_cut_off(self, condition: ColumnCondition) -> bool:
        data_type: DataType | None = self.context.schema.by_name[condition.column].type
        if condition.key is not None and data_type is not None:
            data_type = value_type(data_type)
        return isinstance(data_type, AtomicType) and is_cut_off(data_type)


def _column(condition: ColumnCondition, ask: Ask) -> Evaluator:
    indexed = IndexedColumn(condition.column, condition.key)

    def evaluator(indexes: FileIndexes) -> Answer:
        with index_errors(indexes.path, f"of column {indexed}"):
            return _all(ask(index) for index in indexes.of_column(indexed))

    return evaluator


def _no_row(_: FileIndexes) -> Answer:
    return BitMap()


def _all_of(evaluators: Sequence[Evaluator | None]) -> Evaluator | None:
    able = [evaluator for evaluator in evaluators if evaluator is not None]
    return (lambda indexes: _all(evaluator(indexes) for evaluator in able)) if able else None


def _one_of(evaluators: Sequence[Evaluator | None]) -> Evaluator | None:
    able = [evaluator for evaluator in evaluators if evaluator is not None]
    if len(able) < len(evaluators):
        return None
    return lambda indexes: reduce(or_answers, (evaluator(indexes) for evaluator in able))


def _all(answers: Iterator[Answer]) -> Answer:
    """Intersect the answers. It stops as soon as no row is left."""
    found: Answer = None
    for answer in answers:
        found = and_answers(found, answer)
        if found is not None and not found:
            break
    return found


def _zeros(operator: str, kind: pa.DataType) -> pa.Array:
    """Return what an index is asked for instead of zero: in a condition both zeros are equal."""
    match operator:
        case "==" | "!=":
            return pa.array([0.0, -0.0], kind)
        case "<" | ">=":
            return pa.array([-0.0], kind)
        case _:
            return pa.array([0.0], kind)
