"""A catalog that keeps names in a database, and tables in a warehouse.

A row means that a table exists. Its schemas and data have the same locations as in a file system catalog. So a
directory without a row is not a table here, and a row without a schema is a table that can't be opened.

Source: Java `jdbc/JdbcCatalog.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.catalog.base import table_properties
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.catalog.identifier import SYSTEM_DATABASE, Identifier, check_database_name
from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress
from tidelake.storage.catalog.jdbc.database_lock import LockSettings, LockTable
from tidelake.storage.catalog.jdbc.jdbc_views import JdbcViews
from tidelake.storage.catalog.jdbc.names import NameStore
from tidelake.storage.catalog.jdbc.paimon_tables import PROPERTY_VALUE_LENGTH, make_tables
from tidelake.storage.catalog.locked_commits import LockedCommits
from tidelake.storage.catalog.view import ViewStore
from tidelake.storage.ddl.schema_changes import CatalogChange
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.kinds.format_tables.definition import no_ordinary_table
from tidelake.storage.kinds.format_tables.objects import OBJECT_TABLE, is_object_table, new_object_table
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField


@dataclass(frozen=True, slots=True)
class JdbcSettings:
    """The settings of a JDBC catalog, from its options.

    names: the databases, tables and views, as rows.
    locks: the locks of tables. None if commits take no lock.
    mirrors_properties: whether a table's options are also stored in the database (`sync-all-properties`).
    """

    names: NameStore
    locks: LockTable | None
    mirrors_properties: bool

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_object_store: bool) -> JdbcSettings:
        """Read the options. Opens no connection. Raises the errors of `DatabaseAddress.of`."""
        address = DatabaseAddress.of(options)
        values = CatalogValues(options)
        key = values.catalog_key
        settings = LockSettings(
            values.lock_check_max_sleep_ms, values.lock_acquire_timeout_ms, values.lock_key_max_length
        )
        has_locks = values.has_locks(is_object_store=is_object_store)
        return cls(
            NameStore(address, key),
            LockTable(address, key, settings) if has_locks else None,
            values.mirrors_properties,
        )


class JdbcCatalog(FileSystemCatalog):
    """A catalog in a database, see `tidelake.storage.catalog.base.Catalog`.

    It can be pickled; a copy opens its own connections.
    """

    def __init__(
        self,
        io: FileIO,
        warehouse: str,
        settings: JdbcSettings,
        *,
        table_defaults: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(io, warehouse, table_defaults=table_defaults, options=options)
        self._names = settings.names
        self._locks = settings.locks
        self._mirrors_properties = settings.mirrors_properties
        if settings.locks is not None:
            self._snapshot_commit = LockedCommits(settings.locks)
        make_tables(settings.names.address, settings.locks.settings.key_length_max if settings.locks else None)

    def __repr__(self) -> str:
        return f"JdbcCatalog({self.warehouse!r}, {self._names.address.shown!r})"

    @property
    def view_store(self) -> ViewStore:
        return JdbcViews(self._names)

    # ------------------------------------------------------------ databases

    def list_databases(self) -> list[str]:
        return self._names.databases()

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        check_database_name(name)
        if name == SYSTEM_DATABASE:
            raise BadInput(f"the database name {name!r} is reserved by Paimon; choose another name")
        self._check_letters(name)
        is_new = not self._names.has_database(name) and self._names.add_database(name, self._database_path(name))
        if not is_new and not if_not_exists:
            raise BadInput(f"database {name!r} already exists in {self!r}; choose another name")

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """See Catalog. Deletes the files of the tables. Other files in the database's directory stay."""
        check_database_name(name)
        if not self._names.has_database(name):
            if if_exists:
                return
            raise self._no_database(name)
        entries = [*self._names.tables(name), *self._names.views(name)]
        if entries and not cascade:
            raise BadInput(f"database {name!r} is not empty: it holds {', '.join(entries[:5])}; drop with cascade=True")
        for table in self._names.tables(name):
            self.drop_table(f"{name}.{table}", if_exists=True)
        self._names.drop_database(name)
        if not self._io.list_directory(self._database_path(name)):
            self._io.delete_directory(self._database_path(name))

    # ------------------------------------------------------------ tables

    def list_tables(self, database: str) -> list[str]:
        check_database_name(database)
        tables = self._names.tables(database)
        if not tables and not self._names.has_database(database):
            raise self._no_database(database)
        return tables

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
        """See Catalog.

        The schema of an object table is stored at the usual location of a table, its files elsewhere.
        """
        if not is_object_table(options):
            super().create_table(
                name,
                columns,
                primary_key=primary_key,
                partition_by=partition_by,
                options=options,
                comment=comment,
                if_not_exists=if_not_exists,
            )
            return
        schema = new_object_table(columns, [*primary_key, *partition_by], options or {}, comment, self._now_ms())
        identifier = Identifier.parse(name)
        if not identifier.is_plain or not self._names.has_database(identifier.database):
            raise self._no_table(identifier)
        self._check_letters(identifier.database)
        self._check_letters(identifier.table)
        with self._excluding_others(identifier):
            is_new = not self._has_schema(identifier)
            if is_new:
                self._refuse_leftovers(identifier)
                is_new = self._create(identifier, schema)
        if not is_new and not if_not_exists:
            raise BadInput(f"table {identifier} already exists; choose another name, or pass if_not_exists=True")

    def alter_table(self, name: str, changes: Sequence[CatalogChange]) -> TableSchema:
        """See Catalog. The columns of object tables never change."""
        if is_object_table(self.load(name).options):
            raise no_ordinary_table(name, OBJECT_TABLE)
        return super().alter_table(name, changes)

    def _is_registered(self, identifier: Identifier) -> bool:
        return self._names.has_table(identifier.database, identifier.table)

    def _create(self, identifier: Identifier, schema: TableSchema) -> bool:
        """Write the schema first, then the row.

        A crash in between leaves a directory. The next creation of the same table takes it over.
        """
        self._refuse_view(identifier)
        self._check_registrable(identifier, schema)
        if not super()._create(identifier, schema):
            self._check_same_table(identifier, schema)
        return self._names.add_table(identifier.database, identifier.table, self._properties(schema))

    def _check_same_table(self, identifier: Identifier, schema: TableSchema) -> None:
        schemas = self._schemas(identifier)
        found = schemas.latest()
        if found is None or replace(found, time_ms=schema.time_ms) != schema:
            raise BadInput(
                f"table {identifier} can't be created: {self._paths(identifier).location} contains a table with "
                "another schema that is not in this catalog; move it away, or choose another name"
            )

    def _delete(self, identifier: Identifier) -> None:
        """Delete the row first.

        A crash then leaves a directory without a table; it blocks a new table of that name.
        """
        self._names.drop_table(identifier.database, identifier.table)
        super()._delete(identifier)

    def _move(self, old: Identifier, new: Identifier) -> None:
        self._refuse_view(new)
        if not self._names.rename_table(old.database, old.table, new.database, new.table):
            raise FileExistsError
        try:
            super()._move(old, new)
        except BaseException:
            self._names.rename_table(new.database, new.table, old.database, old.table)
            raise

    def _refuse_view(self, identifier: Identifier) -> None:
        if self._names.has_view(identifier.database, identifier.table):
            raise BadInput(f"{identifier} is the name of a view; choose another name")

    def _no_table(self, identifier: Identifier) -> BadInput:
        has_files = self._io.exists(self._paths(identifier).schema(0))
        if has_files and not self._is_registered(identifier):
            return BadInput(
                f"no table {identifier} in {self!r}: {self._paths(identifier).location} contains one, but it has no "
                "row in paimon_tables. Open the warehouse without metastore = jdbc, or with the catalog-key of the "
                "table"
            )
        return super()._no_table(identifier)

    # ------------------------------------------------------------ properties

    def _altered(self, identifier: Identifier, schema: TableSchema) -> None:
        if self._mirrors_properties and identifier.branch == DEFAULT_BRANCH:
            self._names.set_properties(identifier.database, identifier.table, self._properties(schema))

    def _check_registrable(self, identifier: Identifier, schema: TableSchema) -> None:
        for key, value in self._properties(schema).items():
            if len(value) > PROPERTY_VALUE_LENGTH:
                raise BadInput(
                    f"{key} has {len(value)} characters, but the catalog's database allows only "
                    f"{PROPERTY_VALUE_LENGTH}; shorten it, or open the catalog with sync-all-properties = false"
                )

    def _properties(self, schema: TableSchema) -> dict[str, str]:
        return table_properties(schema) if self._mirrors_properties else {}

    # ------------------------------------------------------------ repair from the files

    def databases_of_files(self) -> list[str]:
        return super().list_databases()

    def register(self, identifier: Identifier) -> bool:
        """See `tidelake.storage.catalog.entry_repair`."""
        schema = self._schemas(identifier).latest()
        if schema is None:
            raise self._no_table(identifier)
        self._refuse_view(identifier)
        self._check_registrable(identifier, schema)
        database, table, properties = identifier.database, identifier.table, self._properties(schema)
        if self._names.add_table(database, table, properties):
            return True
        if not self._mirrors_properties or self._names.properties(database, table) == properties:
            return False
        self._names.set_properties(database, table, properties)
        return True

    # ------------------------------------------------------------ locks

    @contextmanager
    def _excluding_others(self, *identifiers: Identifier) -> Iterator[None]:
        with ExitStack() as stack:
            for identifier in identifiers if self._locks is not None else ():
                assert self._locks is not None
                stack.enter_context(self._locks.held(identifier))
            yield
