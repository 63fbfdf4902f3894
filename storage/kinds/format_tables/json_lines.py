"""Converts columns to lines of JSON objects, and back.

Values are written as texts, like in Java. Texts, numbers and booleans can be read, without loss of digits. Columns are
made one after the other, from the undecoded JSON of their values.

Source: Java `format/json/JsonFileReader.java`, `JsonFormatWriter.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.base.arguments import shown
from tidelake.storage.files.formats.arrow_conversion import list_offsets
from tidelake.storage.files.formats.file_format import batch_of
from tidelake.storage.kinds.format_tables.format_options import JsonSettings
from tidelake.storage.kinds.format_tables.lines import joined, read_lines
from tidelake.storage.kinds.format_tables.text_values import texts_of, values_of
from tidelake.storage.model.types import (
    INTEGER_ROOTS,
    STRING_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    VectorType,
    arrow_type,
)

Raws: TypeAlias = Sequence[bytes | None]
"""The undecoded JSON of a value for each row. None means null or missing."""

_PORTABLE_KEY_ROOTS = frozenset(
    {*INTEGER_ROOTS, *STRING_ROOTS, Root.BOOLEAN}
)  # Java writes other keys in their in-memory form
_object_of_raws = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_of_raws = msgspec.json.Decoder(list[msgspec.Raw])


# ---------------------------------------------------------------- writing


def json_lines(rows: pa.RecordBatch, fields: Sequence[DataField], settings: JsonSettings) -> bytes:
    """Encode rows. Raises BadInput or UnsupportedFeature for values that a reader would misinterpret."""
    texts = [_json(column, field.type, field.name) for column, field in zip(rows.columns, fields, strict=True)]
    names = [_quoted(field.name) for field in fields]
    lines = [
        "{" + ",".join(f"{n}:{t}" for n, t in zip(names, row, strict=True)) + "}" for row in zip(*texts, strict=True)
    ]
    if any(settings.line_end in line for line in lines):
        raise BadInput(
            f"json.line-delimiter = {settings.line_end!r} occurs in a row; use a string that JSON does not contain"
        )
    return joined(pa.array(lines, pa.string()), settings.line_end)


def _json(column: pa.Array, data_type: DataType, name: str) -> list[str]:
    """Return the JSON of each row's value."""
    match data_type:
        case ArrayType() | VectorType():
            if pa.types.is_fixed_size_list(column.type):
                column = column.cast(pa.list_(column.type.value_type))
            inner = _json(column.values, data_type.element, name)
            return _where_valid(column, ["[" + ",".join(inner[a:b]) + "]" for a, b in pairwise(list_offsets(column))])
        case MapType():
            if data_type.key.root not in _PORTABLE_KEY_ROOTS:
                raise UnsupportedFeature(
                    f"column {name!r}: a map with keys of {data_type.key} in json files",
                    "Java writes such keys in its internal form",
                    "Use file.format = parquet",
                )
            assert isinstance(data_type.key, AtomicType)
            keys = [_quoted(key) for key in texts_of(column.keys, data_type.key).to_pylist()]
            items = _json(column.items, data_type.value, name)
            pairs = [f"{key}:{item}" for key, item in zip(keys, items, strict=True)]
            return _where_valid(column, ["{" + ",".join(pairs[a:b]) + "}" for a, b in pairwise(list_offsets(column))])
        case RowType():
            parts = [_json(column.field(i), f.type, name) for i, f in enumerate(data_type.fields)]
            names = [_quoted(f.name) for f in data_type.fields]
            rows = zip(*parts, strict=True) if parts else [()] * len(column)
            texts = ["{" + ",".join(f"{n}:{t}" for n, t in zip(names, row, strict=True)) + "}" for row in rows]
            return _where_valid(column, texts)
        case AtomicType():
            return ["null" if text is None else _quoted(text) for text in texts_of(column, data_type).to_pylist()]
    raise UnsupportedFeature(
        f"column {name!r} {data_type} in json files", "JSON has no representation of it", "Use parquet"
    )


def _where_valid(column: pa.Array, texts: Sequence[str]) -> list[str]:
    return [text if ok else "null" for text, ok in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


# ---------------------------------------------------------------- reading


def read_json(
    source: pa.NativeFile, path: str, wanted: Sequence[DataField], settings: JsonSettings
) -> Iterator[pa.RecordBatch]:
    """Read the wanted columns, by name. A column is null if an object does not contain it.

    Raises CorruptFile for a line that is not a JSON object, and for a value of a wrong type. With
    `json.ignore-parse-errors` the line is skipped instead, or the value is null.
    """
    schema = pa.schema([(field.name, arrow_type(field.type)) for field in wanted])
    first_line = 1
    for lines in read_lines(source, path, settings.line_end):
        place = _Place(f"{path}, after line {first_line}", settings.ignores_errors)
        objects = [found for line in lines.to_pylist() if (found := _object(line, place)) is not None]
        columns = [_column([_raw(o, f.name) for o in objects], f.type, f.name, place) for f in wanted]
        first_line += len(lines)
        if objects:
            yield batch_of(columns, len(objects), schema)


class _Place:
    """The place from which values come, and how invalid values are handled."""

    def __init__(self, where: str, ignores_errors: bool) -> None:
        self._where = where
        self.ignores_errors = ignores_errors

    def refuse(self, expected: str, found: object) -> None:
        if not self.ignores_errors:
            raise CorruptFile(self._where, expected, f"{shown(found)} (json.ignore-parse-errors = true passes over it)")


def _object(line: str, place: _Place) -> dict[str, msgspec.Raw] | None:
    try:
        return _object_of_raws.decode(line)
    except msgspec.DecodeError:
        place.refuse("a JSON object in the line", line)
        return None


def _raw(found: dict[str, msgspec.Raw], name: str) -> bytes | None:
    raw = found.get(name)
    return None if raw is None or (data := bytes(raw)) == b"null" else data


def _column(raws: Raws, data_type: DataType, name: str, place: _Place) -> pa.Array:
    match data_type:
        case ArrayType() | VectorType():
            return _lists(
                [_decoded(raw, _list_of_raws, name, data_type, place) for raw in raws], data_type, name, place
            )
        case MapType():
            return _maps(
                [_decoded(raw, _object_of_raws, name, data_type, place) for raw in raws], data_type, name, place
            )
        case RowType():
            return _rows(
                [_decoded(raw, _object_of_raws, name, data_type, place) for raw in raws], data_type, name, place
            )
        case AtomicType():
            texts = pa.array([_text(raw, name, data_type, place) for raw in raws], pa.string())
            return _atoms(texts, data_type, name, place)
    raise UnsupportedFeature(
        f"column {name!r} {data_type} in json files", "JSON has no representation of it", "Use parquet"
    )


def _atoms(texts: pa.Array, data_type: AtomicType, name: str, place: _Place) -> pa.Array:
    values, bad = values_of(texts, data_type)
    if bad is not None:
        place.refuse(f"values of column {name!r}, {data_type}", texts[int(np.flatnonzero(bad)[0])].as_py())
    return values.cast(arrow_type(data_type))


def _text(raw: bytes | None, name: str, data_type: DataType, place: _Place) -> str | None:
    if raw is None:
        return None
    if raw[:1] == b'"':
        text: str = msgspec.json.decode(raw)
        return text
    if raw[:1] in (b"{", b"["):
        place.refuse(f"a value of column {name!r}, {data_type}", raw.decode())
        return None
    return raw.decode()


def _decoded(raw: bytes | None, decoder: msgspec.json.Decoder, name: str, data_type: DataType, place: _Place):  # type: ignore[no-untyped-def,type-arg]
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        place.refuse(f"a value of column {name!r}, {data_type}", raw.decode())
        return None


def _lists(found: Sequence[list[msgspec.Raw] | None], data_type: DataType, name: str, place: _Place) -> pa.Array:
    assert isinstance(data_type, ArrayType | VectorType)
    flat = [_null_as_none(raw) for items in found for raw in items or ()]
    values = _column(flat, data_type.element, name, place)
    kind = arrow_type(data_type)
    lists = pa.ListArray.from_arrays(_offsets([None if o is None else len(o) for o in found]), values)
    return lists.cast(kind)


def _maps(found: Sequence[dict[str, msgspec.Raw] | None], data_type: MapType, name: str, place: _Place) -> pa.Array:
    assert isinstance(data_type.key, AtomicType)
    keys = pa.array([key for o in found for key in o or ()], pa.string())
    values = [_null_as_none(raw) for o in found for raw in (o or {}).values()]
    kind = arrow_type(data_type)
    return pa.MapArray.from_arrays(
        _offsets([None if o is None else len(o) for o in found]),
        _atoms(keys, data_type.key, name, place),
        _column(values, data_type.value, name, place),
    ).cast(kind)


def _rows(found: Sequence[dict[str, msgspec.Raw] | None], data_type: RowType, name: str, place: _Place) -> pa.Array:
    children = [
        _column([None if o is None else _raw(o, f.name) for o in found], f.type, f"{name}.{f.name}", place)
        for f in data_type.fields
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(arrow_type(data_type)), mask=pa.array([o is None for o in found])
    )


def _null_as_none(raw: msgspec.Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def _offsets(lengths: Sequence[int | None]) -> pa.Array:
    """Return the offsets of lists; null for a null value."""
    ends = np.cumsum([0, *(length or 0 for length in lengths)])
    return pa.array(ends, pa.int32(), mask=np.array([*(length is None for length in lengths), False]))
