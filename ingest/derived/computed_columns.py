"""Computed columns, such as `dt: date_format(created, yyyy-MM-dd)`. A whole column is evaluated at once.

Functions, names and arguments are Paimon's (`cdc/ComputedColumnUtils.java`, `cdc/Expression.java`). The result of null
is null. Paimon's `truncate` fails for a text that is shorter than the width; here the text is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.ingest.derived.temporal_functions import PARTS, check_temporal, formatter, times
from tidelake.storage.base import env
from tidelake.storage.model.types import (
    INT,
    INTEGER_ROOTS,
    STRING,
    STRING_ROOTS,
    AtomicType,
    DataType,
    Root,
    arrow_type,
    nullable,
    parse_type,
    timestamp,
)

_CALL: Final = re.compile(r"\s*(\w+)\s*\((.*?)\)\s*", re.DOTALL)
_TEXT_FUNCTIONS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "trim": pc.utf8_trim_whitespace,
}
_WITHOUT_COLUMN: Final = ("cast", "now")
FUNCTIONS: Final = (*PARTS, "date_format", "substring", "truncate", *_WITHOUT_COLUMN, *_TEXT_FUNCTIONS)
_PRINTED: Final = (*INTEGER_ROOTS, *STRING_ROOTS, Root.DECIMAL, Root.DATE, Root.BOOLEAN)


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that is computed from another one.

    type: type of the result, nullable.
    depends_on: the column that it is computed from; None if it needs no column.
    evaluate: returns values of `type`. The argument is that column, or any column of the wanted length. Raises
        ValueError for values that the function doesn't accept.
    """

    name: str
    type: DataType
    depends_on: str | None
    evaluate: Callable[[pa.Array], pa.Array]
    is_constant_in_time: bool = True


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    function: str
    arguments: tuple[str, ...]

    @property
    def column(self) -> str | None:
        return None if self.function in _WITHOUT_COLUMN else self.arguments[0]

    @property
    def where(self) -> str:
        return f"computed column {self.name}"


def computed_columns(expressions: Mapping[str, str], types: Mapping[str, DataType]) -> list[ComputedColumn]:
    """Return the computed columns of a table. Each comes after the columns that it is computed from.

    expressions: column to `function(argument, …)`.
    types: the types of the table's other columns.

    Raises BadInput, which names the column, for an expression that can't be evaluated, and for a circular dependency.
    """
    calls = {name: _parsed(name, text) for name, text in expressions.items()}
    known = dict(types)
    found: list[ComputedColumn] = []
    left = list(calls.values())
    while left:
        ready = [call for call in left if call.column is None or call.column in known]
        if not ready:
            raise _cycle_error(left, calls)
        for call in ready:
            column = _computed(call, known)
            known[call.name] = column.type
            found.append(column)
        left = [call for call in left if call not in ready]
    return found


def made_of(column: str, expressions: Mapping[str, str]) -> list[str]:
    """Return the computed columns whose expression names the column. Raises BadInput for a text that is no call."""
    return [name for name, text in expressions.items() if _parsed(name, text).column == column]


def with_lower_case_column(name: str, text: str) -> str:
    """Return the expression with the name of its column in lower case. Raises BadInput for a text that is no call."""
    call = _parsed(name, text)
    if call.column is None:
        return text
    return f"{call.function}({', '.join([call.column.lower(), *call.arguments[1:]])})"


def _cycle_error(left: Sequence[_Call], calls: Mapping[str, _Call]) -> BadInput:
    missing = [call for call in left if call.column not in calls]
    if missing:
        return BadInput(f"{missing[0].where}: the column {missing[0].column!r} does not exist")
    return BadInput(
        f"computed columns {', '.join(call.name for call in left)} depend on each other. Remove the circular dependency"
    )


def _parsed(name: str, text: str) -> _Call:
    match = _CALL.fullmatch(text)
    if match is None or match[1].lower() not in FUNCTIONS:
        raise BadInput(f"computed column {name}: {text!r} is not a call of one of the functions {', '.join(FUNCTIONS)}")
    function = match[1].lower()
    arguments = tuple(part.strip() for part in match[2].split(",")) if match[2].strip() else ()
    least, most = {"now": (0, 0), "cast": (1, 99), "substring": (2, 3), "truncate": (2, 2), "date_format": (2, 3)}.get(
        function, (1, 1) if function in _TEXT_FUNCTIONS else (1, 2)
    )
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise BadInput(f"computed column {name}: {function} takes {wanted} arguments, but has {len(arguments)}")
    return _Call(name, function, arguments)


def _computed(call: _Call, types: Mapping[str, DataType]) -> ComputedColumn:
    if call.function == "now":
        return ComputedColumn(call.name, timestamp(3), None, _now, is_constant_in_time=False)
    if call.function == "cast":
        return _constant(call)
    column = call.column
    assert column is not None
    column_type = nullable(types[column])
    if call.function in PARTS or call.function == "date_format":
        return _of_time(call, column, column_type)
    if call.function in _TEXT_FUNCTIONS:
        if column_type.root not in STRING_ROOTS:
            raise BadInput(f"{call.where}: {call.function} takes a string, but {column} is {column_type}")
        return ComputedColumn(call.name, STRING, column, _TEXT_FUNCTIONS[call.function])
    make = _substring if call.function == "substring" else _truncate
    return make(call, column, column_type)


def _of_time(call: _Call, column: str, column_type: DataType) -> ComputedColumn:
    is_format = call.function == "date_format"
    given = call.arguments[2 if is_format else 1 :]
    precision = _integer(call, given[0]) if given else None
    check_temporal(column_type, precision, call.where)
    if is_format:
        show = formatter(call.arguments[1], call.where)
        return ComputedColumn(call.name, STRING, column, lambda values: show(times(values, precision)))
    part = PARTS[call.function]
    return ComputedColumn(call.name, INT, column, lambda values: part(times(values, precision)).cast(pa.int32()))


def _substring(call: _Call, column: str, column_type: DataType) -> ComputedColumn:
    begin = _integer(call, call.arguments[1])
    end = _integer(call, call.arguments[2]) if len(call.arguments) > 2 else None
    if begin < 0 or (end is not None and end <= begin):
        raise BadInput(f"{call.where}: substring must begin at 0 or later, and end after its beginning")
    if column_type.root not in _PRINTED:
        raise BadInput(
            f"{call.where}: {column} is {column_type}, which has no unique text form. Use date_format of a time, or a "
            "column of texts or integers"
        )

    def evaluate(values: pa.Array) -> pa.Array:
        texts = values.cast(pa.string())
        shortest = pc.min(pc.utf8_length(texts)).as_py()
        if shortest is not None and shortest < (begin if end is None else end):
            raise ValueError(f"a string of {shortest} characters has no position {begin if end is None else end}")
        return pc.utf8_slice_codeunits(texts, begin, end)

    return ComputedColumn(call.name, STRING, column, evaluate)


def _truncate(call: _Call, column: str, column_type: DataType) -> ComputedColumn:
    width = _integer(call, call.arguments[1])
    if width <= 0:
        raise BadInput(f"{call.where}: the width of truncate must be a positive number, not {width}")
    evaluate: Callable[[pa.Array], pa.Array]
    if column_type.root in INTEGER_ROOTS:

        def evaluate(values: pa.Array) -> pa.Array:
            numbers = values.cast(pa.int64())
            return pc.subtract_checked(numbers, _floor_remainder(numbers, width)).cast(values.type)

    elif isinstance(column_type, AtomicType) and column_type.root is Root.DECIMAL:

        def evaluate(values: pa.Array) -> pa.Array:
            # The unscaled value is truncated: with scale 2 and width 50, 10.65 becomes 10.50.
            found = [None if v is None else v.scaleb(column_type.scale) // 1 for v in values.to_pylist()]
            cut = [None if v is None else (v - int(v) % width).scaleb(-column_type.scale) for v in found]
            return pa.array(cut, values.type)

    elif column_type.root in STRING_ROOTS:

        def evaluate(values: pa.Array) -> pa.Array:
            return pc.utf8_slice_codeunits(values, 0, width)

    else:
        raise BadInput(f"{call.where}: truncate takes an integer, a DECIMAL or a string, but {column} is {column_type}")
    return ComputedColumn(call.name, column_type, column, evaluate)


def _floor_remainder(numbers: pa.Array, width: int) -> pa.Array:
    remainder = pc.subtract(numbers, pc.multiply(pc.divide(numbers, width), width))
    return pc.if_else(pc.less(remainder, 0), pc.add(remainder, width), remainder)


def _constant(call: _Call) -> ComputedColumn:
    literal, type_text = call.arguments[0], ", ".join(call.arguments[1:])
    column_type = nullable(parse_type(type_text)) if type_text else STRING
    try:
        value = pa.array([literal], pa.string()).cast(arrow_type(column_type))[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadInput(f"{call.where}: {literal!r} is not a valid {column_type}: {error}") from None
    return ComputedColumn(call.name, column_type, None, lambda like: pa.repeat(value, len(like)))


def _now(like: pa.Array) -> pa.Array:
    now = env.local_now()
    return pa.repeat(pa.scalar(now, pa.timestamp("ms")), len(like))


def _integer(call: _Call, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{call.where}: {text!r} is not a whole number") from None
