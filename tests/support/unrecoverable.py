"""Reads `unrecoverable.json` of a capture: cells and rows whose values are not in the records, with the reason.

The file is a list of entries, or an object that contains one list. Members of an entry:

table: the name as in expected.json, with or without its schema.
column: the column. If absent, the entry is about whole rows: they may be missing, or may exist although the source no
    longer has them.
keys: primary keys in the form of expected.json, one list per row. If absent: all rows of the table.
variants: the variants. If absent: all.
held: the value in the table, one per key or one for all. If absent, the value is not compared. It has the form of
    expected.json, or is the number of microseconds since 1970.
reason: an explanation for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.cases import check_members
from tests.support.database_text import same_value

FILE: Final = "unrecoverable.json"
_MEMBERS: Final = ("table", "column", "keys", "variants", "held", "reason")
Key = tuple[str | None, ...]


@dataclass(frozen=True)
class Unrecoverable:
    """An entry for one table.

    column: None for whole rows.
    rows: the value in the table, by key; None for all rows.
    compares: whether the entry has `held`.
    """

    column: str | None
    reason: str
    rows: Mapping[Key, Any] | None
    compares: bool
    held: Any = None

    def excuses(self, column: str | None, key: Key, database_type: str = "", cell: Any = None) -> bool:
        """Returns whether the entry explains a difference.

        cell: the value in the table.
        """
        if column != self.column or (self.rows is not None and key not in self.rows):
            return False
        if column is None or not self.compares:
            return True
        return same_value(database_type, self.held if self.rows is None else self.rows[key], cell)


def unrecoverable(capture: Path, table: str, variant: str | None) -> Sequence[Unrecoverable]:
    """Returns the entries for a table of a variant.

    capture: the folder of the capture.
    table: the name as in expected.json.
    """
    path = capture / FILE
    if not path.exists():
        return ()
    reported = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(reported, dict):
        (reported,) = (member for member in reported.values() if isinstance(member, list))
    return [_entry(entry) for entry in reported if _is_about(entry, table, variant)]


def _is_about(entry: Mapping[str, Any], table: str, variant: str | None) -> bool:
    check_members(entry, _MEMBERS)
    variants = entry.get("variants") or None
    of_table = entry["table"] == table or ("." not in entry["table"] and entry["table"] == table.rpartition(".")[2])
    return of_table and (variants is None or variants == "*" or variant in variants)


def _entry(entry: Mapping[str, Any]) -> Unrecoverable:
    keys, held = entry.get("keys"), entry.get("held")
    if keys in (None, "*"):
        return Unrecoverable(entry.get("column"), entry["reason"], None, "held" in entry, held)
    cells = held if isinstance(held, list) else [held] * len(keys)
    rows = {_key(key): cell for key, cell in zip(keys, cells, strict=True)}
    return Unrecoverable(entry.get("column"), entry["reason"], rows, "held" in entry)


def _key(key: Any) -> Key:
    """Returns a key from a list of its parts, an object of them, or a single part."""
    parts = key.values() if isinstance(key, dict) else key if isinstance(key, list) else [key]
    return tuple(None if part is None else str(part) for part in parts)
