"""A catalog that sends requests to a server. Data, manifests and schemas are read from the location that it returns.

Source: Java `rest/RESTCatalog.java`, `rest/RESTApi.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.identifier import Identifier, check_database_name, check_own_database, no_database
from tidelake.storage.catalog.options import check_letters, is_case_sensitive
from tidelake.storage.catalog.rest.change_messages import change_message, schema_message
from tidelake.storage.catalog.rest.rest_client import Refused, RestClient
from tidelake.storage.catalog.rest.rest_views import RestViews
from tidelake.storage.catalog.rest.server_commit import ServerCommits
from tidelake.storage.catalog.rest.token_file_io import TokenFileIO
from tidelake.storage.catalog.view import ViewStore
from tidelake.storage.ddl.schema_changes import CatalogChange, apply_changes
from tidelake.storage.ddl.schema_creation import create_schema
from tidelake.storage.fileio import FileIO, open_file_io
from tidelake.storage.kinds.format_tables.definition import is_format_table, new_format_table, no_ordinary_table
from tidelake.storage.kinds.format_tables.objects import OBJECT_COLUMNS, is_object_table, new_object_table
from tidelake.storage.kinds.system_tables.all_tables import warehouse_table
from tidelake.storage.kinds.system_tables.system_table import SystemTable
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.option_support import check_alterable, check_creatable
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, field_from_json
from tidelake.storage.read.time_ranges import check_times_fit

_NOT_FOUND, _EXISTS = 404, 409


class RestCatalog:
    """A catalog on a server, see `tidelake.storage.catalog.base.Catalog`. It can be pickled; a copy opens its own
    connections.

    warehouse: the server's name for the catalog. Some servers use a path as the name.
    store_options: the options of the store that contains the tables' files.
    table_defaults: options of new tables, unless the table sets them.
    options: the options with which the catalog was opened.
    io: the file access to use, instead of the store that a table's path names.
    """

    def __init__(
        self,
        client: RestClient,
        warehouse: str,
        *,
        store_options: Mapping[str, str],
        table_defaults: Mapping[str, str],
        options: Mapping[str, str],
        io: FileIO | None = None,
    ) -> None:
        defaults, overrides = client.config(warehouse)
        given = {**defaults, **overrides}
        self._client = client.with_server_options(given)
        self._gives_tokens = CatalogValues({**defaults, **options, **overrides}).gives_data_tokens
        self.warehouse = warehouse
        self.options = dict(options)
        self._store_options = {**defaults, **store_options, **overrides}
        self._table_defaults = dict(table_defaults)
        self._io = io

    def __repr__(self) -> str:
        return f"RestCatalog({self.warehouse!r}, {self._client.uri!r})"

    @property
    def view_store(self) -> ViewStore:
        return RestViews(self._client)

    # ------------------------------------------------------------ databases

    def list_databases(self) -> list[str]:
        return sorted(self._client.pages("databases", "databases"))

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        check_own_database(name)
        self._check_letters(name)
        try:
            self._client.post({"name": name, "options": {}}, "databases")
        except Refused as e:
            if e.status != _EXISTS or not if_not_exists:
                raise BadInput(f"database {name!r} can't be created: {e}") from e

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        check_own_database(name)
        if name not in self.list_databases():
            if if_exists:
                return
            raise self._no_database(name)
        tables = self.list_tables(name)
        if tables and not cascade:
            raise BadInput(f"database {name!r} is not empty: it holds {', '.join(tables[:5])}; drop with cascade=True")
        with self._refusal_as_bad_input(f"database {name!r} can't be dropped"):
            self._client.delete("databases", name)

    # ------------------------------------------------------------ tables

    def list_tables(self, database: str) -> list[str]:
        check_database_name(database)
        try:
            return sorted(self._client.pages("tables", "databases", database, "tables"))
        except Refused as e:
            raise (self._no_database(database) if e.status == _NOT_FOUND else BadInput(str(e))) from e

    def table_exists(self, name: str) -> bool:
        return self._find(Identifier.parse(name)) is not None

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
        identifier = _plain(name)
        wanted = {**self._table_defaults, **(options or {})}
        if is_format_table(wanted):
            schema = new_format_table(
                columns,
                primary_key=primary_key,
                partition_by=partition_by,
                options=wanted,
                comment=comment,
                time_ms=epoch_ms(),
            )
        elif is_object_table(wanted):
            schema = new_object_table(columns, [*primary_key, *partition_by], wanted, comment, epoch_ms())
        else:
            schema = self._new_schema(columns, primary_key, partition_by, options, comment)
            check_creatable(str(identifier), schema)
        self._check_letters(identifier.database, identifier.table, *schema.names)
        named = {"database": identifier.database, "object": identifier.table}
        try:
            body = {"identifier": named, "schema": schema_message(schema)}
            self._client.post(body, "databases", identifier.database, "tables")
        except Refused as e:
            if e.status == _EXISTS:
                if if_not_exists:
                    return
                raise BadInput(
                    f"table {identifier} already exists; choose another name, or pass if_not_exists=True"
                ) from e
            raise (self._no_database(identifier.database) if e.status == _NOT_FOUND else BadInput(str(e))) from e

    def restore_table(self, name: str, schemas: Sequence[TableSchema]) -> None:
        """See Catalog. The server assigns the column ids, so it can only reproduce a schema that was never altered."""
        newest = schemas[-1]
        if len(schemas) == 1:
            self.create_table(
                name,
                newest.fields,
                primary_key=newest.primary_keys,
                partition_by=newest.partition_keys,
                options=newest.options,
                comment=newest.comment,
            )
            if self.load(name).schema.fields == newest.fields:
                return
            self.drop_table(name)
        raise UnsupportedFeature(
            f"{name} with the schema of another table, in {self!r}",
            "that schema was altered, and a REST server assigns its own column ids",
            "create the table, and write the rows of a scan",
        )

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
        """See Catalog. Only the server knows the location of a new table, so the returned one has a dummy location."""
        identifier = _plain(name)
        schema = self._new_schema(columns, primary_key, partition_by, options, comment)
        self._check_letters(identifier.database, identifier.table, *schema.names)
        location = f"memory://not-yet/{identifier.database}/{identifier.table}"
        return TableContext(
            open_file_io(location), location, identifier.full_name, schema, TableOptions(schema.options)
        )

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """See Catalog. The server decides when the files are deleted."""
        identifier = _plain(name)
        try:
            self._client.delete("databases", identifier.database, "tables", identifier.table)
        except Refused as e:
            if e.status != _NOT_FOUND:
                raise BadInput(f"table {identifier} can't be dropped: {e}") from e
            if not if_exists:
                raise self._no_table(identifier) from e

    def rename_table(self, name: str, new_name: str) -> None:
        old, new = _plain(name), _plain(new_name)
        self._check_letters(new.database, new.table)
        if self._find(old) is None:
            raise self._no_table(old)
        named = [{"database": table.database, "object": table.table} for table in (old, new)]
        with self._refusal_as_bad_input(f"{new} can't be the new name of {old}"):
            self._client.post({"source": named[0], "destination": named[1]}, "tables", "rename")

    def alter_table(self, name: str, changes: Sequence[CatalogChange]) -> TableSchema:
        """See Catalog. The changes are checked here, then the server applies them to the schema that it has by then."""
        context = self.load(name)
        has_snapshots = context.snapshots.latest_id() is not None
        evolved = apply_changes(context.schema, changes, has_snapshots=has_snapshots, time_ms=epoch_ms())
        check_alterable(context.name, context.schema, evolved, context.branch)
        check_times_fit(context, evolved)
        self._check_letters(*evolved.names)
        identifier = Identifier.parse(name)
        body = {"changes": [change_message(change) for change in changes]}
        with self._refusal_as_bad_input(f"table {identifier} can't be altered"):
            self._client.post(body, "databases", identifier.database, "tables", _object_name(identifier))
        return self.load(name).schema

    def check_rewritable(self, name: str) -> None:
        """See Catalog. Paimon's REST API knows no change of keys and of options that files depend on."""
        raise UnsupportedFeature(
            f"{name}: a rewrite through a REST server",
            "its API can't change keys, buckets and merge engines of a table with rows",
            "Rewrite the table through the catalog that the server itself uses (`-w` with its warehouse)",
        )

    def load(self, name: str, options: Mapping[str, str] | None = None) -> TableContext:
        """See Catalog. The dynamic option `branch` selects a branch, like `$branch_NAME` in the name."""
        identifier = Identifier.parse(name)
        if identifier.system_table is not None:
            raise UnsupportedFeature(str(identifier), "a system table has no schema", f"Open {identifier.full_name}")
        branch = (options or {}).get("branch", identifier.branch)
        identifier = Identifier(identifier.database, identifier.table, branch)
        found = self._find(identifier)
        if found is None:
            raise self._no_table(identifier)
        if _is_folder_table(found):
            raise no_ordinary_table(str(identifier), found["schema"]["options"]["type"])
        location = str(found["path"]).rstrip("/")
        io = self._io or self._file_io(identifier, location)
        schema = SchemaStore(io, TablePaths(location, branch)).get(int(found["schemaId"]))
        commits = ServerCommits(self._client, identifier.database, _object_name(identifier), str(found["id"]))
        stored = TableOptions(schema.options)
        return TableContext(io, location, identifier.full_name, schema, stored, branch, commits).opened_with(options)

    def format_table(self, name: str, options: Mapping[str, str] | None = None) -> TableContext | None:
        """See Catalog."""
        identifier = Identifier.parse(name)
        found = self._find(identifier) if identifier.is_plain else None
        if found is None or not _is_folder_table(found):
            return None
        definition = found["schema"]
        fields = tuple(field_from_json(column) for column in definition["fields"])
        if is_object_table(definition["options"]):
            fields = OBJECT_COLUMNS  # fixed, regardless of the columns that the server stores
        schema = TableSchema(
            int(found["schemaId"]),
            fields,
            max((field.id for field in fields), default=-1),
            tuple(definition["partitionKeys"]),
            (),
            definition["options"],
            definition.get("comment"),
        )
        location = str(found["path"]).rstrip("/")
        io = self._io or self._file_io(identifier, location)
        return TableContext(io, location, identifier.full_name, schema, TableOptions(schema.options, options or {}))

    def _file_io(self, identifier: Identifier, location: str) -> FileIO:
        if not self._gives_tokens:
            return open_file_io(location, self._store_options)
        resource = ("databases", identifier.database, "tables", _object_name(identifier))
        return TokenFileIO(self._client, resource, location, self._store_options)

    # ------------------------------------------------------------ system tables

    def warehouse_table(self, identifier: Identifier, options: Mapping[str, str] | None = None) -> SystemTable:
        """See Catalog. Raises BadInput if no such table exists."""
        place = "memory://not-a-place"
        nothing = TableSchema(0, (), -1)
        context = TableContext(open_file_io(place), place, str(identifier), nothing, TableOptions(options or {}))
        return warehouse_table(context, identifier.table, self._all_tables, self.options)

    def _all_tables(self) -> Iterator[TableContext]:
        for database in self.list_databases():
            for table in self.list_tables(database):
                with suppress(BadInput):
                    yield self.load(f"{database}.{table}")

    def _check_letters(self, *names: str) -> None:
        if not is_case_sensitive(self.options):
            check_letters(names)

    # ------------------------------------------------------------ what the server says

    def _find(self, identifier: Identifier) -> dict[str, Any] | None:
        try:
            return self._client.get("databases", identifier.database, "tables", _object_name(identifier))
        except Refused as e:
            if e.status == _NOT_FOUND:
                return None
            raise BadInput(str(e)) from e

    def _new_schema(
        self,
        columns: pa.Schema | Sequence[DataField],
        primary_key: Sequence[str],
        partition_by: Sequence[str],
        options: Mapping[str, str] | None,
        comment: str | None,
    ) -> TableSchema:
        return create_schema(
            columns,
            primary_key=primary_key,
            partition_by=partition_by,
            options={**self._table_defaults, **(options or {})},
            comment=comment,
            time_ms=epoch_ms(),
        )

    @contextmanager
    def _refusal_as_bad_input(self, what: str) -> Iterator[None]:
        try:
            yield
        except Refused as e:
            raise BadInput(f"{what}: {e}") from e

    def _no_database(self, name: str) -> BadInput:
        return no_database(name, repr(self), self.list_databases())

    def _no_table(self, identifier: Identifier) -> BadInput:
        if identifier.database not in self.list_databases():
            return self._no_database(identifier.database)
        main = Identifier(identifier.database, identifier.table)
        if identifier.branch != DEFAULT_BRANCH and self._find(main) is not None:
            return BadInput(f"table {main} has no branch {identifier.branch!r}")
        tables = self.list_tables(identifier.database)
        hint = did_you_mean(identifier.table, tables, prefix=f"{identifier.database}.")
        return BadInput(f"no table {main}{hint} (create_table creates one)")


def _is_folder_table(found: Mapping[str, Any]) -> bool:
    options = found["schema"]["options"]
    return is_format_table(options) or is_object_table(options)


def _plain(name: str) -> Identifier:
    identifier = Identifier.parse(name)
    check_own_database(identifier.database)
    if not identifier.is_plain:
        raise BadInput(f"{name!r} is a branch or a system table; name the table: {identifier.full_name!r}")
    return identifier


def _object_name(identifier: Identifier) -> str:
    return str(identifier).partition(".")[2]
