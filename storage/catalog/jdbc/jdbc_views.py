"""Stores views as rows of a catalog's database.

Source: Java `jdbc/JdbcCatalog.java`, `jdbc/JdbcUtils.java` (view methods).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.jdbc.names import NameStore
from tidelake.storage.catalog.view import View


@dataclass(frozen=True, slots=True)
class JdbcViews:
    """See `ViewStore`."""

    rows: NameStore

    def names(self, database: str) -> list[str]:
        return self.rows.views(database)

    def find(self, identifier: Identifier) -> View | None:
        text = self.rows.view_schema(identifier.database, identifier.table)
        return None if text is None else View.from_json(text, f"the row of view {identifier} in paimon_views")

    def add(self, identifier: Identifier, view: View) -> bool:
        text = json.dumps(view.to_members(), ensure_ascii=False)
        return self.rows.add_view(identifier.database, identifier.table, text)

    def remove(self, identifier: Identifier) -> None:
        self.rows.drop_view(identifier.database, identifier.table)

    def rename(self, old: Identifier, new: Identifier) -> bool:
        return self.rows.rename_view(old.database, old.table, new.database, new.table)
