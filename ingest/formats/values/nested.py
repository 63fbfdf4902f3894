"""ARRAY, MAP, ROW and VECTOR in JSON. Each member has its own value decoder. Plain lists are also read by columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from tidelake.ingest.formats.connect_schema import SemanticType, SourceType
from tidelake.ingest.formats.values.conversion import ColumnDecoder, Flags
from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_list,
    read_object,
    read_text,
    shown,
    wrong_kind_error,
)
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders
from tidelake.storage.model.types import (
    INTEGER_ROOTS,
    MAX_LENGTH,
    ArrayType,
    DataField,
    MapType,
    Root,
    RowType,
    VectorType,
    arrow_type,
)


class UnknownField(BadValue):
    """A value has a field that a ROW lacks.

    path: the path from the column to the field, without the column. The step into an ARRAY is `element`, the steps into
        a MAP are `key` and `value`.
    target: the ROW.
    """

    def __init__(self, path: tuple[str, ...], target: RowType) -> None:
        super().__init__(f"field {path[-1]!r} is not in {target}")
        self.path = path
        self.target = target

    def inside(self, step: str) -> UnknownField:
        return UnknownField((step, *self.path), self.target)


def _or_null(decode: ValueDecoder, nullable: bool, what: str, step: str) -> ValueDecoder:
    """Return a decoder that also reads null, or refuses null if the member is NOT NULL.

    what: the member, for messages.
    step: the step from the parent to the member, for the path of an error.
    """

    def checked(raw: bytes) -> object:
        if raw != b"null":
            return _inside(decode, raw, step)
        if nullable:
            return None
        raise BadValue(f"null {what}, which is NOT NULL")

    return checked


def _inside(decode: ValueDecoder, raw: bytes, step: str) -> object:
    try:
        return decode(raw)
    except (UnknownField, TooNarrow) as e:
        raise e.inside(step) from None


def _map_key(decode: ValueDecoder, raw: bytes) -> object:
    try:
        return decode(raw)
    except UnknownField as e:
        raise e.inside("key") from None
    except TooNarrow as e:
        raise e.inside("key", is_key=True) from None


def _inside_text(raw: bytes, opening: bytes) -> bytes:
    """Return the JSON inside a text (json columns, hstore) if the text begins with `opening`, else the value itself."""
    if kind_of(raw) is JsonKind.TEXT:
        text = read_text(raw).strip().encode()
        if text.startswith(opening):
            return text
    return raw


def array_decoder(target: ArrayType, element: ValueDecoder, *, is_set: bool = False) -> ValueDecoder:
    """Return a decoder of JSON arrays, also inside a text, and of PostgreSQL's text of an array: `{1,"a b",NULL}`.

    is_set: whether the source declares a SET of MySQL. Its text `a,b` becomes [a, b], an empty text an empty array. No
        other text is cut at its commas.
    """
    item = _or_null(element, target.element.nullable, "element", "element")

    def decode(raw: bytes) -> list[object]:
        inner = raw if is_set else _inside_text(raw, b"[")
        is_text = kind_of(raw) is JsonKind.TEXT
        if is_text and not is_set and _ARRAY_TEXT.fullmatch(text := read_text(raw).strip()):
            inner = _array_of_text(text, raw)
        if kind_of(inner) is JsonKind.ARRAY:
            return [item(member) for member in read_list(inner)]
        if is_text and is_set:
            words = raw[1:-1]
            return [item(b'"' + word + b'"') for word in words.split(b",")] if words else []
        if is_text:
            raise BadValue(
                f"text {shown(raw)} is not a valid {target}. If it has the labels of a SET, declare this in "
                "source_types of the table: 'set'"
            )
        raise wrong_kind_error(raw, str(target))

    return decode


# PostgreSQL's text of an array. The bounds of its dimensions, as in [0:1]={a,b}, are ignored: a column has none.
# Source: PostgreSQL's manual, "Array Input and Output Syntax".
_ARRAY_TEXT: Final = re.compile(r"(?:(?:\[[+-]?\d+:[+-]?\d+\])+=)?\s*(\{.*\})", re.DOTALL)
_ARRAY_TOKEN: Final = re.compile(r'\s*(?:([{},])|"((?:[^"\\]|\\.)*)"|((?:[^"\\{},]|\\.)+))', re.DOTALL)


def _array_of_text(text: str, raw: bytes) -> bytes:
    """Return the JSON of PostgreSQL's text of an array. Elements become texts, NULL becomes null."""
    match = _ARRAY_TEXT.fullmatch(text)
    assert match is not None
    out: list[str] = []
    position, depth, is_after_value = 0, 0, False
    body = match[1]
    while position < len(body):
        token = _ARRAY_TOKEN.match(body, position)
        if token is None:
            raise _not_an_array(raw)
        position = token.end()
        sign, quoted, bare = token.groups()
        if sign in ("}", ","):
            # `{}` is empty; a comma stands between two elements
            may_close = sign == "}" and depth > 0 and (is_after_value or out[-1] == "[")
            if not may_close and not (sign == "," and is_after_value and depth > 0):
                raise _not_an_array(raw)
            out.append("]" if sign == "}" else ",")
            depth -= sign == "}"
            is_after_value = sign == "}"
            if not depth and body[position:].strip():
                raise _not_an_array(raw)
            continue
        if is_after_value or (sign is None and not depth):
            raise _not_an_array(raw)
        if sign == "{":
            out.append("[")
            depth += 1
            continue
        is_null = quoted is None and bare.strip().upper() == "NULL"
        value = re.sub(r"\\(.)", r"\1", bare.strip() if quoted is None else quoted, flags=re.DOTALL)
        out.append("null" if is_null else _quoted(value).decode())
        is_after_value = True
    if depth:
        raise _not_an_array(raw)
    return "".join(out).encode()


def _not_an_array(raw: bytes) -> BadValue:
    return BadValue(f"text {shown(raw)} is not PostgreSQL's text of an array")


def vector_decoder(target: VectorType, element: ValueDecoder) -> ValueDecoder:
    def decode(raw: bytes) -> list[object]:
        inner = _inside_text(raw, b"[")
        if kind_of(inner) is not JsonKind.ARRAY:
            raise wrong_kind_error(raw, str(target))
        members = read_list(inner)
        if len(members) != target.length or b"null" in members:
            raise BadValue(f"the value has {len(members)} elements, or nulls, which {target} can't hold")
        return [_inside(element, member, "element") for member in members]

    return decode


def map_decoder(target: MapType, key: ValueDecoder, value: ValueDecoder) -> ValueDecoder:
    """Return a decoder of JSON objects, also inside a text.

    It also reads the pairs [[k, v], …] that Connect writes if keys are no strings.
    """
    value = _or_null(value, target.value.nullable, "value", "value")

    def decode(raw: bytes) -> list[tuple[object, object]]:
        inner = _inside_text(raw, b"{")
        if kind_of(inner) is JsonKind.OBJECT:
            return [(_map_key(key, _quoted(name)), value(member)) for name, member in read_object(inner).items()]
        if kind_of(inner) is JsonKind.ARRAY:
            pairs = [read_list(pair) if kind_of(pair) is JsonKind.ARRAY else [] for pair in read_list(inner)]
            if all(len(pair) == 2 and pair[0] != b"null" for pair in pairs):
                return [(_map_key(key, k), value(v)) for k, v in pairs]
        raise wrong_kind_error(raw, str(target))

    return decode


def row_decoder(target: RowType, decoders: Mapping[str, ValueDecoder]) -> ValueDecoder:
    """Return a decoder of JSON objects, also inside a text.

    Missing fields are null. The decoder refuses a field that the ROW lacks.
    """
    fields: Mapping[str, DataField] = {f.name: f for f in target.fields}
    checked = {
        name: _or_null(decode, fields[name].type.nullable, f"field {name!r}", name) for name, decode in decoders.items()
    }

    def decode(raw: bytes) -> dict[str, object]:
        inner = _inside_text(raw, b"{")
        if kind_of(inner) is not JsonKind.OBJECT:
            raise wrong_kind_error(raw, str(target))
        members = read_object(inner)
        for name in members:
            if name not in fields:
                raise UnknownField((name,), target)
        return {name: decode_field(members.get(name, b"null")) for name, decode_field in checked.items()}

    return decode


def _quoted(name: str) -> bytes:
    return msgspec.json.encode(name)


# ---------------------------------------------------------------- a column


_PLAIN_ELEMENTS: Final = {
    Root.BOOLEAN: (bool, ("", "boolean")),
    **dict.fromkeys(INTEGER_ROOTS, (int, ("", "int8", "int16", "int32", "int64"))),
    Root.VARCHAR: (str, ("", "string")),
}


def list_column_decoder(source: SourceType, target: ArrayType, placeholders: Placeholders) -> ColumnDecoder | None:
    """Return a decoder of lists whose elements need no conversion between JSON and Arrow; None for other lists."""
    element = target.element
    plain: tuple[Any, tuple[str, ...]] = _PLAIN_ELEMENTS.get(element.root, (None, ()))
    python_type, declared = plain
    inner = source.element
    if inner is not None and (inner.semantic_type is not SemanticType.PLAIN or inner.connect not in declared):
        return None
    if python_type is None or not element.nullable or getattr(element, "length", 0) not in (0, MAX_LENGTH):
        return None
    in_memory = arrow_type(target)

    def to_arrow(values: Sequence[list[Any] | None]) -> tuple[pa.Array, Flags | None]:
        flags = placeholders.in_lists(values)
        if flags is not None:
            values = [None if flag else value for value, flag in zip(values, flags.tolist(), strict=True)]
        return pa.array(values, in_memory), flags

    json_type: Any = list[python_type | None]  # type: ignore[valid-type]
    return ColumnDecoder(json_type | None, to_arrow)
