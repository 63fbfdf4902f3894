"""Parses DDL of a MySQL source for the changes of a table's columns."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

_ALTERS: Final = re.compile(r"\balter\b.*\btable\b.*\b(rename|change|drop|add)\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ColumnStatement:
    """A column that a statement adds, renames or drops.

    old: the column's name before the statement; None if the statement adds the column.
    new: the column's name after the statement; None if the statement drops the column.
    type: the type of an added column, in MySQL's spelling.
    """

    old: str | None
    new: str | None
    type: str = ""

    def __str__(self) -> str:
        if self.new is None:
            return f"drop {self.old}"
        return f"add {self.new}" if self.old is None else f"rename {self.old} to {self.new}"


def column_statements(sql: str | None) -> tuple[ColumnStatement, ...]:
    """Return the columns that a statement adds, renames and drops, in its order. Empty for any other text."""
    if not sql or not _ALTERS.search(sql):
        return ()
    import sqlglot  # noqa: PLC0415 - the import is slow, and most pipelines get no DDL
    from sqlglot import expressions  # noqa: PLC0415

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of each statement that it can't parse
    try:
        parsed = sqlglot.parse_one(sql, dialect="mysql")
    except sqlglot.errors.SqlglotError:
        return ()
    found: list[ColumnStatement] = []
    for action in parsed.args.get("actions") or () if isinstance(parsed, expressions.Alter) else ():
        match action:
            case expressions.RenameColumn():
                found.append(ColumnStatement(action.this.name, action.args["to"].name))
            case expressions.Drop() if action.args.get("kind") == "COLUMN":
                found += [ColumnStatement(column.name, None) for column in action.args.get("tables") or ()]
            case expressions.ColumnDef():
                kind = action.args.get("kind")
                found.append(ColumnStatement(None, action.name, "" if kind is None else kind.sql("mysql")))
            case expressions.ModifyColumn() if (old := action.args.get("rename_from")) is not None:
                if old.name != action.this.name:
                    found.append(ColumnStatement(old.name, action.this.name))
    return tuple(found)
