"""The aggregate functions, one row each, and the functions and options of a table's columns.

Source: Java `mergetree/compact/aggregate/factory/*.java`, `AggregateMergeFunction.getAggFuncName`, `CoreOptions.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from tidelake.errors import BadInput
from tidelake.storage.merge.aggregators.aggregator import Aggregator, IgnoreRetract, RowByRow, WithoutRetract
from tidelake.storage.merge.aggregators.collect import Collect
from tidelake.storage.merge.aggregators.first_last import (
    FirstNonNullValue,
    FirstValue,
    LastNonNullValue,
    LastValue,
    PrimaryKey,
)
from tidelake.storage.merge.aggregators.listagg import ListAgg
from tidelake.storage.merge.aggregators.merge_map import MergeMap, MergeMapWithKeyTime
from tidelake.storage.merge.aggregators.min_max import MinMaxAggregator
from tidelake.storage.merge.aggregators.nested_update import NestedPartialUpdate, NestedUpdate
from tidelake.storage.merge.aggregators.product import Product
from tidelake.storage.merge.aggregators.sketches import SketchUnion, UnionAccumulator, UnionAggregator
from tidelake.storage.merge.aggregators.sum import Sum
from tidelake.storage.merge.column_aggregation import ColumnAggregation, NullKeys, inner_row
from tidelake.storage.merge.values.roaring32 import RoaringUnion32
from tidelake.storage.merge.values.roaring64 import RoaringUnion64
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import MergeEngine, TableOptions
from tidelake.storage.model.options.values import parse_int
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    CONSTRUCTED_ROOTS,
    INTEGER_ROOTS,
    STRING,
    STRING_ROOTS,
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    nullable,
)

DEFAULT_FUNCTION_OPTION: Final = "fields.default-aggregate-function"
_PREFIX: Final = "fields."
_SUFFIX: Final = ".aggregate-function"
_NUMBERS: Final = frozenset({*INTEGER_ROOTS, Root.DECIMAL, Root.FLOAT, Root.DOUBLE})
_UNORDERED_ROOTS: Final = frozenset({*CONSTRUCTED_ROOTS, Root.VARIANT, Root.BLOB})


class Accepted(NamedTuple):
    """The column types that a function accepts. words: describes them in error messages."""

    words: str
    fits: Callable[[DataType], bool]


class Retracts(Enum):
    """What a -D or -U does to the accumulator."""

    REFUSED = auto()  # such rows raise BadInput
    TAKEN_BACK = auto()  # the accumulator without the row's value, or unchanged
    EMPTY = auto()  # null, as no older value is kept


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function.

    name: the value of option `fields.<column>.aggregate-function`.
    accepts: the types of its columns.
    order_free: whether the result doesn't depend on the order of the rows.
    retracts: what -D and -U do.
    make: makes the function of a column.
    keeps_retracts: whether a retract that is merged with newer rows first has the same effect on an older row later.
    options: the options `fields.<column>.*` that name fields of the rows in the column.
    """

    name: str
    accepts: Accepted
    order_free: bool
    retracts: Retracts
    make: Callable[[ColumnAggregation], Aggregator]
    options: tuple[str, ...] = ()
    keeps_retracts: bool = False


_ANY: Final = Accepted("any type", lambda _: True)
_NUMBER: Final = Accepted("numbers", lambda kind: kind.root in _NUMBERS)
_ORDERED: Final = Accepted(
    "types with an order, none that holds others", lambda kind: kind.root not in _UNORDERED_ROOTS
)
_BOOLEAN: Final = Accepted("BOOLEAN", lambda kind: kind.root is Root.BOOLEAN)
_TEXT: Final = Accepted("STRING, without a length", lambda kind: nullable(kind) == STRING)
_ARRAY: Final = Accepted("ARRAY", lambda kind: isinstance(kind, ArrayType))
_MAP: Final = Accepted("MAP", lambda kind: isinstance(kind, MapType))
_MAP_TO_ROW: Final = Accepted(
    "MAP to a ROW of two fields or more", lambda kind: isinstance(kind, MapType) and len(inner_row(kind)) >= 2
)
_NESTED_ROWS: Final = Accepted(
    "ARRAY<ROW<...>>", lambda kind: isinstance(kind, ArrayType) and isinstance(kind.element, RowType)
)
_OCTETS: Final = Accepted("BYTES or VARBINARY(n)", lambda kind: kind.root is Root.VARBINARY)

_REFUSED: Final = Retracts.REFUSED
_TAKEN_BACK: Final = Retracts.TAKEN_BACK
_NESTED_OPTIONS: Final = ("nested-key", "nested-sequence-field")

_LAST_VALUE: Final = "last_value"
LAST_NON_NULL_VALUE: Final = "last_non_null_value"
_NESTED_PARTIAL_UPDATE: Final = "nested_partial_update"
_PRIMARY_KEY: Final = "primary-key"


def _union_of(make: Callable[[bytes], UnionAccumulator]) -> Callable[[ColumnAggregation], Aggregator]:
    return lambda column: RowByRow(UnionAggregator(column, make))


# name, accepts, order_free, retracts, make
_FUNCTIONS: Final = (
    AggregateFunction("sum", _NUMBER, True, _TAKEN_BACK, Sum, keeps_retracts=True),  # as negative values
    AggregateFunction("product", _NUMBER, False, _TAKEN_BACK, Product),  # retracts by division: the order counts
    AggregateFunction("max", _ORDERED, True, _REFUSED, lambda _: MinMaxAggregator(greatest=True)),
    AggregateFunction("min", _ORDERED, True, _REFUSED, lambda _: MinMaxAggregator(greatest=False)),
    AggregateFunction(_LAST_VALUE, _ANY, False, Retracts.EMPTY, lambda _: LastValue(), keeps_retracts=True),
    AggregateFunction(LAST_NON_NULL_VALUE, _ANY, False, Retracts.EMPTY, lambda _: LastNonNullValue()),
    AggregateFunction("first_value", _ANY, False, _REFUSED, lambda _: FirstValue()),
    AggregateFunction("first_non_null_value", _ANY, False, _REFUSED, lambda _: FirstNonNullValue()),
    AggregateFunction("bool_and", _BOOLEAN, True, _REFUSED, lambda _: MinMaxAggregator(greatest=False)),
    AggregateFunction("bool_or", _BOOLEAN, True, _REFUSED, lambda _: MinMaxAggregator(greatest=True)),
    AggregateFunction("listagg", _TEXT, False, _REFUSED, lambda column: RowByRow(ListAgg(column))),
    AggregateFunction("collect", _ARRAY, False, _TAKEN_BACK, lambda column: RowByRow(Collect(column))),
    AggregateFunction("merge_map", _MAP, False, _TAKEN_BACK, lambda _: RowByRow(MergeMap())),
    AggregateFunction(
        "merge_map_with_keytime",
        _MAP_TO_ROW,
        False,
        _REFUSED,
        lambda column: RowByRow(MergeMapWithKeyTime(column)),
        ("ts-field",),
    ),
    AggregateFunction(
        "nested_update",
        _NESTED_ROWS,
        False,
        _TAKEN_BACK,
        lambda column: RowByRow(NestedUpdate(column)),
        _NESTED_OPTIONS,
    ),
    AggregateFunction(
        _NESTED_PARTIAL_UPDATE,
        _NESTED_ROWS,
        False,
        _REFUSED,
        lambda column: RowByRow(NestedPartialUpdate(column)),
        _NESTED_OPTIONS,
    ),
    AggregateFunction("theta_sketch", _OCTETS, True, _REFUSED, _union_of(SketchUnion.of_theta)),
    AggregateFunction("hll_sketch", _OCTETS, True, _REFUSED, _union_of(SketchUnion.of_hll)),
    AggregateFunction("rbm32", _OCTETS, True, _REFUSED, _union_of(RoaringUnion32.of)),
    AggregateFunction("rbm64", _OCTETS, True, _REFUSED, _union_of(RoaringUnion64.of)),
    AggregateFunction(_PRIMARY_KEY, _ANY, True, _TAKEN_BACK, lambda _: PrimaryKey(), keeps_retracts=True),
)
AGGREGATE_FUNCTIONS: Final[Mapping[str, AggregateFunction]] = {function.name: function for function in _FUNCTIONS}
_ALIASES: Final = {"first_not_null_value": "first_non_null_value"}


def aggregator_of(aggregation: ColumnAggregation) -> Aggregator:
    """Return the aggregate function of a column."""
    function = AGGREGATE_FUNCTIONS[aggregation.function]
    made = function.make(aggregation)
    if aggregation.ignore_retract:
        return IgnoreRetract(made)
    return WithoutRetract(made, aggregation) if function.retracts is Retracts.REFUSED else made


def is_emptied_by_retracts(aggregation: ColumnAggregation) -> bool:
    """Return whether a -D or -U sets the column to null."""
    return AGGREGATE_FUNCTIONS[aggregation.function].retracts is Retracts.EMPTY and not aggregation.ignore_retract


def keeps_retracts(aggregation: ColumnAggregation) -> bool:
    """Return whether the rows of a key can be merged before the older row that one of them retracts is known."""
    function = AGGREGATE_FUNCTIONS[aggregation.function]
    return function.keeps_retracts or function.retracts is Retracts.REFUSED or aggregation.ignore_retract


# ---------------------------------------------------------------- functions of a table


def function_name(column: str, options: Mapping[str, str], keys: Collection[str], sequences: Collection[str]) -> str:
    """Return the name of the function that merge-engine = aggregation uses for a column.

    keys: the columns of the primary key.
    sequences: the columns of `sequence.field`.
    """
    if column in sequences:
        return _LAST_VALUE
    if column in keys:
        return _PRIMARY_KEY
    chosen = options.get(f"{_PREFIX}{column}{_SUFFIX}", options.get(DEFAULT_FUNCTION_OPTION))
    return LAST_NON_NULL_VALUE if chosen is None else chosen


def column_aggregation(name: str, field: DataField, options: TableOptions) -> ColumnAggregation:
    """Return the aggregation of a column.

    name: the function's name, as given in an option.

    Raises BadInput if no such function exists, or if the column's type or the options don't fit the function.
    """
    function = _function(name, field.name)
    given = _ColumnOptions(field, function, options)
    if not function.accepts.fits(field.type):
        raise BadInput(
            f"column {field.name!r} {field.type}: aggregate function {function.name} takes {function.accepts.words}; "
            "choose another function, or another type"
        )
    ignore_retract = given.boolean("ignore-retract")
    if ignore_retract and options.aggregation_removes_on_delete:
        raise BadInput(
            f"options fields.{field.name}.ignore-retract and aggregation.remove-record-on-delete are both true: a "
            "delete can't be both ignored and used to remove the row; unset one of them"
        )
    nested_key = given.nested_fields("nested-key")
    if function.name == _NESTED_PARTIAL_UPDATE and not nested_key:
        raise BadInput(
            f"column {field.name!r}: {function.name} finds nested rows by their key; set fields.{field.name}.nested-key"
        )
    for dependent in ("nested-key-null-strategy", "nested-sequence-field"):
        if "nested-key" in function.options and not nested_key and given.key(dependent) in options:
            raise BadInput(
                f"option {given.key(dependent)} needs a key of the nested rows; also set {given.key('nested-key')}"
            )
    return ColumnAggregation(
        field,
        function.name,
        ignore_retract,
        given.boolean("distinct"),
        given.delimiter(),
        given.timestamp_field(),
        nested_key,
        given.null_keys(),
        given.nested_fields("nested-sequence-field"),
        given.count_limit(),
    )


def column_aggregations(schema: TableSchema, options: TableOptions) -> tuple[ColumnAggregation, ...]:
    """Return the aggregation of each column for merge-engine = aggregation. Raises BadInput."""
    sequences = options.sequence_fields
    return tuple(
        column_aggregation(function_name(field.name, options, schema.primary_keys, sequences), field, options)
        for field in schema.fields
    )


def is_order_free(schema: TableSchema, options: TableOptions) -> bool:
    """Return whether the table's rows don't depend on the order in which the rows of a key were written."""
    if options.merge_engine is not MergeEngine.AGGREGATION or options.aggregation_removes_on_delete:
        return False
    keys = set(schema.primary_keys)
    return all(
        AGGREGATE_FUNCTIONS[column.function].order_free
        for column in column_aggregations(schema, options)
        if column.field.name not in keys
    )


def depends_on_order(aggregation: ColumnAggregation) -> bool:
    """Return whether the function needs the order of all rows, and not only to know which one is the newest."""
    return not AGGREGATE_FUNCTIONS[aggregation.function].order_free and aggregation.function != _LAST_VALUE


def check_functions(options: Mapping[str, str]) -> None:
    """Raise BadInput for an unknown function, even for columns that use none (keys, sequence fields), like Java."""
    for key, name in options.items():
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            _function(name, key.removeprefix(_PREFIX).removesuffix(_SUFFIX))


def _function(name: str, column: str) -> AggregateFunction:
    function = AGGREGATE_FUNCTIONS.get(_ALIASES.get(name, name))
    if function is not None:
        return function
    if name == "count":
        raise BadInput(
            f"column {column!r}: Paimon has no aggregate function 'count'; use sum, over a column that is 1 in rows "
            "that count and 0 in others"
        )
    known = sorted(AGGREGATE_FUNCTIONS)
    raise BadInput(
        f"column {column!r}: aggregate function {name!r} does not exist{did_you_mean(name, known)}; choose one of "
        f"{', '.join(known)}"
    )


# ---------------------------------------------------------------- options of a column


@dataclass(frozen=True, slots=True)
class _ColumnOptions:
    """Parses the options `fields.<column>.*`. Each method raises BadInput with the name of the option."""

    field: DataField
    function: AggregateFunction
    options: TableOptions

    def key(self, name: str) -> str:
        return f"fields.{self.field.name}.{name}"

    def boolean(self, name: str) -> bool:
        return self.options.is_on(self.key(name))

    def delimiter(self) -> str:
        return str(self.options.text(self.key("list-agg-delimiter")))

    def count_limit(self) -> int:
        return int(self.options.parsed(self.key("count-limit"), parse_int, None))

    def null_keys(self) -> NullKeys:
        return NullKeys(self.options.parsed(self.key("nested-key-null-strategy"), _null_keys, None))

    def nested_fields(self, name: str) -> tuple[str, ...]:
        """Return names of fields of the nested ROW. Empty if the option is not set, or the function doesn't use it."""
        if self.key(name) not in self.options or name not in self.function.options:
            return ()
        names = tuple(part.strip() for part in self.options[self.key(name)].split(","))
        for part in names:
            self._nested_type(name, part)
        return names

    def timestamp_field(self) -> int:
        """Return the position of the time in the ROW. -1 for functions that don't use it."""
        if "ts-field" not in self.function.options:
            return -1
        names = list(inner_row(self.field.type))
        name = self.options.get(self.key("ts-field"), names[-1])
        found = self._nested_type("ts-field", name)
        if found.root not in STRING_ROOTS:
            raise BadInput(
                f"column {self.field.name!r}: {self.function.name} compares times as text, and field {name!r} is "
                f"{found}; make it a STRING, or name another field in {self.key('ts-field')}"
            )
        return names.index(name)

    def _nested_type(self, option: str, name: str) -> DataType:
        row = inner_row(self.field.type)
        if name not in row:
            raise BadInput(f"option {self.key(option)} names {name!r}; the ROW has {', '.join(row)}")
        return row[name]


def _null_keys(text: str) -> NullKeys:
    try:
        return NullKeys(text.strip().lower())
    except ValueError:
        raise BadInput(f"expected one of {', '.join(NullKeys)}") from None
