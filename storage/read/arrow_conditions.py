"""Turns `pyarrow.compute` expressions into conditions that can skip files.

DuckDB, Polars and other engines push their filters down as such expressions. Arrow filters rows by one, but does not
say what it is made of. Its serialized form does: a batch of one row with a column for each literal, and metadata that
lists the nodes from the outside to the inside.

    call: and_kleene, call: greater, field_ref: amount, literal: 0, end: greater, …, end: and_kleene

Anything that is not understood only filters rows.

Source: Arrow `cpp/src/arrow/compute/expression.cc`, `Serialize`.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.read.arrow_expressions import columns_read
from tidelake.storage.read.predicate import And, ArrowCondition, Not, Or, Predicate, check_depth, col

_NODES_MAX: Final = 1000  # a longer expression only filters rows: it is understood by recursion

_COMPARISONS: Final[dict[str, tuple[str, str]]] = {  # Arrow's name -> operator, operator if the column is on the right
    "equal": ("==", "=="),
    "not_equal": ("!=", "!="),
    "less": ("<", ">"),
    "less_equal": ("<=", ">="),
    "greater": (">", "<"),
    "greater_equal": (">=", "<="),
}


def arrow_predicate(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    """Return the condition of an expression on rows of this schema.

    Raises BadInput if the expression is not a condition on such rows.
    """
    columns = columns_read(expression, schema)
    tree = _tree(expression)
    exact = None if tree is None else _exact(tree, schema)
    if exact is not None:
        return exact
    parts = [] if tree is None else [_implied(one, schema) for one in _conjuncts(tree)]
    known = [part for part in parts if part is not None]
    return ArrowCondition(expression, columns, And(tuple(known)) if known else None)


# ---------------------------------------------------------------- the tree of an expression


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function.

    options: its options as a dict; None if it has none
    """

    function: str
    arguments: tuple[_Node, ...]
    options: Any = None


@dataclass(frozen=True, slots=True)
class _Field:
    name: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A field within a column. No condition is made of it: Arrow and `col` may differ below a null."""

    path: tuple[str, ...]


_Node: TypeAlias = _Call | _Field | _Part | pa.Scalar


class _UnknownFormError(Exception):
    pass


def _tree(expression: pc.Expression) -> _Node | None:
    """Return what the expression is made of; None if its form is not known."""
    with suppress(_UnknownFormError, pa.ArrowException, LookupError, ValueError, UnicodeDecodeError):
        _, (data,) = expression.__reduce__()
        rows = pa.ipc.open_file(data).get_batch(0)
        nodes = deque(_metadata(rows.schema))
        if len(nodes) <= _NODES_MAX:
            return _parsed(nodes, rows)
    return None


def _parsed(nodes: deque[tuple[str, str]], rows: pa.RecordBatch) -> _Node:
    """Take the next node, with all that belongs to it."""
    kind, value = nodes.popleft()
    match kind:
        case "literal":
            return rows.column(int(value))[0]
        case "field_ref":
            return _Field(value)
        case "nested_field_ref":
            return _Part(tuple(nodes.popleft()[1] for _ in range(int(value))))
        case "call":
            arguments: list[_Node] = []
            options = None
            while nodes[0][0] != "end":
                if nodes[0][0] == "options":
                    options = rows.column(int(nodes.popleft()[1]))[0].as_py()
                else:
                    arguments.append(_parsed(nodes, rows))
            nodes.popleft()
            return _Call(value, tuple(arguments), options)
    raise _UnknownFormError(kind)


class _CSchema(ctypes.Structure):
    """The C struct of a schema. pyarrow returns metadata as a dict, which loses all but one of equal keys."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield keys and values in their order. Source: Arrow's C data interface, `ArrowSchema.metadata`."""
    exported = _CSchema()
    schema._export_to_c(ctypes.addressof(exported))
    try:
        found = _pairs(exported.metadata) if exported.metadata else []
    finally:
        pa.Schema._import_from_c(ctypes.addressof(exported))  # takes it back, and frees it
    yield from found


def _pairs(address: int) -> list[tuple[str, str]]:
    at = address

    def number() -> int:
        nonlocal at
        at += 4
        return int(ctypes.c_int32.from_address(at - 4).value)

    def text() -> str:
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size).decode()

    return [(text(), text()) for _ in range(number())]


# ---------------------------------------------------------------- conditions of a tree


def _conjuncts(tree: _Node) -> list[_Node]:
    if isinstance(tree, _Call) and tree.function == "and_kleene":
        return [part for argument in tree.arguments for part in _conjuncts(argument)]
    return [tree]


def _exact(tree: _Node, schema: pa.Schema) -> Predicate | None:
    """Return a condition that is true, false or null for the same rows; None if there is none."""
    try:
        found = _condition(tree, schema)
        if found is not None:
            check_depth(found)
            found.expression(schema)  # raises if a value does not fit its column
    except BadInput:
        return None
    return found


def _condition(tree: _Node, schema: pa.Schema) -> Predicate | None:
    if not isinstance(tree, _Call):
        return None
    match tree.function, tree.arguments:
        case "and_kleene" | "or_kleene", arguments:
            parts = [_condition(argument, schema) for argument in arguments]
            join: Callable[[tuple[Predicate, ...]], Predicate] = And if tree.function == "and_kleene" else Or
            return None if None in parts else join(tuple(_flattened(parts, join)))
        case "invert", (inner,):
            negated = _condition(inner, schema)
            return None if negated is None else Not(negated)
        case "is_valid", (_Field(name),):
            return col(name).is_not_null()
        case "is_null", (_Field(name),) if not (tree.options or {}).get("nan_is_null"):
            return col(name).is_null()
        case "starts_with", (_Field(name),) if tree.options and not tree.options["ignore_case"]:
            prefix = tree.options["pattern"]
            return col(name).starts_with(prefix if isinstance(prefix, str) else prefix.decode())
        case "if_else", (
            _Call("is_valid", (_Field(name),)),
            _Call("is_in", (_Field(same),)) as test,
            pa.Scalar() as no,
        ):
            # DuckDB's form of IN: null for a null, where `is_in` is false
            return _is_in(test, schema) if name == same and not no.is_valid else None
        case function, (_Field(name), pa.Scalar() as value) if function in _COMPARISONS:
            return _comparison(name, _COMPARISONS[function][0], value, schema)
        case function, (pa.Scalar() as value, _Field(name)) if function in _COMPARISONS:
            return _comparison(name, _COMPARISONS[function][1], value, schema)
    return None


def _implied(tree: _Node, schema: pa.Schema) -> Predicate | None:
    """Return a condition that is true for the same rows, but may be null where the expression is false."""
    exact = _exact(tree, schema)
    if exact is None and isinstance(tree, _Call) and tree.function == "is_in":
        return _is_in(tree, schema)
    return exact


def _flattened(parts: Sequence[Predicate | None], join: Any) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, join):
            yield from part.parts
        elif part is not None:
            yield part


def _comparison(name: str, operator: str, value: pa.Scalar, schema: pa.Schema) -> Predicate | None:
    """Return the comparison, unless Arrow would compare the values in another type than `col` does."""
    if not value.is_valid or not _is_comparable(schema.field(name).type, value.type):
        return None
    return col(name)._compare(operator, value)


def _is_comparable(column: pa.DataType, value: pa.DataType) -> bool:
    if pa.types.is_integer(column):
        return bool(pa.types.is_integer(value))
    return bool(column == value or (pa.types.is_string(column) and pa.types.is_large_string(value)))


def _is_in(test: _Call, schema: pa.Schema) -> Predicate | None:
    (of,) = test.arguments
    values = (test.options or {}).get("value_set")
    if not isinstance(of, _Field) or not isinstance(values, list) or None in values:
        return None
    kind = schema.field(of.name).type
    is_exact = (
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)  # Arrow would cast every number but 0 to true; `col` refuses it
    )
    return col(of.name).is_in(values) if is_exact else None
