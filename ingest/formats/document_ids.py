"""The ids of MongoDB's documents. Ids of two BSON types may have the same text, and would be one row of a table.

The column `_id` has the text of an id, without its type: the ObjectId 65a0…, the text "65a0…", the number 1, the text
"1". So an id is refused if an id of another type was read for the table whose text could be the same. Ids of several
types whose texts always differ are fine. The table's snapshots record the types, so that later runs know them, too
(`tidelake.ingest.tables.table_lineage`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.ingest.formats.values.json_text import BadValue, JsonKind, kind_of, read_object, shown

# The names of types are in snapshots. Never rename them.
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


@dataclass(slots=True)
class DocumentIds:
    """The types of the ids of one table.

    types: each type of its ids, with an id of it for messages.
    resembled: each type that the text of an id could also be of, with the type of that id and the id. No type is in
        both: then two documents could be one row.
    """

    types: dict[str, str] = field(default_factory=dict)
    resembled: dict[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> DocumentIds:
        """Undo `to_members`."""
        resembled = {of_type: (str(other), str(id_)) for of_type, (other, id_) in members.get("resembled", {}).items()}
        return cls(dict(members.get("types", {})), resembled)

    def to_members(self) -> dict[str, Any]:
        """Return the members of a JSON object; none without ids. Another thread may add ids meanwhile."""
        if not self.types:
            return {}
        return {
            "types": dict(self.types),
            "resembled": {of_type: list(other) for of_type, other in self.resembled.copy().items()},
        }

    def check(self, table: str, raw: bytes, text: str) -> None:
        """Add an id. Raises BadValue if an id of another type could be the same row.

        raw: the id in extended JSON.
        text: its text in the column.
        """
        of_type = _type_of(raw)
        resembled = [one for one, form in _FORMS.items() if one != of_type and form.fullmatch(text) is not None]
        other = self.resembled.get(of_type)
        if other is None:
            other = next(((one, self.types[one]) for one in resembled if one in self.types), None)
        if other is not None:
            raise BadValue(f"_id: {_two_types(table, (of_type, shown(text.encode())), other)}")
        if of_type not in self.types:
            self.types[of_type] = shown(text.encode())
        for one in resembled:
            if one not in self.resembled:
                self.resembled[one] = of_type, shown(text.encode())

    def include(self, table: str, others: DocumentIds) -> None:
        """Add ids that were read elsewhere. Raises BadValue if two of them could be the same row."""
        for here, there in ((self, others), (others, self)):
            for of_type in here.types.keys() & there.resembled.keys():
                raise BadValue(f"_id: {_two_types(table, (of_type, here.types[of_type]), there.resembled[of_type])}")
        self.types = {**others.types, **self.types}
        self.resembled = {**others.resembled, **self.resembled}


def _two_types(table: str, one: tuple[str, str], other: tuple[str, str]) -> str:
    return (
        f"{one[1]} is {one[0]}, but {other[1]}, of another record, is {other[0]}. {table} has the text of an id "
        "without its type, so two documents could become one row. Let the ids of the collection have one type"
    )


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
