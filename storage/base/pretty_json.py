"""Formats JSON as Java's library (Jackson) does, so that our files and Java's are equal byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Final, TypeAlias

Json: TypeAlias = str | int | float | bool | Sequence["Json"] | Mapping[str, "Json"] | None

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_LOWER_CASE_ESCAPE: Final = re.compile(r"(\\\\)|\\u00([01][0-9a-f])")


def pretty_json(value: Json, indent: str = "") -> str:
    """Return the text, without a line end after it. Only objects are split into lines: `"fields" : [ {`.

    indent: the indentation of the line that the value starts on.
    """
    match value:
        case str():
            return _text(value)
        case bool() | None | float():  # before the abstract classes, whose checks are slow
            return _ENCODER.encode(value)
        case int():
            return str(int(value))
        case Mapping() if value:
            inner = indent + "  "
            members = (f"{inner}{_text(name)} : {pretty_json(member, inner)}" for name, member in value.items())
            return "{\n" + ",\n".join(members) + f"\n{indent}}}"
        case Mapping():
            return "{ }"
        case _:
            return f"[ {', '.join(pretty_json(element, indent) for element in value)} ]" if value else "[ ]"


def _text(text: str) -> str:
    """Return a quoted text. Java escapes control characters with upper-case digits, and nothing beyond ASCII."""
    quoted = encode_basestring(text)  # the encoder calls this function, but takes ten times as long
    if "\\u" not in quoted:
        return quoted
    return _LOWER_CASE_ESCAPE.sub(lambda m: m[1] or f"\\u00{m[2].upper()}", quoted)
