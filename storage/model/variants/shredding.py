"""Assembles variants that Parquet files store in parts (shredded).

    v { metadata, value, typed_value }    typed_value, if not null, is a value of one type, an array, or an object
                                          whose fields are { value, typed_value } again; `value` holds the rest

Source: Java `data/variant/ShreddingUtils.java`;
https://github.com/apache/parquet-format/blob/master/VariantShredding.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidelake.storage.model.variants.builder import VariantBuilder, decimal, integer, primitive, text
from tidelake.storage.model.variants.variant_layout import (
    Basic,
    MalformedVariant,
    Primitive,
    basic_type,
    check_metadata,
    fields_of,
)


def assembled(column: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return (value, metadata) of each variant; null for a null variant. Raises MalformedVariant."""
    valid = column.is_valid().to_pylist()
    parts = _Parts(column)
    names = column.field("metadata").to_pylist()
    values: list[bytes | None] = []
    metadata: list[bytes | None] = []
    for row, is_valid in enumerate(valid):
        if not is_valid:
            values.append(None)
            metadata.append(None)
            continue
        if names[row] is None:
            raise MalformedVariant("no metadata")
        check_metadata(names[row])
        builder = VariantBuilder()
        values.append(parts.build(row, names[row], builder))
        metadata.append(builder.metadata())
    return pa.array(values, pa.binary()), pa.array(metadata, pa.binary())


class _Parts:
    """One level of a shredded variant."""

    def __init__(self, column: pa.StructArray) -> None:
        given = {field.name for field in column.type}
        self._values: Sequence[bytes | None] = (
            column.field("value").to_pylist() if "value" in given else [None] * len(column)
        )
        self._is_typed = [False] * len(column)
        self._fields: list[tuple[str, _Parts]] = []
        self._element: _Parts | None = None
        self._scalars: Sequence[Any] = ()
        self._encode: Callable[[Any], bytes] = text
        if "typed_value" not in given:
            return
        typed = column.field("typed_value")
        self._is_typed = typed.is_valid().to_pylist()
        if pa.types.is_struct(typed.type):
            self._fields = [(field.name, _Parts(typed.field(i))) for i, field in enumerate(typed.type)]
        elif pa.types.is_list(typed.type):
            self._offsets = typed.offsets.to_pylist()
            self._element = _Parts(typed.values)
        else:
            self._scalars, self._encode = _scalars(typed)

    def has(self, row: int) -> bool:
        return self._is_typed[row] or self._values[row] is not None

    def build(self, row: int, metadata: bytes, builder: VariantBuilder) -> bytes:
        left = self._values[row]
        if not self._is_typed[row]:
            if left is None:
                raise MalformedVariant("neither a value nor a typed one")
            return builder.copied(left, metadata)
        if self._element is not None:
            places = range(self._offsets[row], self._offsets[row + 1])
            return builder.array([self._element.build(place, metadata, builder) for place in places])
        if self._scalars:
            return self._encode(self._scalars[row])
        fields = []
        for name, part in self._fields:
            if part.has(row):
                builder.name(name)
                fields.append((name, part.build(row, metadata, builder)))
        if left is not None:
            if basic_type(left, 0) is not Basic.OBJECT:
                raise MalformedVariant("fields of an object beside something else")
            for name, place in fields_of(left, metadata, 0):
                builder.name(name)
                fields.append((name, builder.copied(left, metadata, place)))
        return builder.object(fields)


def _scalars(typed: pa.Array) -> tuple[Sequence[Any], Callable[[Any], bytes]]:
    kind = typed.type
    if pa.types.is_integer(kind):
        return typed.to_pylist(), integer
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return typed.to_pylist(), text
    if pa.types.is_boolean(kind):
        return typed.to_pylist(), lambda value: primitive(Primitive.TRUE if value else Primitive.FALSE)
    if pa.types.is_float64(kind):
        return typed.to_pylist(), lambda value: primitive(Primitive.DOUBLE, struct.pack("<d", value))
    if pa.types.is_float32(kind):
        return typed.to_pylist(), lambda value: primitive(Primitive.FLOAT, struct.pack("<f", value))
    if pa.types.is_decimal(kind):
        return typed.to_pylist(), _decimal
    if pa.types.is_date32(kind):
        return typed.cast(pa.int32()).to_pylist(), lambda value: primitive(Primitive.DATE, struct.pack("<i", value))
    if pa.types.is_timestamp(kind):
        own = Primitive.TIMESTAMP_NTZ if kind.tz is None else Primitive.TIMESTAMP
        micros = typed.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        return micros, lambda value: primitive(own, struct.pack("<q", value))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return typed.to_pylist(), lambda value: primitive(Primitive.BINARY, struct.pack("<I", len(value)) + value)
    raise MalformedVariant(f"typed values of {kind}")


def _decimal(value: Decimal) -> bytes:
    return decimal(value)
