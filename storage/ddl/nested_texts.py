"""Reads values of ARRAY, MAP and ROW from text, as defaults have them.

    ARRAY   [1, 2]           or ARRAY(1, 2)
    MAP     {a -> 1, b -> 2} or MAP(a, 1, b, 2)
    ROW     {1, text}        or STRUCT(1, text)

`null` is a null. Commas inside of brackets and double quotes don't separate. A double quote or a backslash stays part
of an ARRAY's or ROW's value, and is left out of a MAP's, as in Java.

Source: Java `casting/StringToArrayCastRule.java`, `StringToMapCastRule.java`, `StringToRowCastRule.java`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.files.casting import cast
from tidelake.storage.model.types import STRING, ArrayType, AtomicType, DataType, MapType, Root, RowType, arrow_type

_OPEN: Final = frozenset("[{(")
_CLOSED: Final = frozenset("]})")
_ENTRY: Final = re.compile(r"(.+?)\s*->\s*(.+)", re.DOTALL)


def can_read_text(kind: DataType) -> bool:
    """Return whether text can be read as this type: atomic types but VARIANT, and ARRAY, MAP and ROW of such types."""
    match kind:
        case AtomicType(root=root):
            return root is not Root.VARIANT
        case ArrayType(element=element):
            return can_read_text(element)
        case MapType(key=key, value=value):
            return can_read_text(key) and can_read_text(value)
        case RowType(fields=fields):
            return all(can_read_text(field.type) for field in fields)
        case _:
            return False


def value_of_text(text: str, kind: DataType) -> pa.Array:
    """Return an array of one value, in the in-memory form of its type. A text that is no such value raises BadInput."""
    match kind:
        case ArrayType(element=element):
            parts = list(_split(_inside(text, "[", "]", "ARRAY")))
            values = pa.concat_arrays([_part(part, element) for part in parts] or [_nothing(element)])
            return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=arrow_type(kind))
        case MapType():
            return _map_of_text(text, kind)
        case RowType(fields=fields):
            parts = list(_split(_inside(text, "{", "}", "STRUCT"))) or ["null"] * len(fields)
            if len(parts) != len(fields):
                raise BadInput(f"{text!r} has {len(parts)} fields; {kind} has {len(fields)}")
            values_of_fields = [_part(part, field.type) for part, field in zip(parts, fields, strict=True)]
            return pa.StructArray.from_arrays(values_of_fields, type=arrow_type(kind))
        case _:
            return cast(pa.array([text]), STRING, kind)


def _map_of_text(text: str, kind: MapType) -> pa.Array:
    entries: dict[str, str] = {}  # as in Java, of equal keys the last one counts
    if re.match(r"\s*MAP\s*\(", text, re.IGNORECASE):
        parts = [part.strip() for part in _split(_inside(text, "{", "}", "MAP"), drops_quotes=True)]
        if len(parts) % 2:
            raise BadInput(f"{text!r} has a key without a value")
        entries = dict(zip(parts[::2], parts[1::2], strict=True))
    else:
        for part in _split(_inside(text, "{", "}", "MAP"), drops_quotes=True):
            entry = _ENTRY.fullmatch(part.strip())
            if entry is None:
                raise BadInput(f"{part!r} is no entry of a MAP; write KEY -> VALUE")
            entries[entry[1]] = entry[2]
    if "null" in entries:
        raise BadInput(f"{text!r} has a null key")
    keys = pa.concat_arrays([_part(key, kind.key) for key in entries] or [_nothing(kind.key)])
    values = pa.concat_arrays([_part(value, kind.value) for value in entries.values()] or [_nothing(kind.value)])
    return pa.MapArray.from_arrays(pa.array([0, len(keys)], pa.int32()), keys, values, type=arrow_type(kind))


def _part(text: str, kind: DataType) -> pa.Array:
    stripped = text.strip()
    found = _nulls(kind) if stripped == "null" else value_of_text(stripped, kind)
    if found.null_count and (stripped != "null" or not kind.nullable):
        raise BadInput(f"{stripped!r} is no value of {kind}")
    return found


def _nulls(kind: DataType) -> pa.Array:
    return pa.nulls(1, arrow_type(kind))


def _nothing(kind: DataType) -> pa.Array:
    return pa.nulls(0, arrow_type(kind))


def _inside(text: str, opening: str, closing: str, function: str) -> str:
    """Return what is inside of the brackets, or of the parentheses of the function."""
    stripped = text.strip()
    if stripped.startswith(opening) and stripped.endswith(closing):
        return stripped[1:-1].strip()
    called = re.fullmatch(rf"{function}\s*\((.*)\)", stripped, re.IGNORECASE | re.DOTALL)
    if called is None:
        raise BadInput(f"{text!r} is neither in {opening}{closing} nor {function}(...)")
    return called[1].strip()


def _split(content: str, *, drops_quotes: bool = False) -> Iterator[str]:
    """Yield the parts between commas that are in no brackets and no double quotes. Empty parts are left out."""
    current: list[str] = []
    depth, in_quotes, is_escaped = 0, False, False
    for character in content:
        is_mark = not is_escaped and character in '\\"'
        if is_escaped:
            is_escaped = False
            if drops_quotes:
                continue
        elif character == "\\":
            is_escaped = True
        elif character == '"':
            in_quotes = not in_quotes
        elif not in_quotes:
            if character in _OPEN:
                depth += 1
            elif character in _CLOSED and depth:
                depth -= 1
            elif character == "," and not depth:
                if current:
                    yield "".join(current)
                current = []
                continue
        if not (is_mark and drops_quotes):
            current.append(character)
    if current:
        yield "".join(current)
