"""JSON to ARRAY, MAP, ROW and VECTOR, member by member."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ingest.formats.cells.json_text import (
    BadValue,
    Cell,
    Kind,
    TooNarrow,
    kind_of,
    read_list,
    read_object,
    read_text,
    refuse,
)
from storage.types import ArrayType, DataField, MapType, RowType, VectorType


class UnknownField(BadValue):
    """A field that a ROW lacks. path: from the column to the field, without the column; `element` and `value` lead
    into an ARRAY and a MAP.
    """

    def __init__(self, path: tuple[str, ...], target: RowType) -> None:
        super().__init__(f"field {path[-1]!r} is not in {target}")
        self.path = path
        self.target = target

    def inside(self, step: str) -> UnknownField:
        return UnknownField((step, *self.path), self.target)


def _or_null(cell: Cell, nullable: bool, what: str, step: str) -> Cell:
    """step: the way from the parent to what `cell` reads, for messages."""

    def checked(raw: bytes) -> object:
        if raw != b"null":
            return _inside(cell, raw, step)
        if nullable:
            return None
        raise BadValue(f"null {what}, which is NOT NULL")

    return checked


def _inside(cell: Cell, raw: bytes, step: str) -> object:
    try:
        return cell(raw)
    except (UnknownField, TooNarrow) as e:
        raise e.inside(step) from None


def _inside_text(raw: bytes, opening: bytes) -> bytes:
    """A nested value may come as a text that holds JSON (json columns, hstore)."""
    if kind_of(raw) is Kind.TEXT:
        text = read_text(raw).strip().encode()
        if text.startswith(opening):
            return text
    return raw


def array_cell(target: ArrayType, element: Cell) -> Cell:
    """A JSON array, also inside a text; `a,b` of a MySQL SET becomes [a, b], and an empty one no element."""
    item = _or_null(element, target.element.nullable, "element", "element")

    def cell(raw: bytes) -> list[object]:
        inner = _inside_text(raw, b"[")
        if kind_of(inner) is Kind.ARRAY:
            return [item(member) for member in read_list(inner)]
        if kind_of(raw) is Kind.TEXT:
            words = raw[1:-1]
            return [item(b'"' + word + b'"') for word in words.split(b",")] if words else []
        raise refuse(raw, str(target))

    return cell


def vector_cell(target: VectorType, element: Cell) -> Cell:
    def cell(raw: bytes) -> list[object]:
        inner = _inside_text(raw, b"[")
        if kind_of(inner) is not Kind.ARRAY:
            raise refuse(raw, str(target))
        members = read_list(inner)
        if len(members) != target.length or b"null" in members:
            raise BadValue(f"{len(members)} elements, or nulls among them, for {target}")
        return [_inside(element, member, "element") for member in members]

    return cell


def map_cell(target: MapType, key: Cell, value: Cell) -> Cell:
    """A JSON object, also inside a text, or the pairs [[k, v], …] that Connect writes when keys are no strings."""
    value = _or_null(value, target.value.nullable, "value", "value")

    def cell(raw: bytes) -> list[tuple[object, object]]:
        inner = _inside_text(raw, b"{")
        if kind_of(inner) is Kind.OBJECT:
            return [(_inside(key, _quoted(name), "key"), value(member)) for name, member in read_object(inner).items()]
        if kind_of(inner) is Kind.ARRAY:
            pairs = [read_list(pair) if kind_of(pair) is Kind.ARRAY else [] for pair in read_list(inner)]
            if all(len(pair) == 2 and pair[0] != b"null" for pair in pairs):
                return [(_inside(key, k, "key"), value(v)) for k, v in pairs]
        raise refuse(raw, str(target))

    return cell


def row_cell(target: RowType, cells: Mapping[str, Cell]) -> Cell:
    """A JSON object, also inside a text. Fields it lacks are null; a field that the ROW lacks is refused."""
    fields: Mapping[str, DataField] = {f.name: f for f in target.fields}
    checked = {
        name: _or_null(cell, fields[name].type.nullable, f"field {name!r}", name) for name, cell in cells.items()
    }

    def cell(raw: bytes) -> dict[str, object]:
        inner = _inside_text(raw, b"{")
        if kind_of(inner) is not Kind.OBJECT:
            raise refuse(raw, str(target))
        members = read_object(inner)
        for name in members:
            if name not in fields:
                raise UnknownField((name,), target)
        return {name: field_cell(members.get(name, b"null")) for name, field_cell in checked.items()}

    return cell


def _quoted(name: str) -> bytes:
    return msgspec.json.encode(name)
