"""Creates, finds and drops views by name, with the same rules for all catalogs."""

from __future__ import annotations

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.identifier import SYSTEM_DATABASE, Identifier, check_database_name
from tidelake.storage.catalog.view import View, ViewStore
from tidelake.storage.model.messages import did_you_mean


class Views:
    """The views of a catalog.

    Its methods raise BadInput if a database or view does not exist, and UnsupportedFeature if the catalog can't keep
    views.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def list_views(self, database: str) -> list[str]:
        """Return the names of the views, sorted, without the database's name."""
        check_database_name(database)
        self._check_database(database)
        return self._store().names(database)

    def view(self, name: str) -> View:
        identifier = _plain(name)
        found = self._store().find(identifier)
        if found is None:
            raise self._no_view(identifier)
        return found

    def create_view(self, name: str, view: View, *, if_not_exists: bool = False) -> None:
        """Create a view.

        Raises BadInput if the name is taken. With if_not_exists an existing view is left unchanged.
        """
        identifier, store = _plain(name), self._store()
        if not view.query.strip():
            raise BadInput(f"view {identifier}: the query is blank")
        if not view.fields:
            raise BadInput(f"view {identifier} has no columns; name the columns of its query")
        self._check_database(identifier.database)
        if not store.add(identifier, view) and not (if_not_exists and store.find(identifier) is not None):
            raise BadInput(f"{identifier} is already the name of a table or a view; choose another")

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        identifier, store = _plain(name), self._store()
        if store.find(identifier) is not None:
            store.remove(identifier)
        elif not if_exists:
            raise self._no_view(identifier)

    def rename_view(self, name: str, new_name: str) -> None:
        old, new = _plain(name), _plain(new_name)
        store = self._store()
        if store.find(old) is None:
            raise self._no_view(old)
        self._check_database(new.database)
        if new == old or not store.rename(old, new):
            raise BadInput(f"{new} is already the name of a table or a view; choose another")

    def _store(self) -> ViewStore:
        found = self._catalog.view_store
        if found is None:
            raise UnsupportedFeature(
                "views of a catalog that is a directory",
                "it can store only tables",
                "Open a catalog in a database, in a Hive metastore or on a REST server",
            )
        return found

    def _check_database(self, name: str) -> None:
        known = self._catalog.list_databases()
        if name not in known:
            raise BadInput(f"no database {name!r}{did_you_mean(name, known)} (create_database creates one)")

    def _no_view(self, identifier: Identifier) -> BadInput:
        self._check_database(identifier.database)
        if self._catalog.table_exists(str(identifier)):
            return BadInput(f"{identifier} is a table, not a view")
        known = self._store().names(identifier.database)
        hint = did_you_mean(identifier.table, known, prefix=f"{identifier.database}.")
        return BadInput(f"no view {identifier}{hint} (create_view creates one)")


def _plain(name: str) -> Identifier:
    identifier = Identifier.parse(name)
    if not identifier.is_plain or identifier.database == SYSTEM_DATABASE:
        raise BadInput(f"{name!r} can't be the name of a view; write 'database.view'")
    return identifier
