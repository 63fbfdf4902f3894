"""Converts Arrow columns to JSON values without loss.

Decimals, dates and times are texts (a time with a zone ends in Z), and so are NaN and the infinities. Bytes are base64.
A map is a list of [key, value]. All other values have the corresponding JSON type.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def json_rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return one object per row, with the columns in their order."""
    columns = [json_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return one value per row; None for null."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in json_values(chunk)]
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        texts: list[Any] = column.cast(pa.string()).to_pylist()
        return texts
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        return [_number(value) for value in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_map(kind):
        return _maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column)
    values: list[Any] = column.to_pylist()
    return values


def _times(column: pa.TimestampArray) -> list[str | None]:
    """Return the texts of timestamps. Arrow prints years up to 32767; later times become a number and its unit."""
    kind = column.type
    numbers = column.cast(pa.int64()).to_pylist()
    texts = column.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
    zone = "" if kind.tz is None else "Z"
    return [
        None if text is None else f"{number} {kind.unit}" if text.startswith("<") else text.replace(" ", "T") + zone
        for number, text in zip(numbers, texts, strict=True)
    ]


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _structs(column: pa.StructArray) -> list[Any]:
    names = [field.name for field in column.type]
    rows = zip(*map(json_values, column.flatten()), strict=True) if names else ((),) * len(column)
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for is_valid, row in zip(column.is_valid().to_pylist(), rows, strict=True)
    ]


def _maps(column: pa.MapArray) -> list[Any]:
    """Return a list of [key, value] per row. Offsets refer to the unsliced children, even if the column is a slice."""
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    children = (column.keys[first:last], column.items[first:last])
    entries = list(map(list, zip(*map(json_values, children), strict=True)))
    return [
        entries[start - first : end - first] if is_valid else None
        for is_valid, start, end in zip(column.is_valid().to_pylist(), offsets[:-1], offsets[1:], strict=True)
    ]


def _lists(column: pa.Array) -> list[Any]:
    values = json_values(column.flatten())  # without the values of null rows
    result: list[Any] = []
    at = 0
    for length in pc.list_value_length(column).to_pylist():
        result.append(None if length is None else values[at : at + length])
        at += length or 0
    return result
