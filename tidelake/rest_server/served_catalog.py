"""The resources of a catalog: configuration, databases, tables, views, and functions, which it lacks.

Source: Java `rest/RESTApi.java` and `rest/RESTCatalog.java` (what clients send and expect),
`rest/RESTCatalogServer.java` in Java's tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self
from urllib.parse import unquote_plus

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.secrets import SECRET_NAME
from tidelake.rest_server.answers import (
    Members,
    Refusal,
    Resource,
    missing,
    name_filter,
    not_offered,
    page,
    taken,
)
from tidelake.rest_server.requests import AlterTable, CreateDatabase, CreateTable, CreateView, Rename
from tidelake.rest_server.served_table import ServedTable, audit
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.identifier import Identifier, check_database_name
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.catalog.options import CatalogOptions
from tidelake.storage.catalog.rest.change_messages import parse_changes
from tidelake.storage.catalog.view import View
from tidelake.storage.catalog.views import Views
from tidelake.storage.ddl.schema_changes import AddColumn, RenameColumn, SchemaChange
from tidelake.storage.fileio.location import LOCAL_SCHEME, absolute, local_path, scheme_of
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import field_from_json

PREFIX: Final = "lake"
_TOKEN_LIFETIME_MS: Final = 24 * 3_600_000  # clients ask for another one an hour before
# Options of a database that say who made it: Spark always sets the owner. Nothing stores them.
_IGNORED_DATABASE_OPTIONS: Final = frozenset({"owner"})


class ServedCatalog:
    """A catalog for clients. Thread-safe as the catalog is.

    store_options: options of the store that clients may see: addresses, not keys.
    credentials: options of the store with the keys of this server, which it gives to clients; None: it gives none.
    """

    def __init__(
        self, catalog: Catalog, store_options: Mapping[str, str], credentials: Mapping[str, str] | None = None
    ) -> None:
        self._catalog = catalog
        self._store_options = dict(store_options)
        self._credentials = credentials

    @classmethod
    def open(cls, warehouse: str, options: Mapping[str, str], *, gives_credentials: bool) -> Self:
        """Open a warehouse to serve it.

        options: of the catalog and the store.
        gives_credentials: whether clients get the store's options with the keys.

        Raises BadInput, and UnsupportedFeature for a catalog that is a server itself.
        """
        given = CatalogOptions.of(options)
        if given.own.metastore not in ("filesystem", "jdbc"):
            raise UnsupportedFeature(
                f"metastore = {given.own.metastore} behind this server",
                "clients can use that catalog themselves, and a second server would not know its partitions",
                "Serve a directory, or a catalog in a database (metastore = jdbc)",
            )
        public = {key: value for key, value in given.store.items() if not SECRET_NAME.search(key)}
        if gives_credentials and not given.store:
            raise BadInput(f"{warehouse} has no options of an object store, so there are no credentials to give")
        return cls(open_catalog(warehouse, options), public, given.store if gives_credentials else None)

    def config(self, query: Mapping[str, str]) -> Members:
        """Return the options that clients get. They may name the warehouse by its location, or by PREFIX."""
        wanted = query.get("warehouse", PREFIX)
        served = self._catalog.warehouse
        # pypaimon 2.1 encodes the name twice.
        if wanted != PREFIX and _place(served) not in (_place(wanted), _place(unquote_plus(wanted))):
            raise Refusal(404, f"this server has no warehouse {wanted!r}; it serves {served!r}, also named {PREFIX!r}")
        gives = {} if self._credentials is None else {"data-token.enabled": "true"}
        return {"defaults": self._store_options, "overrides": {"prefix": PREFIX, **gives}}

    # ------------------------------------------------------------ databases

    def list_databases(self, query: Mapping[str, str]) -> Members:
        matches = name_filter(query.get("databaseNamePattern"))
        return page("databases", filter(matches, self._catalog.list_databases()), str, query, str)

    def create_database(self, message: CreateDatabase) -> Members:
        if unknown := sorted(set(message.options or {}) - _IGNORED_DATABASE_OPTIONS):
            raise not_offered(
                f"option {unknown[0]!r} of database {message.name!r}",
                "nothing stores options of databases",
                "Leave it out",
            )
        try:
            self._catalog.create_database(message.name)
        except BadInput as e:
            if message.name in self._catalog.list_databases():
                raise taken(Resource.DATABASE, message.name, str(e)) from None
            raise
        return {}

    def describe_database(self, name: str) -> Members:
        self._check_database(name)
        return {
            "id": name,
            "name": name,
            "location": f"{self._catalog.warehouse}/{name}.db",
            "options": {},
            **audit(),
        }

    def drop_database(self, name: str) -> Members:
        """Drop a database with its tables: clients check before whether it is empty."""
        self._check_database(name)
        self._catalog.drop_database(name, cascade=True)
        return {}

    def alter_database(self, name: str) -> Members:
        self._check_database(name)
        raise not_offered(f"a change of database {name!r}", "nothing stores options of databases", "Set table options")

    def _check_database(self, name: str) -> None:
        check_database_name(name)
        if name not in self._catalog.list_databases():
            raise missing(Resource.DATABASE, name, f"database {name!r} does not exist")

    # ------------------------------------------------------------ tables

    def list_tables(self, database: str, query: Mapping[str, str]) -> Members:
        return page("tables", self._matching(database, query), str, query, str)

    def list_table_details(self, database: str, query: Mapping[str, str]) -> Members:
        answer = page(
            "tableDetails", self._matching(database, query), str, query, lambda name: self._found(database, name)
        )
        answer["tableDetails"] = [table.describe() for table in answer["tableDetails"] if table is not None]
        return answer

    def list_all_tables(self, query: Mapping[str, str]) -> Members:
        databases = filter(name_filter(query.get("databaseNamePattern")), self._catalog.list_databases())
        names = ((database, table) for database in databases for table in self._matching(database, query))
        return page("tables", names, ".".join, query, lambda name: {"database": name[0], "object": name[1]})

    def _matching(self, database: str, query: Mapping[str, str]) -> Iterator[str]:
        self._check_database(database)
        matches, wanted = name_filter(query.get("tableNamePattern")), query.get("tableType")
        for name in filter(matches, self._catalog.list_tables(database)):
            if not wanted or self._type_of(database, name) == wanted:
                yield name

    def _type_of(self, database: str, name: str) -> str | None:
        try:
            return self._catalog.load(f"{database}.{name}").options.get("type", "table")
        except BadInput:  # dropped in the meantime
            return None

    def _found(self, database: str, name: str) -> ServedTable | None:
        try:
            return self.table(database, name)
        except (Refusal, BadInput):  # dropped in the meantime
            return None

    def table(self, database: str, name: str) -> ServedTable:
        """Return a table or a branch. Raises Refusal if there is none."""
        identifier = self._identifier(database, name)
        if identifier.system_table is not None or not self._catalog.table_exists(str(identifier)):
            raise missing(Resource.TABLE, name, f"table {identifier} does not exist")
        return ServedTable(self._catalog.load(str(identifier)), name)

    def table_of_id(self, table_id: str) -> Members:
        """Return the description of a table. This reads the schemas of all tables."""
        for database in self._catalog.list_databases():
            for name in self._catalog.list_tables(database):
                table = self._found(database, name)
                if table is not None and table.id == table_id:
                    return table.describe()
        raise missing(Resource.TABLE, table_id, f"no table has the id {table_id}")

    def create_table(self, database: str, message: CreateTable) -> Members:
        name, schema = message.identifier.object, message.schema
        if message.identifier.database != database:
            raise Refusal(400, f"the path names database {database!r}, the body {message.identifier.database!r}")
        identifier = self._identifier(database, name)
        self._check_database(database)
        if "path" in schema.options:
            raise not_offered(
                f"table {identifier} with option path",
                "the name of a table says where it is",
                "Leave the option out",
            )
        self._check_free(identifier)
        try:
            fields = [field_from_json(field) for field in schema.fields]
        except (KeyError, TypeError, ValueError) as e:
            reason = f"one lacks the member {e}" if isinstance(e, KeyError) else str(e)
            raise Refusal(400, f"table {identifier}: the columns can't be read: {reason}") from None
        try:
            self._catalog.create_table(
                str(identifier),
                fields,
                primary_key=schema.primary_keys,
                partition_by=schema.partition_keys,
                options=schema.options,
                comment=schema.comment,
            )
        except BadInput:
            self._check_free(identifier)  # another client may have been faster
            raise
        return {}

    def alter_table(self, database: str, name: str, message: AlterTable) -> Members:
        self.table(database, name)
        identifier = self._identifier(database, name)
        schema = self._catalog.load(str(identifier)).schema
        changes = parse_changes(message.changes, schema)
        try:
            self._catalog.alter_table(str(identifier), changes)
        except BadInput as e:
            raise _column_refusal(schema, changes, str(e)) or e from None
        return {}

    def drop_table(self, database: str, name: str) -> Members:
        self.table(database, name)
        self._catalog.drop_table(str(self._identifier(database, name)))
        return {}

    def rename_table(self, message: Rename) -> Members:
        old, new = self._both(message)
        self.table(message.source.database, message.source.object)
        self._check_database(new.database)
        self._check_free(new)
        self._catalog.rename_table(str(old), str(new))
        return {}

    def credentials(self, database: str, name: str) -> Members:
        self.table(database, name)
        if self._credentials is None:
            raise not_offered(
                "credentials for the files of a table",
                "the server was started without --give-credentials",
                "Set the options of the store at the client",
            )
        return {"token": dict(self._credentials), "expiresAtMillis": epoch_ms() + _TOKEN_LIFETIME_MS}

    def _identifier(self, database: str, name: str) -> Identifier:
        check_database_name(database)
        return Identifier.parse(f"{database}.{name}")

    def _both(self, message: Rename) -> tuple[Identifier, Identifier]:
        return (
            self._identifier(message.source.database, message.source.object),
            self._identifier(message.destination.database, message.destination.object),
        )

    def _check_free(self, identifier: Identifier) -> None:
        store = self._catalog.view_store
        if self._catalog.table_exists(str(identifier)) or (store is not None and store.find(identifier) is not None):
            raise taken(Resource.TABLE, identifier.table, f"{identifier} already exists")

    # ------------------------------------------------------------ views

    def list_views(self, database: str, query: Mapping[str, str]) -> Members:
        return page("views", self._matching_views(database, query), str, query, str)

    def list_view_details(self, database: str, query: Mapping[str, str]) -> Members:
        names = self._matching_views(database, query)
        return page("viewDetails", names, str, query, lambda name: self.view(database, name))

    def list_all_views(self, query: Mapping[str, str]) -> Members:
        databases = filter(name_filter(query.get("databaseNamePattern")), self._catalog.list_databases())
        names = ((database, view) for database in databases for view in self._matching_views(database, query))
        return page("views", names, ".".join, query, lambda name: {"database": name[0], "object": name[1]})

    def _matching_views(self, database: str, query: Mapping[str, str]) -> list[str]:
        self._check_database(database)
        store = self._catalog.view_store
        return [] if store is None else list(filter(name_filter(query.get("viewNamePattern")), store.names(database)))

    def view(self, database: str, name: str) -> Members:
        identifier, store = self._identifier(database, name), self._catalog.view_store
        self._check_database(database)
        found = None if store is None else store.find(identifier)
        if found is None:
            raise missing(Resource.VIEW, name, f"view {identifier} does not exist")
        return {"id": str(identifier), "name": name, "schema": found.to_members(), **audit()}

    def create_view(self, database: str, message: CreateView) -> Members:
        identifier = self._identifier(database, message.identifier.object)
        self._check_database(database)
        if self._catalog.view_store is not None and self._catalog.view_store.find(identifier) is not None:
            raise taken(Resource.VIEW, identifier.table, f"view {identifier} already exists")
        Views(self._catalog).create_view(str(identifier), View.from_members(message.schema, "the request"))
        return {}

    def drop_view(self, database: str, name: str) -> Members:
        self.view(database, name)
        Views(self._catalog).drop_view(str(self._identifier(database, name)))
        return {}

    def rename_view(self, message: Rename) -> Members:
        old, new = self._both(message)
        self.view(message.source.database, message.source.object)
        self._check_free(new)
        Views(self._catalog).rename_view(str(old), str(new))
        return {}

    def alter_view(self, database: str, name: str) -> Members:
        self.view(database, name)
        raise not_offered(f"a change of view {database}.{name}", "views are stored whole", "Drop and create it")

    # ------------------------------------------------------------ functions

    def list_functions(self, member: str, database: str | None) -> Members:
        if database is not None:
            self._check_database(database)
        return {member: [], "nextPageToken": None}

    def function(self, database: str, name: str) -> Members:
        self._check_database(database)
        raise missing(Resource.FUNCTION, name, f"function {database}.{name} does not exist: the catalog has none")

    def create_function(self, database: str) -> Members:
        self._check_database(database)
        raise not_offered("a function", "the catalog can store only tables and views", "Create it in the engine")


def _place(location: str) -> str:
    local = scheme_of(location) == LOCAL_SCHEME
    return absolute(local_path(location) if local else location).rstrip("/")


def _column_refusal(schema: TableSchema, changes: list[SchemaChange], message: str) -> Refusal | None:
    """Return what is wrong with the columns that the changes name; None if it is something else."""
    names = set(schema.names)
    for change in changes:
        if not hasattr(change, "name"):  # of an option, or of the comment
            continue
        path = (change.name,) if isinstance(change.name, str) else tuple(change.name or ())
        if not path or not all(isinstance(name, str) for name in path):  # refused for another reason
            return None
        column = ".".join(path)
        if isinstance(change, AddColumn) and len(path) == 1:
            if path[0] in names:
                return taken(Resource.COLUMN, column, message)
            names.add(path[0])
        elif path[0] not in names:
            return missing(Resource.COLUMN, column, message)
        elif isinstance(change, RenameColumn) and len(path) == 1:
            if change.new_name in names:
                return taken(Resource.COLUMN, change.new_name, message)
            names = names - {path[0]} | {change.new_name}
    return None
