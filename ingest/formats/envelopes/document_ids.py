"""The ids of MongoDB's documents. Ids of two BSON types may have the same text, and would be one row of a table.

The column `_id` has the text of an id, without its type: the ObjectId 65a0…, the text "65a0…", the number 1, the text
"1". So an id is refused if an id of another type was read for the table whose text could be the same. Ids of several
types whose texts always differ are fine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelake.ingest.formats.envelopes.extended_json import plain_json
from tidelake.ingest.formats.values.json_text import BadValue, JsonKind, kind_of, read_object, read_text, shown

_TEXT: Final = "a text"
_NUMBER: Final = "a number"  # for MongoDB, 1 is the same id as an int, a long, a double and a decimal
_INTEGER: Final = re.compile(r"-?[0-9]+")

_TYPES: Final[Mapping[str, str]] = {
    "$oid": "an ObjectId",
    "$uuid": "a UUID",
    "$numberInt": _NUMBER,
    "$numberLong": _NUMBER,
    "$numberDouble": _NUMBER,
    "$numberDecimal": _NUMBER,
    "$symbol": _TEXT,
    "$date": "a date",
    "$timestamp": "a timestamp",
    "$binary": "a binary",
    "$regularExpression": "a regular expression",
    "$regex": "a regular expression",
    "$code": "code",
    "$minKey": "MinKey",
    "$maxKey": "MaxKey",
}
_BOOLEAN: Final = "a boolean"
_DOCUMENT: Final = "a document"

# What the texts of each type look like. Any id can be equal to a text.
_FORMS: Final[Mapping[str, re.Pattern[str]]] = {
    "an ObjectId": re.compile(r"[0-9a-fA-F]{24}"),
    "a UUID": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    _NUMBER: re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity"),
    "a date": _INTEGER,
    "a timestamp": _INTEGER,
    "a binary": re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "a regular expression": re.compile(r"/.*/[a-z]*", re.DOTALL),
    "code": re.compile(r".*", re.DOTALL),
    "MinKey": re.compile("BsonMinKey"),
    "MaxKey": re.compile("BsonMaxKey"),
    _BOOLEAN: re.compile("true|false"),
    _DOCUMENT: re.compile(r"[\[{].*[\]}]", re.DOTALL),
}


class DocumentIds:
    """What the ids of each table were, since it was made."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], str] = {}  # (table, type) -> an id of this type
        self._like: dict[tuple[str, str], tuple[str, str]] = {}  # (table, type) -> another type, and an id of it

    def check(self, table: str, raw: bytes) -> None:
        """Raise BadValue if an id of another type could be the same row.

        raw: an id in extended JSON.
        """
        of_type, text = _type_of(raw), _text_of(raw)
        like = [one for one, form in _FORMS.items() if one != of_type and form.fullmatch(text) is not None]
        other = self._like.get((table, of_type))
        if other is None:
            other = next(((one, self._seen[table, one]) for one in like if (table, one) in self._seen), None)
        if other is not None:
            raise BadValue(
                f"_id: {shown(text.encode())} is {of_type}, but {shown(other[1].encode())}, of an earlier record, is "
                f"{other[0]}. {table} has the text of an id without its type, so two documents could become one row. "
                "Let the ids of the collection have one type, or set `errors.tolerance` to keep such records as dead "
                "letters"
            )
        self._seen.setdefault((table, of_type), text)
        for one in like:
            self._like.setdefault((table, one), (of_type, text))


def _type_of(raw: bytes) -> str:
    match kind_of(raw):
        case JsonKind.TEXT:
            return _TEXT
        case JsonKind.OBJECT:
            members = read_object(raw)
            name = next((name for name in _TYPES if name in members and len(members) <= 2), None)
            return _DOCUMENT if name is None else _TYPES[name]
        case JsonKind.ARRAY:
            return _DOCUMENT
        case _:
            return _BOOLEAN if raw in (b"true", b"false") else _NUMBER


def _text_of(raw: bytes) -> str:
    """Return the text in the column."""
    plain = plain_json(raw)
    return read_text(plain) if kind_of(plain) is JsonKind.TEXT else plain.decode()
