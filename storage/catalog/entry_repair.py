"""Repairs the entries of a catalog that keeps names of tables, from the tables in its warehouse.

This registers tables that were copied or restored, and corrects entries that were lost or changed manually. Files are
never changed.

Source: Java `catalog/Catalog.java` (repairCatalog, repairDatabase, repairTable), `flink/procedure/RepairProcedure`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.identifier import Identifier, check_database_name


@runtime_checkable
class RegisteringCatalog(Catalog, Protocol):
    """A catalog that keeps names separately from the directories of the warehouse."""

    def databases_of_files(self) -> list[str]:
        """Return the databases that have a directory in the warehouse."""
        ...

    def tables_of_files(self, database: str) -> list[str]:
        """Return the directories of the database that contain a schema."""
        ...

    def register(self, identifier: Identifier) -> bool:
        """Make the catalog's entry of a table agree with the table's files. Returns False if it agrees already.

        Raises BadInput if the files are no table, or if the name belongs to something else.
        """
        ...


def repair(catalog: Catalog, name: str | None = None) -> list[str]:
    """Repair the entries of one table, one database, or the whole warehouse. Creates missing databases.

    name: a database, or `database.table`; None means all databases of the warehouse.

    Returns the tables whose entry was missing or wrong. Raises UnsupportedFeature if the catalog keeps no names itself.
    """
    if not isinstance(catalog, RegisteringCatalog):
        raise UnsupportedFeature(
            f"repair of {catalog!r}",
            "this catalog stores no table names apart from the files",
            "No repair is needed. For a table that lost files, see `tidelake table remove-missing-files`",
        )
    if name is not None and "." in name:
        identifier = Identifier.parse(name)
        if not identifier.is_plain:
            raise BadInput(
                f"{name!r} is a branch or a system table, but a catalog has only entries of whole tables; name the "
                "table"
            )
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
        raise BadInput(
            f"no database {name!r}: it is not in {catalog!r}, and {catalog.warehouse} has no directory for it"
        )
    catalog.create_database(name, if_not_exists=True)
