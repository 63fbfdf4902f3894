"""Conditions on rows. Users write them; scans use them to skip files and to filter rows.

    col("amount") > 3        col("name").is_in(["a", "b"])        (col("a") == 1) & ~col("b").is_null()
    col("address.city") == "Bonn": compares a field of a ROW
    col("tags")["env"] == "prod": compares the value of one key of a MAP; it is null if a row lacks the key

As in SQL, a comparison with null is not true. Values are converted to the column's type: `col("day") >= "2024-05-01"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import check_text, shown
from tidelake.storage.files.stats_collection import Bounds, ColumnBounds
from tidelake.storage.read.column_values import ColumnValues, column_text, field_path

Maybe: TypeAlias = NDArray[np.bool_]  # for each file: may it hold a matching row?

_LISTED_MAX: Final = 100  # values of IN that are each compared with the bounds of files; of more, only the range
DEPTH_MAX: Final = 100  # of nested conditions; `a | b | c | …` and `~~a` count as one level, however long they are


class Predicate(Protocol):
    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that the condition reads."""
        ...

    def expression(self, schema: pa.Schema) -> pc.Expression:
        """Return the filter for rows of this schema.

        Raises BadInput for unknown columns and for values that don't fit a column.
        """
        ...

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        """Return which files may hold a matching row; None if the condition can't exclude any file."""
        ...

    def within(self, columns: frozenset[str]) -> Predicate | None:
        """Return the part of the condition that reads only these columns and that every matching row fulfils.

        Returns None if no such part exists.
        """
        ...


class _Combinable:
    def __and__(self, other: object) -> And:
        sides = (_combinable(self), _combinable(other))
        return And(tuple(part for side in sides for part in (side.parts if isinstance(side, And) else (side,))))

    def __or__(self, other: object) -> Or:
        sides = (_combinable(self), _combinable(other))
        return Or(tuple(part for side in sides for part in (side.parts if isinstance(side, Or) else (side,))))

    def __invert__(self) -> Predicate:
        return Not(_combinable(self))

    def __bool__(self) -> bool:
        raise BadInput(
            "a condition is neither true nor false: combine conditions with &, | and ~, not with and, or, not"
        )


_COMPARE: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True, slots=True)
class _ColumnPredicate(_Combinable):
    """A condition on one column.

    key: a key of a MAP with text keys, whose values are compared; None for the column itself.
    path: the fields of a ROW that lead to the compared values, from the outside to the inside; () for the column itself
    """

    column: str
    key: str | None = field(default=None, kw_only=True)
    path: tuple[str, ...] = field(default=(), kw_only=True)

    def values_in(self, schema: pa.Schema) -> ColumnValues:
        """Return the compared values. Raises BadInput if the column does not exist or is no such map."""
        return ColumnValues.of(self.column, self.key, schema, self.path)

    @property
    def is_of_part(self) -> bool:
        """Whether it compares a part of the column's values, of which files have no statistics."""
        return self.key is not None or bool(self.path)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset([self.column])

    def within(self, columns: frozenset[str]) -> Predicate | None:
        return _combinable(self) if self.column in columns else None


@dataclass(frozen=True, slots=True)
class Compare(_ColumnPredicate):
    """`column operator value`; value is not None."""

    operator: str
    value: Any

    def in_type_of_column(self, schema: pa.Schema) -> tuple[str, pa.Scalar]:
        """Return (operator, value of the column's type) with the same meaning."""
        return self.values_in(schema).comparable(self.operator, self.value)

    def expression(self, schema: pa.Schema) -> pc.Expression:
        operator, value = self.in_type_of_column(schema)
        return _COMPARE[operator](self.values_in(schema).expression, pc.scalar(value))

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        operator, value = self.in_type_of_column(schema)
        known = bounds(self.column)
        if self.is_of_part:
            return ~_all_null(known)
        match operator:
            case "!=":
                return None  # floating-point bounds ignore NaN, and NaN != x is true
            case "==":
                fits = pc.and_kleene(pc.less_equal(known.minimum, value), pc.greater_equal(known.maximum, value))
            case "<" | "<=":
                fits = (pc.less if operator == "<" else pc.less_equal)(known.minimum, value)
            case _:
                fits = (pc.greater if operator == ">" else pc.greater_equal)(known.maximum, value)
        return _null_as_true(fits) & ~_all_null(known)


@dataclass(frozen=True, slots=True)
class IsIn(_ColumnPredicate):
    """`column` is one of `values`. With a null in `values` it is true or null, never false, as in SQL and in Java.

    values: many of them are an Arrow array, best of the column's type: then there is no object for each value
    """

    values: tuple[Any, ...] | pa.Array

    def value_set(self, schema: pa.Schema) -> pa.Array:
        """Return the values under the rules of `==`: 0.0 matches both zeros, NaN matches nothing."""
        own = self.values_in(schema)
        kind = own.type
        if isinstance(self.values, pa.Array) and self.values.type == kind and not pa.types.is_nested(kind):
            values = self.values.drop_null()
        else:
            given = [own.comparable("==", v) for v in self.values if not _is_null(v)]
            # no row equals a value with another operator
            values = pa.array([value for operator, value in given if operator == "=="], kind)
        if not pa.types.is_floating(kind):
            return values
        zeros = pa.array([0.0, -0.0] if pc.any(pc.equal(values, 0.0)).as_py() else [], kind)
        return pa.concat_arrays([values.filter(pc.invert(pc.is_nan(values))), zeros])

    def expression(self, schema: pa.Schema) -> pc.Expression:
        own = self.values_in(schema).expression
        is_one = own.isin(self.value_set(schema))
        is_known = is_one if self._has_null else own.is_valid()
        return pc.if_else(is_known, is_one, pa.scalar(None, pa.bool_()))  # with `isin` alone, ~ would match null

    @property
    def _has_null(self) -> bool:
        values = self.values
        return values.null_count > 0 if isinstance(values, pa.Array) else any(map(_is_null, values))

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        known = bounds(self.column)
        values = self.value_set(schema)
        if not len(values):
            return np.zeros(len(known.row_count), np.bool_)
        if self.is_of_part:
            return ~_all_null(known)
        if len(values) > _LISTED_MAX:
            span = pc.min_max(values)
            spans = [(span["min"], span["max"])]
        else:
            spans = [(value, value) for value in values]
        inside = reduce(
            pc.or_kleene,
            [
                pc.and_kleene(pc.less_equal(known.minimum, high), pc.greater_equal(known.maximum, low))
                for low, high in spans
            ],
        )
        return _null_as_true(inside) & ~_all_null(known)


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


@dataclass(frozen=True, slots=True)
class StartsWith(_ColumnPredicate):
    """A string column begins with `prefix`."""

    prefix: str

    def expression(self, schema: pa.Schema) -> pc.Expression:
        own = self.values_in(schema)
        if not pa.types.is_string(own.type):
            raise BadInput(f"starts_with needs a string column, but {own.name!r} is not one")
        return pc.starts_with(own.expression, self.prefix)

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        known = bounds(self.column)
        if self.is_of_part:
            return ~_all_null(known)
        if not pa.types.is_string(known.minimum.type):
            return None
        after_start = pc.greater_equal(known.maximum, self.prefix)
        head = pc.binary_slice(known.minimum.cast(pa.binary()), 0, len(self.prefix.encode()))
        before_end = pc.less_equal(head, self.prefix.encode())
        return _null_as_true(pc.and_kleene(after_start, before_end)) & ~_all_null(known)


@dataclass(frozen=True, slots=True)
class Like(_ColumnPredicate):
    """A string column matches `pattern` as a whole.

    % is any text, _ any one character. A backslash before %, _ or a backslash takes it literally.
    """

    pattern: str

    def expression(self, schema: pa.Schema) -> pc.Expression:
        own = self.values_in(schema)
        if not pa.types.is_string(own.type):
            raise BadInput(f"like needs a string column, but {own.name!r} is not one")
        return _like(own.expression, self.pattern)

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        prefix = literal_prefix(self.pattern)
        start = StartsWith(self.column, prefix, key=self.key, path=self.path)
        return start.may_match(bounds, schema)


def _like(text: pc.Expression, pattern: str) -> pc.Expression:
    """Return whether a text matches. Arrow's `match_like` takes some escaped backslashes for others."""
    end = literal_prefix(pattern[1:])
    if pattern == f"%{like_literal(end)}":
        return pc.ends_with(text, end)
    if pattern == f"%{like_literal(end)}%":
        return pc.match_substring(text, end)
    parts = {"%": ".*", "_": "."}
    tokens = re.findall(r"\\[%_\\]|.", pattern, re.DOTALL)
    return pc.match_substring_regex(
        text, f"(?s)\\A{''.join(parts[one] if one in parts else re.escape(one[-1]) for one in tokens)}\\z"
    )


def literal_prefix(pattern: str) -> str:
    """Return the text with which each match of a LIKE pattern begins."""
    found = re.match(r"(?:\\[%_\\]|[^%_])*", pattern)
    return re.sub(r"\\([%_\\])", r"\1", found[0] if found else "")


def like_literal(text: str) -> str:
    """Return a LIKE pattern that matches this text only."""
    return re.sub(r"[%_\\]", r"\\\g<0>", text)


@dataclass(frozen=True, slots=True)
class IsNull(_ColumnPredicate):
    def expression(self, schema: pa.Schema) -> pc.Expression:
        return self.values_in(schema).expression.is_null()

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        if self.is_of_part:
            return None  # a map that is not null may lack the key
        return _null_as_true(pc.greater(bounds(self.column).null_count, 0))


@dataclass(frozen=True, slots=True)
class IsNan(_ColumnPredicate):
    """A floating-point column is NaN, which no comparison can test. Null if the column is null."""

    def expression(self, schema: pa.Schema) -> pc.Expression:
        own = self.values_in(schema)
        if not pa.types.is_floating(own.type):
            raise BadInput(f"is_nan needs a FLOAT or DOUBLE column, but {own.name!r} is not one")
        return pc.is_nan(own.expression)

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        return None  # bounds ignore NaN


@dataclass(frozen=True, slots=True)
class Not(_Combinable):
    inner: Predicate

    @property
    def columns(self) -> frozenset[str]:
        return self.inner.columns

    def expression(self, schema: pa.Schema) -> pc.Expression:
        return ~self.inner.expression(schema)

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        if isinstance(self.inner, IsNull):  # also of a part: it is null if the column is
            return ~_all_null(bounds(self.inner.column))
        return None

    def within(self, columns: frozenset[str]) -> Predicate | None:
        return self if self.columns <= columns else None

    def __invert__(self) -> Predicate:
        return self.inner


@dataclass(frozen=True, slots=True)
class And(_Combinable):
    parts: tuple[Predicate, ...]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns for part in self.parts))

    def expression(self, schema: pa.Schema) -> pc.Expression:
        return _joined(and_, [part.expression(schema) for part in self.parts])

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        answers = [maybe for part in self.parts if (maybe := part.may_match(bounds, schema)) is not None]
        return np.logical_and.reduce(answers) if answers else None

    def within(self, columns: frozenset[str]) -> Predicate | None:
        kept = tuple(inner for part in self.parts if (inner := part.within(columns)) is not None)
        return kept[0] if len(kept) == 1 else And(kept) if kept else None


@dataclass(frozen=True, slots=True)
class Or(_Combinable):
    parts: tuple[Predicate, ...]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns for part in self.parts))

    def expression(self, schema: pa.Schema) -> pc.Expression:
        return _joined(or_, [part.expression(schema) for part in self.parts])

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        answers = [part.may_match(bounds, schema) for part in self.parts]
        known = [maybe for maybe in answers if maybe is not None]
        return np.logical_or.reduce(known) if len(known) == len(answers) else None

    def within(self, columns: frozenset[str]) -> Predicate | None:
        kept = [part.within(columns) for part in self.parts]
        return Or(tuple(part for part in kept if part is not None)) if None not in kept else None


@dataclass(frozen=True, slots=True)
class ArrowCondition(_Combinable):
    """A `pyarrow.compute` expression, which filters rows.

    implied: a condition that each matching row fulfils, which can skip files; None if nothing is known
    """

    condition: pc.Expression
    columns: frozenset[str]
    implied: Predicate | None = None

    def expression(self, schema: pa.Schema) -> pc.Expression:
        return self.condition

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> Maybe | None:
        return None if self.implied is None else self.implied.may_match(bounds, schema)

    def within(self, columns: frozenset[str]) -> Predicate | None:
        if self.columns <= columns:
            return self
        return None if self.implied is None else self.implied.within(columns)


class Column:
    """A column, for comparisons: `col("a") > 3`.

    Of a MAP with text keys, `col("m")["k"]` is one key's value. Of a ROW, `col("address.city")` is a field.
    """

    __hash__ = None  # type: ignore[assignment]
    __iter__ = None  # without this, `in` and `for` would call __getitem__ forever

    def __init__(self, name: str, key: str | None = None) -> None:
        self._name = name
        self._key = key

    def __getitem__(self, key: str) -> Column:
        if self._key is not None:
            raise BadInput(f"{self}[{shown(key)}]: a key of a map within a map can't be named; use pyarrow.compute")
        return Column(self._name, check_text(f"the key of {self._name}[…]", key))

    def __str__(self) -> str:
        return column_text(self._name, self._key)

    def __eq__(self, value: object) -> Compare | IsNull:  # type: ignore[override]
        return self.is_null() if value is None else self._compare("==", value)

    def __ne__(self, value: object) -> Compare | Not:  # type: ignore[override]
        return self.is_not_null() if value is None else self._compare("!=", value)

    def __lt__(self, value: Any) -> Compare:
        return self._compare("<", value)

    def __le__(self, value: Any) -> Compare:
        return self._compare("<=", value)

    def __gt__(self, value: Any) -> Compare:
        return self._compare(">", value)

    def __ge__(self, value: Any) -> Compare:
        return self._compare(">=", value)

    def is_in(self, values: Iterable[Any]) -> IsIn:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise BadInput(f"{self}.is_in takes a list of values, not {shown(values)}; for one value write ==")
        return IsIn(self._name, values if isinstance(values, pa.Array) else tuple(values), key=self._key)

    def is_nan(self) -> IsNan:
        return IsNan(self._name, key=self._key)

    def is_null(self) -> IsNull:
        return IsNull(self._name, key=self._key)

    def is_not_null(self) -> Not:
        return Not(self.is_null())

    def starts_with(self, prefix: str) -> StartsWith:
        check_text(f"the prefix of {self}.starts_with", prefix)
        return StartsWith(self._name, prefix, key=self._key)

    def ends_with(self, suffix: str) -> Like:
        return self.like("%" + like_literal(check_text(f"the suffix of {self}.ends_with", suffix)))

    def contains(self, text: str) -> Like:
        """Return whether a string column contains this text anywhere."""
        return self.like(f"%{like_literal(check_text(f'the text of {self}.contains', text))}%")

    def like(self, pattern: str) -> Like:
        r"""Return whether a string column matches this pattern as a whole: % is any text, _ any one character.

        A backslash before %, _ or a backslash takes it literally: `10\%`.
        """
        return Like(self._name, check_text(f"the pattern of {self}.like", pattern), key=self._key)

    def between(self, low: Any, high: Any) -> And:
        """Return whether the column is one of the values from low to high, both included."""
        return And((self >= low, self <= high))

    def _compare(self, operator: str, value: Any) -> Compare:
        if value is None:
            raise BadInput(f"{self} {operator} None is never true; use is_null() or is_not_null()")
        return Compare(self._name, operator, value, key=self._key)


def col(name: str) -> Column:
    """Return a column of the table, for use in conditions."""
    return Column(check_text("the column of col()", name))


def is_predicate(given: object) -> TypeGuard[Predicate]:
    """Return whether this is a condition made with `col`, or one that `as_predicate` returned."""
    return isinstance(given, _Combinable)


def _combinable(given: object) -> Predicate:
    if is_predicate(given):
        return given
    if isinstance(given, pc.Expression):
        raise BadInput("a pyarrow expression can't be combined with conditions of col(); write both in one style")
    raise BadInput(f"a filter is made with tidelake.col or pyarrow.compute.field, not {type(given).__name__}")


def resolved(condition: Predicate, schema: pa.Schema) -> Predicate:
    """Return the condition with its dotted names, such as `address.city`, as fields of the schema's columns.

    A name that is a column stays one. Call it after `check_depth`: it is recursive.
    """
    match condition:
        case Not(inner=inner):
            return Not(resolved(inner, schema))
        case And(parts=parts):
            return And(tuple(resolved(part, schema) for part in parts))
        case Or(parts=parts):
            return Or(tuple(resolved(part, schema) for part in parts))
        case _ColumnPredicate(column=column) if "." in column and schema.get_field_index(column) < 0:
            found = field_path(column, schema)
            if found is not None:
                return replace(condition, column=found[0], path=(*found[1:], *condition.path))
    return condition


def check_depth(condition: Predicate) -> None:
    """Raise BadInput if conditions are nested too deeply. Python and Arrow process them recursively."""
    layer: list[Predicate] = [condition]
    for _ in range(DEPTH_MAX):
        inner: list[Predicate] = []
        for one in layer:
            if isinstance(one, And | Or):
                inner += one.parts
            elif isinstance(one, Not):
                inner.append(one.inner)
        if not inner:
            return
        layer = inner
    raise BadInput(f"the filter is nested more than {DEPTH_MAX} deep; use fewer brackets")


def _joined(
    operator: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: Sequence[pc.Expression]
) -> pc.Expression:
    """Join the parts to a balanced tree. Arrow works recursively, so a chain of thousands would crash the process."""
    while len(parts) > 1:
        pairs = [operator(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def _null_as_true(truth: pa.Array) -> Maybe:
    """Return the truth values; null becomes true."""
    maybe: Maybe = pc.fill_null(truth, True).to_numpy(zero_copy_only=False)
    return maybe


def _all_null(known: ColumnBounds) -> Maybe:
    maybe: Maybe = pc.fill_null(pc.equal(known.null_count, known.row_count), False).to_numpy(zero_copy_only=False)
    return maybe
