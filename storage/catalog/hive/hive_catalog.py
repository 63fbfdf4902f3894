"""A catalog that keeps names in a Hive metastore.

The metastore knows which tables exist and where each is stored. Schemas and data are stored as in a file system
catalog. The columns and properties of a table in the metastore are a copy for other programs. Each schema change
updates that copy.

Source: Java `hive/HiveCatalog.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pymetastore.hive_metastore import ttypes

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.catalog.hive.format_tables import HiveFormatTables, is_made_by_paimon
from tidelake.storage.catalog.hive.hive_settings import HiveSettings
from tidelake.storage.catalog.hive.hive_views import HiveViews
from tidelake.storage.catalog.hive.partition_sync import HiveCommits, PartitionEntries
from tidelake.storage.catalog.hive.table_entries import has_partition_entries, is_external, is_paimon, is_view
from tidelake.storage.catalog.identifier import SYSTEM_DATABASE, Identifier, check_database_name
from tidelake.storage.catalog.view import ViewStore
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.location import LOCAL_SCHEME, scheme_of
from tidelake.storage.kinds.format_tables.definition import is_format_table, new_format_table, no_ordinary_table
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.read.expired_snapshots import newest_live_entries

_BATCH: Final = 300  # table entries requested in one call

_log = get_logger(__name__)


class HiveCatalog(FileSystemCatalog):
    """A catalog in a metastore, see `tidelake.storage.catalog.base.Catalog`.

    It can be pickled; a copy opens its own connections.
    """

    def __init__(
        self,
        io: FileIO,
        warehouse: str,
        settings: HiveSettings,
        *,
        table_defaults: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(io, warehouse, table_defaults=table_defaults, options=options)
        self._settings = settings
        self._is_case_sensitive = settings.is_case_sensitive
        self._client = settings.client
        self._style = settings.style
        self._format_tables = HiveFormatTables(settings.client, settings.style, settings.has_format_tables)
        self._snapshot_commit = HiveCommits(settings.client, settings.style, settings.locks)

    def __repr__(self) -> str:
        return f"HiveCatalog({self.warehouse!r}, {str(self._client.address)!r})"

    @property
    def view_store(self) -> ViewStore:
        return HiveViews(self._client)

    # ------------------------------------------------------------ databases

    def list_databases(self) -> list[str]:
        return sorted(self._client.read(lambda c: c.get_all_databases()))

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        check_database_name(name)
        self._check_letters(name)
        if name == SYSTEM_DATABASE:
            raise BadInput(f"the database name {name!r} is reserved by Paimon; choose another name")
        location = super()._database_path(name)
        if self._style.keeps_locations_apart:
            self._io.make_directory(location)
        try:
            self._client.change(lambda c: c.create_database(self._style.new_database(name, location)))
        except ttypes.AlreadyExistsException:
            if not if_not_exists:
                raise BadInput(f"database {name!r} already exists in {self!r}; choose another name") from None

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """See Catalog. Raises BadInput if the database contains tables that Paimon did not create."""
        check_database_name(name)
        if self._database(name) is None:
            if if_exists:
                return
            raise self._no_database(name)
        existing = sorted(self._client.read(lambda c: c.get_all_tables(name)))
        if existing and not cascade:
            raise BadInput(
                f"database {name!r} is not empty: it holds {', '.join(existing[:5])}; drop with cascade=True"
            )
        foreign = [
            entry.tableName
            for entry in self._entries(name, existing)
            if not is_paimon(entry) and not (self._format_tables.is_listed(entry) and is_made_by_paimon(entry))
        ]
        if foreign:
            raise BadInput(
                f"database {name!r} contains tables that are not Paimon tables: {', '.join(sorted(foreign)[:5])}; "
                "nothing was dropped. Drop them with Hive first"
            )
        for table in existing:
            self.drop_table(f"{name}.{table}", if_exists=True)
        location = self._database_path(name)
        self._client.change(lambda c: c.drop_database(name, False, False))
        if not self._io.list_directory(location):
            self._io.delete_directory(location)

    # ------------------------------------------------------------ tables

    def list_tables(self, database: str) -> list[str]:
        """See Catalog. Returns Paimon's tables and format tables."""
        check_database_name(database)
        if self._database(database) is None:
            raise self._no_database(database)
        names = self._client.read(lambda c: c.get_all_tables(database))
        entries = self._entries(database, names)
        return sorted(e.tableName for e in entries if is_paimon(e) or self._format_tables.is_listed(e))

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
        """See Catalog."""
        keys: Any = {"primary_key": primary_key, "partition_by": partition_by, "comment": comment}
        wanted = {**self._table_defaults, **(options or {})}
        if not is_format_table(wanted):
            super().create_table(name, columns, options=options, if_not_exists=if_not_exists, **keys)
            return
        identifier = Identifier.parse(name)
        if not identifier.is_plain:
            raise BadInput(f"{name!r}: a branch or a system table can't be created; name the table")
        schema = new_format_table(columns, options=wanted, time_ms=self._now_ms(), **keys)
        self._check_letters(identifier.database, identifier.table, *schema.names)
        if self._database(identifier.database) is None:
            raise self._no_database(identifier.database)
        is_new = self._format_tables.create(identifier, schema, self._paths(identifier).location)
        if not is_new and not if_not_exists:
            raise BadInput(f"table {identifier} already exists; choose another name, or pass if_not_exists=True")

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """See Catalog. The files of an external table stay."""
        identifier = Identifier.parse(name)
        entry = self._entry(identifier) if identifier.is_plain else None
        if entry is not None and self._format_tables.is_listed(entry):
            self._format_tables.drop(identifier, entry)
        else:
            super().drop_table(name, if_exists=if_exists)

    def format_table(self, name: str, options: Mapping[str, str] | None = None) -> TableContext | None:
        """See Catalog. Tables that Hive created in these formats are format tables, too."""
        identifier = Identifier.parse(name)
        entry = self._entry(identifier) if identifier.is_plain else None
        found = self._format_tables.find(identifier, entry)
        if found is None:
            return None
        schema, location = found
        self._check_store(identifier, location)
        return TableContext(
            self._io, location, identifier.full_name, schema, TableOptions(schema.options, options or {})
        )

    def _create(self, identifier: Identifier, schema: TableSchema) -> bool:
        """Write the schema first, then the entry.

        A crash in between leaves a directory. The next creation of the same table takes it over.
        """
        entry = self._entry(identifier)
        if entry is not None:
            if is_paimon(entry):
                return False
            what = "a view" if is_view(entry) else "a table of another kind"
            raise BadInput(f"{identifier} is {what} in {self!r}; choose another name")
        location = self._paths(identifier).location
        if not super()._create(identifier, schema):
            self._check_same_table(identifier, schema)
        new = self._style.new_table(identifier, schema, location)
        try:
            self._client.change(lambda c: c.create_table(new))
        except ttypes.AlreadyExistsException:
            return False
        except (ttypes.InvalidObjectException, ttypes.MetaException) as e:
            self._io.delete_directory(self._paths(identifier).schema_directory)
            raise BadInput(f"table {identifier} can't be created: {self!r} refuses it: {e.message}") from e
        return True

    def _check_same_table(self, identifier: Identifier, schema: TableSchema) -> None:
        found = self._schemas(identifier).latest()
        if found is None or replace(found, id=0, time_ms=schema.time_ms) != schema:
            raise BadInput(
                f"table {identifier} can't be created: {self._paths(identifier).location} contains a table with "
                "another schema that is not in the metastore; move it away, or choose another name"
            )

    def _refuse_leftovers(self, identifier: Identifier) -> None:
        """Allow the files of an external table that was dropped: its files stay, and it may be created again."""
        if not self._style.is_external or self._schemas(identifier).latest_id() is None:
            super()._refuse_leftovers(identifier)

    def _delete(self, identifier: Identifier) -> None:
        """Delete the entry first. A crash then leaves a directory without a table, which blocks this name.

        The files of an external table stay.
        """
        entry = self._entry(identifier)
        location = self._paths(identifier)
        if entry is not None:
            self._client.change(lambda c: c.drop_table(identifier.database, identifier.table, False))
        if entry is not None and is_external(entry):
            _log.warning("files of the dropped external table stay", table=str(identifier), there=location.location)
            return
        for place in (location.schema_directory, location.location):
            self._io.delete_directory(place)

    def _move(self, old: Identifier, new: Identifier) -> None:
        """Move the files first, then the entry.

        The files are not moved if the table is external, or if it is not in its database's directory.
        """
        if self._entry(new) is not None:
            raise FileExistsError
        entry = self._required_entry(old)
        source = self._paths(old).location
        target = f"{self._database_path(new.database)}/{new.table}"
        moves = not is_external(entry) and source == f"{self._database_path(old.database)}/{old.table}"
        if moves:
            self._io.rename_directory(source, target)
            self._style.set_location(entry, target)
        entry.dbName, entry.tableName = new.database, new.table
        try:
            self._client.change(lambda c: c.alter_table(old.database, old.table, entry))
        except Exception as e:
            if moves:
                self._io.rename_directory(target, source)
            if isinstance(e, ttypes.InvalidOperationException):
                raise BadInput(f"{old} can't be renamed: {self!r} refuses it: {e.message}") from e
            raise

    # ------------------------------------------------------------ changes

    def _check_registrable(self, identifier: Identifier, schema: TableSchema) -> None:
        """Update the entry before the schema file is published: the metastore may refuse a column's new type."""
        if schema.id:
            self._show(identifier, schema)

    def _altered(self, identifier: Identifier, schema: TableSchema) -> None:
        """Update the entry again: another change may have happened in between, or an earlier one failed half-way."""
        self._show(identifier, schema)

    def _show(self, identifier: Identifier, schema: TableSchema, older: Iterable[int] = ()) -> None:
        """Update the entry to show this schema.

        older: ids of further versions whose options the entry may still contain. The version before `schema` is always
            considered.
        """
        if identifier.branch != DEFAULT_BRANCH:
            return
        entry, before = self._required_entry(identifier), self._required_entry(identifier)
        schemas = self._schemas(identifier)
        earlier = {key for i in (schema.id - 1, *older) if i >= 0 for key in schemas.get(i).options}
        self._style.update(entry, schema, removed=tuple(sorted(earlier - schema.options.keys())))
        if entry == before:
            return
        properties = {"DO_NOT_UPDATE_STATS": str(self._settings.skips_statistics).lower()}
        if self._settings.cascades:
            properties["CASCADE"] = "true"
        context = ttypes.EnvironmentContext(properties=properties)
        try:
            self._client.change(
                lambda c: c.alter_table_with_environment_context(identifier.database, identifier.table, entry, context)
            )
        except (ttypes.InvalidOperationException, ttypes.MetaException) as e:
            raise BadInput(f"table {identifier} can't be altered: {self!r} refuses it: {e.message}") from e

    # ------------------------------------------------------------ repair from the files

    def databases_of_files(self) -> list[str]:
        return super().list_databases()

    def register(self, identifier: Identifier) -> bool:
        """See `tidelake.storage.catalog.entry_repair`. Adds missing partitions to the metastore, and removes none, like
        Java."""
        schema = self._schemas(identifier).latest()
        if schema is None:
            raise self._no_table(identifier)
        before = self._entry(identifier)
        if before is None:
            new = self._style.new_table(identifier, schema, self._paths(identifier).location)
            self._client.change(lambda c: c.create_table(new))
        elif not is_paimon(before):
            raise BadInput(
                f"{identifier} is a table of another kind in {self!r}: drop it there, or rename the Paimon table"
            )
        else:
            self._show(identifier, schema, [i for i in self._schemas(identifier).ids() if i < schema.id])
        added = 0
        if has_partition_entries(schema):
            context = self.load(str(identifier))
            live = {entry.partition for entry in newest_live_entries(context)}
            entries = PartitionEntries(self._client, self._style)
            known = entries.count(context)
            entries.add(context, live)
            added = entries.count(context) - known
        return bool(added) or self._entry(identifier) != before

    # ------------------------------------------------------------ what the metastore says

    def _is_registered(self, identifier: Identifier) -> bool:
        entry = self._entry(identifier)
        return entry is not None and is_paimon(entry)

    def _entry(self, identifier: Identifier) -> Any:
        """Return the metastore's entry of a table. None if it has no entry."""
        try:
            return self._client.read(lambda c: c.get_table(identifier.database, identifier.table))
        except ttypes.NoSuchObjectException:
            return None

    def _no_table(self, identifier: Identifier) -> BadInput:
        if identifier.database in self.list_databases() and self._format_tables.find(
            identifier, self._entry(identifier)
        ):
            return no_ordinary_table(str(identifier))
        return super()._no_table(identifier)

    def _required_entry(self, identifier: Identifier) -> Any:
        entry = self._entry(identifier)
        if entry is None:
            raise self._no_table(identifier)
        return entry

    def _entries(self, database: str, names: Sequence[str]) -> Iterator[Any]:
        for start in range(0, len(names), _BATCH):
            yield from self._client.read(_table_objects(database, list(names[start : start + _BATCH])))

    def _database(self, name: str) -> Any:
        """Return the metastore's entry of a database. None if it has no entry."""
        try:
            return self._client.read(lambda c: c.get_database(name))
        except ttypes.NoSuchObjectException:
            return None

    def _database_path(self, name: str) -> str:
        database = self._database(name)
        location = None if database is None else self._style.database_location(database)
        return location or super()._database_path(name)

    def _table_path(self, identifier: Identifier) -> str:
        entry = self._entry(identifier)
        location = self._style.location(entry) if entry is not None and is_paimon(entry) else None
        if location is None:
            return super()._table_path(identifier)
        self._check_store(identifier, location)
        return location

    def _check_store(self, identifier: Identifier, location: str) -> None:
        if (scheme_of(location) == LOCAL_SCHEME) != (scheme_of(self.warehouse) == LOCAL_SCHEME):
            raise UnsupportedFeature(
                f"table {identifier} at {location}",
                f"it is in another kind of store than the warehouse {self.warehouse}",
                "Open the catalog with a warehouse in that store",
            )

    # ------------------------------------------------------------ locks

    @contextmanager
    def _excluding_others(self, *identifiers: Identifier) -> Iterator[None]:
        with ExitStack() as stack:
            if self._settings.locks is not None:
                for identifier in identifiers:
                    stack.enter_context(self._settings.locks.held(identifier))
            yield


def _table_objects(database: str, names: list[str]) -> Callable[[Any], list[Any]]:
    return lambda c: c.get_table_objects_by_name(database, names)
