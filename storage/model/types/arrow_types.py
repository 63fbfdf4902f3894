"""The Arrow types of a column's values in memory. Each type has one form in the whole code base (`arrow_type`).

    BOOLEAN bool · TINYINT..BIGINT int8..int64 · FLOAT, DOUBLE float32, float64 · CHAR, VARCHAR string
    BINARY, VARBINARY, BLOB binary · DECIMAL(p, s) decimal128 · DATE date32 · TIME(any p) time32[ms]
    TIMESTAMP(p) timestamp[s, ms, us or ns for p = 0, 1-3, 4-6, 7-9]; local-zoned ones the same with tz=UTC
    ARRAY list · MAP map · MULTISET map to int32 · ROW struct · VECTOR fixed_size_list
    VARIANT struct<value: binary, metadata: binary>

Tidelake chose these forms; Paimon doesn't define them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.model.types.data_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_PRECISION,
    SMALLINT,
    STRING,
    TINYINT,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    decimal,
    not_null,
    timestamp,
    timestamp_ltz,
)

_ARROW_ATOMS: Final[Mapping[Root, pa.DataType]] = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
    Root.BLOB: pa.binary(),
    Root.DATE: pa.date32(),
    Root.TIME: pa.time32("ms"),
}


def timestamp_unit(precision: int) -> str:
    """Return the Arrow unit of TIMESTAMP(precision): the coarsest unit that keeps all declared digits."""
    return "s" if precision == 0 else "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the in-memory form of this type's values (see the module docstring)."""
    match data_type:
        case AtomicType(root=Root.DECIMAL):
            return pa.decimal128(data_type.precision, data_type.scale)
        case AtomicType(root=Root.TIMESTAMP):
            return pa.timestamp(timestamp_unit(data_type.precision))
        case AtomicType(root=Root.TIMESTAMP_LTZ):
            return pa.timestamp(timestamp_unit(data_type.precision), tz="UTC")
        case AtomicType(root=Root.VARIANT):
            return pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
        case AtomicType():
            return _ARROW_ATOMS[data_type.root]
        case ArrayType():
            return pa.list_(pa.field("element", arrow_type(data_type.element), data_type.element.nullable))
        case VectorType():
            return pa.list_(pa.field("element", arrow_type(data_type.element), False), data_type.length)
        case MultisetType():
            return pa.map_(arrow_type(data_type.element), pa.field("value", pa.int32(), False))
        case MapType():
            value = pa.field("value", arrow_type(data_type.value), data_type.value.nullable)
            return pa.map_(arrow_type(data_type.key), value)
        case RowType():
            return pa.struct([arrow_field(f) for f in data_type.fields])


def arrow_field(field: DataField) -> pa.Field:
    return pa.field(field.name, arrow_type(field.type), field.type.nullable)


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    return pa.schema([arrow_field(f) for f in fields])


def type_from_arrow(
    given: pa.DataType, next_field_id: Callable[[], int], *, column: str, is_nullable: bool = True
) -> DataType:
    """Return the column type for a user's Arrow type.

    next_field_id: numbers the fields of nested ROWs, depth first.

    An unsigned integer becomes the next wider signed type (uint64: DECIMAL(20, 0)). Raises BadInput, naming `column`,
    for types that Paimon lacks: durations, intervals, times finer than a millisecond, unions, nulls.
    """
    found = _type_from_arrow(given, next_field_id, column)
    return found if is_nullable else not_null(found)


def description_from_arrow(given: pa.Field) -> str | None:
    """Return the metadata `description` of a user's Arrow field."""
    text = (given.metadata or {}).get(b"description")
    return text.decode() if text is not None else None


_FROM_ARROW: Final[Mapping[pa.DataType, DataType]] = {
    pa.bool_(): BOOLEAN,
    pa.int8(): TINYINT,
    pa.int16(): SMALLINT,
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.uint8(): SMALLINT,
    pa.uint16(): INT,
    pa.uint32(): BIGINT,
    pa.uint64(): decimal(20, 0),
    pa.float16(): FLOAT,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.time32("s"): AtomicType(Root.TIME, precision=0),
    pa.time32("ms"): AtomicType(Root.TIME, precision=3),
}
_TIMESTAMP_PRECISION: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _type_from_arrow(given: pa.DataType, next_field_id: Callable[[], int], column: str) -> DataType:
    def inner(field: pa.Field, part: str) -> DataType:
        return type_from_arrow(field.type, next_field_id, column=f"{column}.{part}", is_nullable=field.nullable)

    if given in _FROM_ARROW:
        return _FROM_ARROW[given]
    if isinstance(given, pa.DictionaryType):
        return _type_from_arrow(given.value_type, next_field_id, column)
    if isinstance(given, pa.TimestampType):
        precision = _TIMESTAMP_PRECISION[given.unit]
        return timestamp(precision) if given.tz is None else timestamp_ltz(precision)
    if isinstance(given, pa.FixedSizeBinaryType) and not pa.types.is_decimal(given):
        return AtomicType(Root.BINARY, length=given.byte_width)
    if pa.types.is_decimal(given):
        if given.precision > MAX_DECIMAL_PRECISION or not 0 <= given.scale <= given.precision:
            raise BadInput(f"column {column}: {given} does not fit DECIMAL(38, s) with 0 <= s <= precision")
        return decimal(given.precision, given.scale)
    if pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given):
        return ArrayType(inner(given.value_field, "element"))
    if pa.types.is_map(given):
        return MapType(inner(given.key_field, "key"), inner(given.item_field, "value"))
    if pa.types.is_struct(given):
        fields = []
        for position in range(given.num_fields):
            part = given.field(position)
            field_id = next_field_id()
            fields.append(DataField(field_id, part.name, inner(part, part.name), description_from_arrow(part)))
        return RowType(tuple(fields))
    if pa.types.is_time(given):
        raise BadInput(f"column {column}: Paimon keeps times of day in milliseconds; cast {given} to time32('ms')")
    raise BadInput(f"column {column}: no Paimon type holds Arrow's {given}")


def exact_scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """Return a value of a caller as a scalar of a type. A text is parsed.

    Raises pa.ArrowException, OverflowError, TypeError or ValueError if the value can't be one, or would change: Arrow
    alone cuts 1.7 to 1 and a time to its day, drops zones, and takes a number for a date.
    """
    if isinstance(value, str):
        return pa.scalar(value).cast(kind)
    typed = pa.scalar(value, kind)
    if not typed.is_valid or pa.types.is_floating(kind):
        return typed
    given = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    if pa.types.is_temporal(given.type) != pa.types.is_temporal(kind):
        raise pa.ArrowInvalid(f"it is {given.type}, not {kind}")
    if (getattr(given.type, "tz", None) is None) != (getattr(kind, "tz", None) is None):
        raise pa.ArrowInvalid("only one of them has a time zone")
    if typed.cast(given.type, safe=False) != given:
        raise pa.ArrowInvalid(f"it would become {typed}")
    return typed
