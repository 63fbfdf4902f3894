"""The aggregate functions, the column types that they accept, and their options `fields.<column>.*`.

Source: Java `mergetree/compact/aggregate/factory/*.java`, `AggregateMergeFunction.getAggFuncName`, `CoreOptions.java`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelake.storage.base.errors import BadInput
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


class AggregateFunction(StrEnum):
    """The functions that `fields.<column>.aggregate-function` can name."""

    SUM = "sum"
    PRODUCT = "product"
    MAX = "max"
    MIN = "min"
    LAST_VALUE = "last_value"
    LAST_NON_NULL_VALUE = "last_non_null_value"
    FIRST_VALUE = "first_value"
    FIRST_NON_NULL_VALUE = "first_non_null_value"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    LISTAGG = "listagg"
    COLLECT = "collect"
    MERGE_MAP = "merge_map"
    MERGE_MAP_WITH_KEYTIME = "merge_map_with_keytime"
    NESTED_UPDATE = "nested_update"
    NESTED_PARTIAL_UPDATE = "nested_partial_update"
    THETA_SKETCH = "theta_sketch"
    HLL_SKETCH = "hll_sketch"
    RBM32 = "rbm32"
    RBM64 = "rbm64"
    PRIMARY_KEY = "primary-key"


# Functions whose result doesn't depend on the order of the rows. (`product` retracts by division, so it depends on it.)
_ORDER_FREE: Final = frozenset(
    {
        AggregateFunction.SUM,
        AggregateFunction.MAX,
        AggregateFunction.MIN,
        AggregateFunction.BOOL_AND,
        AggregateFunction.BOOL_OR,
        AggregateFunction.THETA_SKETCH,
        AggregateFunction.HLL_SKETCH,
        AggregateFunction.RBM32,
        AggregateFunction.RBM64,
        AggregateFunction.PRIMARY_KEY,
    }
)


class NullKeys(StrEnum):
    """The values of `nested-key-null-strategy`: how a nested row with a null in its key is handled."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


def _null_keys(text: str) -> NullKeys:
    try:
        return NullKeys(text.strip().lower())
    except ValueError:
        raise BadInput(f"expected one of {', '.join(NullKeys)}") from None


_ALIASES: Final = {"first_not_null_value": AggregateFunction.FIRST_NON_NULL_VALUE}
_NUMBERS: Final = frozenset({*INTEGER_ROOTS, Root.DECIMAL, Root.FLOAT, Root.DOUBLE})
_ON_NESTED_ROWS: Final = (AggregateFunction.NESTED_UPDATE, AggregateFunction.NESTED_PARTIAL_UPDATE)
_UNORDERED_ROOTS: Final = frozenset({*CONSTRUCTED_ROOTS, Root.VARIANT, Root.BLOB})


def function_name(column: str, options: Mapping[str, str], keys: Collection[str], sequences: Collection[str]) -> str:
    """Returns the name of the function that merge-engine = aggregation uses for a column.

    keys: the columns of the primary key.
    sequences: the columns of `sequence.field`.
    """
    if column in sequences:
        return AggregateFunction.LAST_VALUE
    if column in keys:
        return AggregateFunction.PRIMARY_KEY
    chosen = options.get(f"{_PREFIX}{column}{_SUFFIX}", options.get(DEFAULT_FUNCTION_OPTION))
    return AggregateFunction.LAST_NON_NULL_VALUE if chosen is None else chosen


@dataclass(frozen=True, slots=True)
class ColumnAggregation:
    """The aggregation of one column: its function and options, checked against the column's type.

    ignore_retract: whether retract rows leave the accumulator unchanged.
    distinct: for `collect` and `listagg`, whether each value is kept once.
    delimiter: for `listagg`, the text between two values.
    timestamp_field: for `merge_map_with_keytime`, the position of the time in the ROW.
    nested_key: for `nested_update`, the fields of the ROW that are its key.
    null_keys: for `nested_update`, how nulls in the key are handled.
    nested_sequence: for `nested_update`, the fields of the ROW that order the rows of one key.
    count_limit: for `nested_update`, the maximum number of nested rows.
    """

    field: DataField
    function: AggregateFunction
    ignore_retract: bool
    distinct: bool
    delimiter: str
    timestamp_field: int
    nested_key: tuple[str, ...]
    null_keys: NullKeys
    nested_sequence: tuple[str, ...]
    count_limit: int

    @classmethod
    def of(cls, name: str, field: DataField, options: TableOptions) -> ColumnAggregation:
        """Makes the aggregation of a column.

        name: the function's name, as given in an option.

        Raises BadInput if no such function exists, or if the column's type or the options don't fit the function.
        """
        function = _function(name, field.name)
        given = _ColumnOptions(field, function, options)
        _check_type(function, field)
        ignore_retract = given.boolean("ignore-retract")
        if ignore_retract and options.aggregation_removes_on_delete:
            raise BadInput(
                f"options fields.{field.name}.ignore-retract and aggregation.remove-record-on-delete are both true: a "
                "delete can't be both ignored and used to remove the row; unset one of them"
            )
        nested_key = given.nested_fields("nested-key")
        if function is AggregateFunction.NESTED_PARTIAL_UPDATE and not nested_key:
            raise BadInput(
                f"column {field.name!r}: {function} finds nested rows by their key; set fields.{field.name}.nested-key"
            )
        for dependent in ("nested-key-null-strategy", "nested-sequence-field"):
            if function is AggregateFunction.NESTED_UPDATE and not nested_key and given.key(dependent) in options:
                raise BadInput(
                    f"option {given.key(dependent)} needs a key of the nested rows; also set {given.key('nested-key')}"
                )
        return cls(
            field,
            function,
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
    """Returns the aggregation of each column for merge-engine = aggregation. Raises BadInput."""
    sequences = options.sequence_fields
    return tuple(
        ColumnAggregation.of(function_name(field.name, options, schema.primary_keys, sequences), field, options)
        for field in schema.fields
    )


def is_order_free(schema: TableSchema, options: TableOptions) -> bool:
    """Whether the table's rows don't depend on the order in which the rows of a key were written."""
    if options.merge_engine is not MergeEngine.AGGREGATION or options.aggregation_removes_on_delete:
        return False
    keys = set(schema.primary_keys)
    aggregations = column_aggregations(schema, options)
    return all(column.function in _ORDER_FREE for column in aggregations if column.field.name not in keys)


def check_functions(options: Mapping[str, str]) -> None:
    """Raises BadInput for an unknown function, even for columns that use none (keys, sequence fields), like Java."""
    for key, name in options.items():
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            _function(name, key.removeprefix(_PREFIX).removesuffix(_SUFFIX))


def _function(name: str, column: str) -> AggregateFunction:
    if name in _ALIASES:
        return _ALIASES[name]
    if name in set(AggregateFunction):
        return AggregateFunction(name)
    if name == "count":
        raise BadInput(
            f"column {column!r}: Paimon has no aggregate function 'count'; use sum, over a column that is 1 in rows "
            "that count and 0 in others"
        )
    known = sorted(map(str, AggregateFunction))
    raise BadInput(
        f"column {column!r}: aggregate function {name!r} does not exist{did_you_mean(name, known)}; choose one of "
        f"{', '.join(known)}"
    )


def _check_type(function: AggregateFunction, field: DataField) -> None:
    """Raises BadInput if the function does not accept the column's type."""
    accepted = _accepted(function, field.type)
    if accepted is not None:
        raise BadInput(
            f"column {field.name!r} {field.type}: aggregate function {function} takes {accepted}; "
            "choose another function, or another type"
        )


def _accepted(function: AggregateFunction, data_type: DataType) -> str | None:
    """Returns None if the function accepts the type; otherwise describes the types that it accepts."""
    fits, accepted = True, ""
    match function:
        case AggregateFunction.SUM | AggregateFunction.PRODUCT:
            fits, accepted = data_type.root in _NUMBERS, "numbers"
        case AggregateFunction.MAX | AggregateFunction.MIN:
            fits, accepted = data_type.root not in _UNORDERED_ROOTS, "types with an order, none that holds others"
        case AggregateFunction.BOOL_AND | AggregateFunction.BOOL_OR:
            fits, accepted = data_type.root is Root.BOOLEAN, "BOOLEAN"
        case AggregateFunction.LISTAGG:
            fits, accepted = nullable(data_type) == STRING, "STRING, without a length"
        case AggregateFunction.COLLECT:
            fits, accepted = isinstance(data_type, ArrayType), "ARRAY"
        case AggregateFunction.MERGE_MAP:
            fits, accepted = isinstance(data_type, MapType), "MAP"
        case AggregateFunction.MERGE_MAP_WITH_KEYTIME:
            fits = isinstance(data_type, MapType) and len(inner_row(data_type)) >= 2
            accepted = "MAP to a ROW of two fields or more"
        case AggregateFunction.NESTED_UPDATE | AggregateFunction.NESTED_PARTIAL_UPDATE:
            fits = isinstance(data_type, ArrayType) and isinstance(data_type.element, RowType)
            accepted = "ARRAY<ROW<...>>"
        case (
            AggregateFunction.THETA_SKETCH
            | AggregateFunction.HLL_SKETCH
            | AggregateFunction.RBM32
            | AggregateFunction.RBM64
        ):
            fits, accepted = data_type.root is Root.VARBINARY, "BYTES or VARBINARY(n)"
        case _:
            pass  # any type
    return None if fits else accepted


def inner_row(data_type: DataType) -> dict[str, DataType]:
    """Returns the fields of the ROWs in an ARRAY or a MAP. Empty for other types."""
    match data_type:
        case ArrayType(element=RowType(fields=fields)) | MapType(value=RowType(fields=fields)):
            return {field.name: field.type for field in fields}
        case _:
            return {}


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
        """Returns names of fields of the nested ROW. Empty if the option is not set, or the function doesn't use it."""
        if self.key(name) not in self.options or self.function not in _ON_NESTED_ROWS:
            return ()
        names = tuple(part.strip() for part in self.options[self.key(name)].split(","))
        for part in names:
            self._nested_type(name, part)
        return names

    def timestamp_field(self) -> int:
        """Returns the position of the time in the ROW. -1 for functions that don't use it."""
        if self.function is not AggregateFunction.MERGE_MAP_WITH_KEYTIME:
            return -1
        names = list(inner_row(self.field.type))
        name = self.options.get(self.key("ts-field"), names[-1])
        found = self._nested_type("ts-field", name)
        if found.root not in STRING_ROOTS:
            raise BadInput(
                f"column {self.field.name!r}: {self.function} compares times as text, and field {name!r} is {found}; "
                f"make it a STRING, or name another field in {self.key('ts-field')}"
            )
        return names.index(name)

    def _nested_type(self, option: str, name: str) -> DataType:
        row = inner_row(self.field.type)
        if name not in row:
            raise BadInput(f"option {self.key(option)} names {name!r}; the ROW has {', '.join(row)}")
        return row[name]
