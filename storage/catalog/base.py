"""The interface of all catalogs, independent of where a catalog keeps its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.view import ViewStore
from tidelake.storage.ddl.schema_changes import CatalogChange
from tidelake.storage.kinds.system_tables.system_table import SystemTable
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField


class Catalog(Protocol):
    """A catalog of databases, tables and views.

    The name of a table is `database.table`; see `tidelake.storage.catalog.identifier` for branches.
    Every call raises BadInput for an invalid name, and for a database or table that does not exist.

    warehouse: the location of the tables, or the name that a server has for the catalog.
    options: the options with which the catalog was opened.
    """

    warehouse: str
    options: dict[str, str]

    @property
    def view_store(self) -> ViewStore | None:
        """The store of the catalog's views. None if the catalog can't keep views."""
        ...

    def list_databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        ...

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database. Raises BadInput if it exists, unless if_not_exists is set."""
        ...

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a database. Raises BadInput if it is not empty; with cascade its contents are dropped, too."""
        ...

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the tables, sorted, without the database's name."""
        ...

    def table_exists(self, name: str) -> bool: ...

    def create_table(
        self,
        name: str,
        columns: pa.Schema | Sequence[DataField],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Create a table without rows, at schema 0 (see `tidelake.storage.ddl.schema_creation`).

        Raises BadInput if the table exists. With if_not_exists an existing table is left unchanged, even if its
        columns differ.
        """
        ...

    def restore_table(self, name: str, schemas: Sequence[TableSchema]) -> None:
        """Create a table without rows, with all schema versions of another table.

        The data files of that other table can then be read in the new one.

        schemas: the versions in ascending order of their ids.

        Raises BadInput if a table of this name exists. Raises UnsupportedFeature if the catalog makes schemas itself.
        """
        ...

    def preview_table(
        self,
        name: str,
        columns: pa.Schema | Sequence[DataField],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> TableContext:
        """Return the table that `create_table` would create. Reads and writes nothing.

        Raises BadInput or UnsupportedFeature if the table can't be created. Does not check whether the name is taken.
        """
        ...

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Delete a table with all its files, including those of its branches and tag. Stop its writers first."""
        ...

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table. Stop its writers first. Raises BadInput if the new name exists."""
        ...

    def alter_table(self, name: str, changes: Sequence[CatalogChange]) -> TableSchema:
        """Apply all changes in one new version of the schema, and return it.

        If one change can't be made, none is applied.
        """
        ...

    def check_rewritable(self, name: str) -> None:
        """Raise UnsupportedFeature if this catalog can't publish the schema of a rewrite (`Redefinition`)."""
        ...

    def load(self, name: str, options: Mapping[str, str] | None = None) -> TableContext:
        """Return the table, or its branch, at the latest schema.

        options: dynamic options; they override those of the schema.
        """
        ...

    def format_table(self, name: str, options: Mapping[str, str] | None = None) -> TableContext | None:
        """Return the format table of this name (`tidelake.storage.kinds.format_tables`).

        Also returns an object table, if its schema is only in the catalog. Returns None for any other table, and if no
        table has this name.

        options: dynamic options; they override those of the table.
        """
        ...

    def warehouse_table(self, identifier: Identifier, options: Mapping[str, str] | None = None) -> SystemTable:
        """Return a system table of database `sys`."""
        ...


def table_properties(schema: TableSchema) -> dict[str, str]:
    """Return the properties that an entry of a table copies (`sync-all-properties`): its options and its keys.

    Source: Java `hive/HiveCatalog.java`, `jdbc/JdbcCatalog.java` (convertToPropertiesTableKey),
    `schema/TableSchema.java` (bucketKeys).
    """
    bucket_key = tuple(filter(None, schema.options.get("bucket-key", "").split(",")))
    keys = {
        "primary-key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket-key": bucket_key or schema.trimmed_primary_keys,
    }
    return {**schema.options, **{key: ",".join(names) for key, names in keys.items() if names}}
