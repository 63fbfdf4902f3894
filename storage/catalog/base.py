"""What a catalog does, wherever it keeps its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from storage.catalog.identifier import Identifier
from storage.catalog.view import ViewStore
from storage.ddl.schema_changes import SchemaChange
from storage.schema.table_schema import TableSchema
from storage.system_tables.base import SystemTable
from storage.table import TableContext
from storage.types import DataField


class Catalog(Protocol):
    """Names of tables are `database.table`; see `storage.catalog.identifier` for branches.

    Every call raises BadInput for an invalid name, and for a database or table that does not exist.

    warehouse: where tables lie, or what a server calls the catalog.
    options: as the catalog was opened.
    """

    warehouse: str
    options: dict[str, str]

    @property
    def view_store(self) -> ViewStore | None:
        """Where views are kept; None of a catalog that has no place for them."""
        ...

    def list_databases(self) -> list[str]:
        """Sorted."""
        ...

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Raises BadInput when there is one, unless if_not_exists."""
        ...

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Raises BadInput when it holds anything, unless cascade: then all that goes too."""
        ...

    def list_tables(self, database: str) -> list[str]:
        """Sorted, without the database's name."""
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
        """A table without rows, at schema 0 (see `storage.ddl.schema_creation`).

        Raises BadInput when there is one, unless if_not_exists: then it stays as it is, whatever its columns.
        """
        ...

    def restore_table(self, name: str, schemas: Sequence[TableSchema]) -> None:
        """A table without rows, with all versions of another table's schema: files of that one can be read in it.

        schemas: by their ids, ascending.

        Raises BadInput when there is a table of this name, UnsupportedFeature of a catalog that makes schemas itself.
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
        """The table as `create_table` would make it. Nothing is read or written.

        Raises BadInput and UnsupportedFeature for what can't be created, even if a table of this name exists.
        """
        ...

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Delete a table with all its files, also those of its branches and tags. Stop its writers first."""
        ...

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table. Stop its writers first. Raises BadInput if the new name exists."""
        ...

    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> TableSchema:
        """All changes in one new version of the schema, which it returns; none of them when one can't be made."""
        ...

    def load(self, name: str, options: Mapping[str, str] | None = None) -> TableContext:
        """The table, or the branch of it, at its latest schema.

        options: over those of the schema.
        """
        ...

    def format_table(self, name: str, options: Mapping[str, str] | None = None) -> TableContext | None:
        """The format table of this name (`storage.format_tables`), or the object table where only the catalog has its
        schema; None when the name is another table's, or no table's.

        options: over those of the table.
        """
        ...

    def warehouse_table(self, identifier: Identifier, options: Mapping[str, str] | None = None) -> SystemTable:
        """identifier: of a table in database `sys`."""
        ...
