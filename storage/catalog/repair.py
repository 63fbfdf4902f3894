"""Repairs the entries of a catalog that keeps names of its own, from the tables in its warehouse.

For tables that were copied there, or restored, and entries that were lost or changed by hand. Files are never touched.

Source: Java `catalog/Catalog.java` (repairCatalog, repairDatabase, repairTable), `flink/procedure/RepairProcedure`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from storage.catalog.base import Catalog
from storage.catalog.identifier import Identifier, check_database_name
from storage.errors import BadInput, UnsupportedFeature


@runtime_checkable
class RegisteringCatalog(Catalog, Protocol):
    """Whose names are not those of directories."""

    def databases_of_files(self) -> list[str]:
        """By the directories of the warehouse."""
        ...

    def tables_of_files(self, database: str) -> list[str]:
        """That have a schema, by the directories of the database."""
        ...

    def register(self, identifier: Identifier) -> bool:
        """Let the catalog say what the files say of a table. False where it does already.

        Raises BadInput where no table lies, or the name is something else's.
        """
        ...


def repair(catalog: Catalog, name: str | None = None) -> list[str]:
    """name: a database, or `database.table`; None is all databases of the warehouse. Databases are created as needed.

    Returns the tables that the catalog didn't know, or knew wrongly. Raises UnsupportedFeature of a catalog that has no
    names of its own.
    """
    if not isinstance(catalog, RegisteringCatalog):
        raise UnsupportedFeature(
            f"repair of {catalog!r}",
            "it has no names of its own that could differ from its tables",
            "Nothing is to be done; of a table whose files were lost, see `tidelake table remove-missing-files`",
        )
    if name is not None and "." in name:
        identifier = Identifier.parse(name)
        if not identifier.is_plain:
            raise BadInput(f"{name!r} is a branch or a system table: catalogs know the table as a whole; name that")
        _create_database(catalog, identifier.database)
        wanted = [identifier]
    else:
        wanted = []
        for database in catalog.databases_of_files() if name is None else [name]:
            _create_database(catalog, database)
            wanted += [Identifier(database, table) for table in catalog.tables_of_files(database)]
    return [str(identifier) for identifier in wanted if catalog.register(identifier)]


def _create_database(catalog: RegisteringCatalog, name: str) -> None:
    check_database_name(name)
    if name in catalog.list_databases():
        return
    if name not in catalog.databases_of_files():
        raise BadInput(f"no database {name!r}: {catalog!r} knows none, and {catalog.warehouse} has no directory of it")
    catalog.create_database(name, if_not_exists=True)
