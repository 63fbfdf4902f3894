"""Columns of variants: conversion from and to JSON texts, and extraction of a path as a column of another type.

Source: Java `data/variant/VariantGet.java`, `GenericVariant.variantGet`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidelake.errors import BadInput, TidelakeError
from tidelake.storage.files.casting import cast
from tidelake.storage.model.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
    arrow_type,
    decimal,
    nullable,
    parse_type,
    timestamp,
    timestamp_ltz,
)
from tidelake.storage.model.variants.builder import VariantBuilder, variant_of_json
from tidelake.storage.model.variants.variant_layout import Basic, MalformedVariant, basic_type, elements_of, fields_of
from tidelake.storage.read.variants.variant_content import (
    Days,
    Float32,
    Micros,
    MicrosNtz,
    json_of,
    parse_path,
    place_of,
    scalar_of,
    stripped,
)

_VARIANT = AtomicType(Root.VARIANT)


def variant_from_json(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a VARIANT column of JSON texts. A null text gives null; the JSON `null` is a value. Raises BadInput."""
    found = [None if text is None else variant_of_json(text) for text in texts.to_pylist()]
    rows = [None if pair is None else {"value": pair[0], "metadata": pair[1]} for pair in found]
    return pa.array(rows, arrow_type(_VARIANT))


def variant_to_json(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the variants as JSON texts in Java Paimon's form. Raises BadInput for invalid variants."""
    return pa.array([None if v is None else _checked(json_of, *v) for v in _variants(column)], pa.string())


def variant_get(
    column: pa.Array | pa.ChunkedArray, path: str, kind: str | DataType = "VARIANT", *, fail_on_error: bool = True
) -> pa.Array:
    """Return the values of a column's variants at a path: `$.a`, `$['a b']`, `$[0]`, or several such steps in a row.

    The result is null if the variant is null, if nothing is at the path, and for the JSON null.

    kind: the type of the result in SQL; values are cast as Paimon casts columns.
    fail_on_error: if false, values that can't be cast become null.

    Raises BadInput.
    """
    target = nullable(parse_type(kind) if isinstance(kind, str) else kind)
    segments = parse_path(path)
    found: list[tuple[bytes, bytes, int] | None] = []
    for variant in _variants(column):
        place = None if variant is None else _checked(place_of, *variant, segments)
        found.append(None if variant is None or place is None else (*variant, place))
    if isinstance(target, AtomicType) and target.root is not Root.VARIANT:
        return _scalars(found, target, fail_on_error)
    values = [None if at is None else _checked(_nested, *at, target, fail_on_error) for at in found]
    return pa.array(values, arrow_type(target))


def _variants(column: pa.Array | pa.ChunkedArray) -> list[tuple[bytes, bytes] | None]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    names = {field.name for field in array.type} if pa.types.is_struct(array.type) else set()
    if names != {"value", "metadata"}:
        raise BadInput(f"a column of variants is a struct of value and metadata, and this one is {array.type}")
    return [None if row is None else (row["value"], row["metadata"]) for row in array.to_pylist()]


def _checked(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (MalformedVariant, UnicodeDecodeError, IndexError, OverflowError) as e:
        raise BadInput(f"a variant is damaged: {e}") from None


def _scalars(found: list[tuple[bytes, bytes, int] | None], target: AtomicType, fail_on_error: bool) -> pa.Array:
    """Cast values of one type together."""
    of_kind: dict[DataType, list[tuple[int, Any]]] = defaultdict(list)
    for row, at in enumerate(found):
        if at is not None and (typed := _checked(_typed, *at)) is not None:
            of_kind[typed[0]].append((row, typed[1]))
    result: list[Any] = [None] * len(found)
    for kind, rows in of_kind.items():
        for (row, _), value in zip(rows, _cast([v for _, v in rows], kind, target, fail_on_error), strict=True):
            result[row] = value
    return _array(result, target)


def _typed(value: bytes, metadata: bytes, at: int) -> tuple[DataType, Any] | None:
    """Return (type, value) at this position. Objects and arrays become JSON texts. None: null."""
    if basic_type(value, at) in (Basic.OBJECT, Basic.ARRAY):
        return STRING, json_of(value, metadata, at)
    match scalar_of(value, at):
        case None:
            return None
        case bool() as found:
            return BOOLEAN, found
        case Days() as found:
            return DATE, int(found)
        case Micros() as found:
            return timestamp_ltz(6), int(found)
        case MicrosNtz() as found:
            return timestamp(6), int(found)
        case int() as found:
            return BIGINT, found
        case Float32() as found:
            return FLOAT, float(found)
        case float() as found:
            return DOUBLE, found
        case Decimal() as found:
            number = stripped(found)
            _, digits, exponent = number.as_tuple()
            assert isinstance(exponent, int)
            return decimal(max(len(digits), -exponent, 1), -exponent), number
        case uuid.UUID() as found:
            return STRING, str(found)
        case bytes() as found:
            return BYTES, found
        case found:
            return STRING, found


def _array(values: list[Any], kind: DataType) -> pa.Array:
    """Build an array of values in which dates and times are given as numbers."""
    own = arrow_type(kind)
    if pa.types.is_date32(own):
        return pa.array(values, pa.int32()).cast(own)
    if pa.types.is_timestamp(own) or pa.types.is_time32(own):
        number = pa.int32() if pa.types.is_time32(own) else pa.int64()
        return pa.array(values, number).cast(own)
    return pa.array(values, own)


def _plain(array: pa.Array) -> list[Any]:
    """Reverse `_array`."""
    own = array.type
    if pa.types.is_date32(own) or pa.types.is_time32(own):
        return list(array.cast(pa.int32()).to_pylist())
    return list((array.cast(pa.int64()) if pa.types.is_timestamp(own) else array).to_pylist())


def _cast(values: list[Any], kind: DataType, target: DataType, fail_on_error: bool) -> list[Any]:
    if kind == target:
        return values
    try:
        return _plain(cast(_array(values, kind), kind, target))
    except (TidelakeError, pa.ArrowException, ValueError, ArithmeticError) as e:
        if len(values) > 1:
            return [v for value in values for v in _cast([value], kind, target, fail_on_error)]
        if not fail_on_error:
            return [None]
        raise BadInput(f"variant_get: {values[0]!r} is not a valid {target}: {e}") from None


def _nested(value: bytes, metadata: bytes, at: int, target: DataType, fail_on_error: bool) -> Any:
    basic = basic_type(value, at)
    match target:
        case AtomicType(root=Root.VARIANT):
            builder = VariantBuilder()
            return {"value": builder.copied(value, metadata, at), "metadata": builder.metadata()}
        case RowType() if basic is Basic.OBJECT:
            fields = dict(fields_of(value, metadata, at))
            return {
                f.name: _nested(value, metadata, fields[f.name], f.type, fail_on_error) if f.name in fields else None
                for f in target.fields
            }
        case MapType() if basic is Basic.OBJECT and nullable(target.key) == STRING:
            found = fields_of(value, metadata, at)
            return [(name, _nested(value, metadata, place, target.value, fail_on_error)) for name, place in found]
        case ArrayType() if basic is Basic.ARRAY:
            places = elements_of(value, at)
            return [_nested(value, metadata, place, target.element, fail_on_error) for place in places]
        case AtomicType():
            typed = _typed(value, metadata, at)
            if typed is None:
                return None
            return _array(_cast([typed[1]], typed[0], nullable(target), fail_on_error), target)[0].as_py()
    if basic not in (Basic.OBJECT, Basic.ARRAY) and scalar_of(value, at) is None:
        return None
    if not fail_on_error:
        return None
    raise BadInput(f"variant_get: {json_of(value, metadata, at)} is not a valid {target}")
