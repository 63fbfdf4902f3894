"""Texts of rows and values in metadata, as Java prints them in its system tables.

Java prints in two ways:
    SQL's cast to STRING: partitions, such as `{2024-05-14, null}`.
    `toString()` of the object that holds a value in memory: keys and bounds. A DATE is then its day number.

Source: Java `casting/RowToStringCastRule.java`, `table/system/FilesTable.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.string_casts import text_of
from tidelake.storage.model.binary_row import decode_rows_of_files
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    CONSTRUCTED_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    DataField,
    DataType,
    Root,
)
from tidelake.storage.model.types.object_texts import object_texts_of_numbers
from tidelake.storage.model.types.partition_text import partition_text

_NULL: Final = "null"


def sql_row_texts(rows: Sequence[bytes], fields: Sequence[DataField], where: str) -> pa.Array:
    """Return `{a, b}` for each serialized row; `{}` for rows without fields.

    where: named in the message of CorruptFile.
    """
    return _row_texts(rows, fields, where, "{", "}", sql_texts)


def object_row_texts(rows: Sequence[bytes], fields: Sequence[DataField], where: str) -> pa.Array:
    """Return `[a, b]` for each serialized row; null for rows without fields."""
    texts = _row_texts(rows, fields, where, "[", "]", object_texts)
    return pc.if_else(pa.array([row[:4] != bytes(4) for row in rows], pa.bool_()), texts, pa.scalar(None, pa.string()))


def _row_texts(
    rows: Sequence[bytes],
    fields: Sequence[DataField],
    where: str,
    opening: str,
    closing: str,
    texts_of: Callable[[pa.Array, DataType], pa.Array],
) -> pa.Array:
    numbers: dict[bytes, int] = {}
    places = [numbers.setdefault(row if row[:4] != bytes(4) else b"", len(numbers)) for row in rows]
    distinct = [row for row in numbers if row]
    empty = numbers.get(b"")
    texts = pa.array([opening + closing] * len(distinct), pa.string())
    if distinct and fields:
        types = [field.type for field in fields]
        columns = decode_rows_of_files(distinct, types, [where] * len(distinct), "rows", out_of_range="null")
        texts = joined(
            [texts_of(c, t) for c, t in zip(columns, types, strict=True)], [""] * len(fields), opening, closing
        )
    if empty is not None:
        ends = pa.array([opening + closing], pa.string())
        texts = pa.concat_arrays([texts.slice(0, empty), ends, texts.slice(empty)])
    return texts.take(pa.array(places, pa.int64()))


def joined(columns: Sequence[pa.Array], names: Sequence[str], opening: str, closing: str) -> pa.Array:
    """Return `{name=value, …}` for each row. Null values are `null`.

    columns: at least one column of texts.
    names: the prefix of each column's values, such as `name=`.
    """
    parts: list[pa.Array | str] = []
    for number, (column, name) in enumerate(zip(columns, names, strict=True)):
        parts += [(", " if number else opening) + name, pc.fill_null(column, _NULL)]
    return pc.binary_join_element_wise(*parts, closing, "")


def sql_texts(column: pa.Array, data_type: DataType) -> pa.Array:
    """Cast values to STRING as SQL does. Times with a zone are shown in the zone of this process. Null stays null."""
    if data_type.root is Root.TIMESTAMP_LTZ:
        return _of_distinct(column, lambda value: partition_text(value, data_type, False, _local_zone(value)))
    texts = text_of(column, data_type)
    return pa.nulls(len(column), pa.string()) if texts is None else texts


def object_texts(column: pa.Array, data_type: DataType) -> pa.Array:
    """Return Java's `toString()` of each value. Null stays null.

    Bytes become hexadecimal digits, where Java prints their address in memory.
    """
    root = data_type.root
    if root in STRING_ROOTS:
        return column
    if root in (Root.DATE, Root.TIME):
        return column.cast(pa.int32()).cast(pa.string())
    if root in INTEGER_ROOTS or root is Root.BOOLEAN:
        return column.cast(pa.string())
    if root in BINARY_ROOTS and pa.types.is_binary(column.type):
        return _of_distinct(column, lambda value: value.as_py().hex())
    if root in CONSTRUCTED_ROOTS:
        return sql_texts(column, data_type)
    try:
        return object_texts_of_numbers(column, data_type)
    except UnsupportedFeature:
        return pa.nulls(len(column), pa.string())


def _local_zone(time: pa.Scalar) -> tzinfo:
    """Return the zone of this process at that time; UTC for years that the system's calendar doesn't reach."""
    try:
        return datetime.fromtimestamp(time.cast(pa.timestamp("s"), safe=False).value).astimezone().tzinfo or UTC
    except (OverflowError, ValueError, OSError):
        return UTC


def _of_distinct(column: pa.Array, text: Callable[[pa.Scalar], str]) -> pa.Array:
    encoded = column.dictionary_encode()
    texts = pa.array([text(value) for value in encoded.dictionary], pa.string())
    return texts.take(encoded.indices)
