"""`unrecoverable.json` next to a capture: cells and rows whose values are not in the records, with the reason.

A list (or an object with one list in it) of entries:

table: as in expected.json, with or without its schema.
column: left out, whole rows: they may be missing, or be there though the source has them no more.
keys: primary keys as expected.json prints them, one list a row; left out: all rows of the table.
variants: left out: all.
held: what the table holds there instead, one a key, or one for all; left out: not compared. Printed like expected.json,
    or the number of microseconds since 1970.
reason: for people.
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
    """column: None for whole rows. rows: the held values by key, None for all rows. compares: whether `held` is
    given.
    """

    column: str | None
    reason: str
    rows: Mapping[Key, Any] | None
    compares: bool
    held: Any = None

    def excuses(self, column: str | None, key: Key, database_type: str = "", cell: Any = None) -> bool:
        """Whether this entry accepts a difference. cell: the value in the table."""
        if column != self.column or (self.rows is not None and key not in self.rows):
            return False
        if column is None or not self.compares:
            return True
        return same_value(database_type, self.held if self.rows is None else self.rows[key], cell)


def unrecoverable(capture: Path, table: str, variant: str | None) -> Sequence[Unrecoverable]:
    """The entries about one table of one variant. capture: the folder. table: as in expected.json."""
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
    """A list of the key's parts, an object of them, or the part alone."""
    parts = key.values() if isinstance(key, dict) else key if isinstance(key, list) else [key]
    return tuple(None if part is None else str(part) for part in parts)
