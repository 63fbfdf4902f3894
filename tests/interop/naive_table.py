"""The expected rows of a table, kept in a dict: the newest row of each key, or every row without a key.

Rows are JSON values as in `tests.support.expected`, by column name. Shares nothing with the code it judges.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.support.expected import Json

Row = dict[str, Json]


class NaiveTable:
    """keys: primary-key columns; none for an append table. columns: names in the table's order."""

    def __init__(self, columns: Sequence[str], keys: Sequence[str] = ()) -> None:
        self.columns = list(columns)
        self.keys = tuple(keys)
        self._rows: dict[str, Row] = {}
        self._count = 0

    def write(self, rows: Iterable[Mapping[str, Json]], *, kind: str = "_kind") -> None:
        """In order; member `kind` says +I, -U, +U or -D; columns that a row lacks are null."""
        for given in rows:
            row = {name: given.get(name) for name in self.columns}
            if given.get(kind, "+I") in ("-U", "-D"):
                self._rows.pop(self._key(row), None)
            else:
                self._rows[self._key(row)] = row

    def _key(self, row: Row) -> str:
        self._count += 1
        return json.dumps([row[name] for name in self.keys] if self.keys else self._count)

    def drop(self, condition: Callable[[Row], bool]) -> None:
        """Rows that an overwrite takes away."""
        self._rows = {key: row for key, row in self._rows.items() if not condition(row)}

    def change(self, columns: Sequence[str], change: Callable[[Row], Row], *, keys: Sequence[str]) -> None:
        """The table after its columns changed; `change` says what becomes of a row. keys: maybe under other names."""
        self.columns, self.keys = list(columns), tuple(keys)
        self._rows = {key: change(row) for key, row in self._rows.items()}

    @property
    def rows(self) -> list[list[Json]]:
        return [[row[name] for name in self.columns] for row in self._rows.values()]
