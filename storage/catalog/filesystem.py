"""A catalog that is a directory: `WAREHOUSE/<database>.db/<table>/schema/schema-0`.

The catalog stores nothing else. A directory with a schema is a table, regardless of the engine that created it.

Source: Java `catalog/FileSystemCatalog.java`, `catalog/AbstractCatalog.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput, CommitConflict, CorruptFile, UnsupportedFeature
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.identifier import (
    Identifier,
    check_database_name,
    check_own_database,
    no_database,
    of_branch,
)
from tidelake.storage.catalog.options import check_letters, is_case_sensitive
from tidelake.storage.catalog.view import ViewStore
from tidelake.storage.commit.file_system_commit import FileSystemSnapshotCommit
from tidelake.storage.commit.iceberg.publication import delete_metadata_outside, refresh_iceberg_metadata
from tidelake.storage.ddl.schema_changes import CatalogChange, apply_changes
from tidelake.storage.ddl.schema_creation import create_schema
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.location import absolute
from tidelake.storage.fileio.requests import map_requests
from tidelake.storage.kinds.system_tables.all_tables import warehouse_table
from tidelake.storage.kinds.system_tables.system_table import SystemTable
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.option_support import check_alterable, check_creatable
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.branches import branch_names, check_branches_read
from tidelake.storage.model.snapshots.snapshot import SnapshotStore
from tidelake.storage.model.table import SnapshotCommits, TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.read.time_ranges import check_times_fit, has_finer_times

_DATABASE_SUFFIX: Final = ".db"
_ALTER_ATTEMPTS: Final = 100
_EXTERNAL: Final = frozenset({"data-file.external-paths", "global-index.external-path"})

_log = get_logger(__name__)


class FileSystemCatalog:
    """A catalog in a directory, see `tidelake.storage.catalog.base.Catalog`. It can be pickled if its FileIO can.

    warehouse: a location that `io` can access. It need not exist yet. A relative path is resolved now, against the
        current directory.
    now_ms: the clock for the creation times of schemas.
    table_defaults: options of new tables, unless the table sets them.
    options: the options with which the catalog was opened, for `sys.catalog_options`.
    """

    def __init__(
        self,
        io: FileIO,
        warehouse: str,
        now_ms: Callable[[], int] = epoch_ms,
        *,
        table_defaults: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._io = io
        self.options = dict(options or {})
        self._is_case_sensitive = is_case_sensitive(self.options)
        self._table_defaults = dict(table_defaults or {})
        self.warehouse = absolute(warehouse).rstrip("/") or "/"
        self._now_ms = now_ms
        self._snapshot_commit: SnapshotCommits = FileSystemSnapshotCommit

    def __repr__(self) -> str:
        return f"FileSystemCatalog({self.warehouse!r})"

    @property
    def view_store(self) -> ViewStore | None:
        return None

    # ------------------------------------------------------------ databases

    def list_databases(self) -> list[str]:
        names = [
            entry.name.removesuffix(_DATABASE_SUFFIX)
            for entry in self._io.list_directory(self.warehouse)
            if entry.is_directory and entry.name.endswith(_DATABASE_SUFFIX)
        ]
        return sorted(name for name in names if name)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        check_own_database(name)
        self._check_letters(name)
        if name not in self.list_databases():
            self._io.make_directory(self._database_path(name))
        elif not if_not_exists:
            raise BadInput(f"database {name!r} already exists in {self.warehouse}; choose another name")

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """See Catalog. Raises BadInput if the directory is not empty, unless cascade is set."""
        check_own_database(name)
        if name not in self.list_databases():
            if if_exists:
                return
            raise self._no_database(name)
        path = self._database_path(name)
        entries = sorted(entry.name for entry in self._io.list_directory(path))
        if entries and not cascade:
            raise BadInput(f"database {name!r} is not empty: it holds {', '.join(entries[:5])}; drop with cascade=True")
        tables = [Identifier(name, table) for table in self.list_tables(name)]
        self._refuse_links(f"database {name}", self.warehouse, name + _DATABASE_SUFFIX)
        for table in tables:
            self._refuse_links_of(table)
        for table in tables:
            self._drop(table)
        self._io.delete_directory(path)

    # ------------------------------------------------------------ tables

    def list_tables(self, database: str) -> list[str]:
        check_database_name(database)
        if not (tables := self.tables_of_files(database)) and database not in self.list_databases():
            raise self._no_database(database)
        return tables

    def tables_of_files(self, database: str) -> list[str]:
        """Return the directories that contain a schema. Other directories of the database are not tables."""
        names = sorted(e.name for e in self._io.list_directory(self._database_path(database)) if e.is_directory)
        found = map_requests(self.warehouse, lambda name: self._has_schema_file(Identifier(database, name)), names)
        return [name for name, has_schema in zip(names, found, strict=True) if has_schema]

    def table_exists(self, name: str) -> bool:
        return self._has_schema(Identifier.parse(name))

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
        """See Catalog. Refuses a directory with other files: they would be mistaken for files of the table."""
        identifier = _plain(name, "created")
        schema = self.preview_table(
            name, columns, primary_key=primary_key, partition_by=partition_by, options=options, comment=comment
        ).schema
        if not self._create_first(identifier, schema) and not if_not_exists:
            raise BadInput(f"table {identifier} already exists; choose another name, or pass if_not_exists=True")

    def restore_table(self, name: str, schemas: Sequence[TableSchema]) -> None:
        """See Catalog. The newest version is published first, so that readers see the final schema at once."""
        identifier = _plain(name, "created")
        check_own_database(identifier.database)
        *older, newest = schemas
        if not self._create_first(identifier, newest):
            raise BadInput(f"table {identifier} already exists; choose another name")
        for schema in reversed(older):
            self._schemas(identifier).publish(schema)

    def _create_first(self, identifier: Identifier, schema: TableSchema) -> bool:
        """Return False if the table exists."""
        with self._excluding_others(identifier):
            if self._has_schema(identifier):
                return False
            check_creatable(str(identifier), schema)
            check_branches_read(self._io, self._paths(identifier), {}, schema.options)
            if identifier.database not in self.list_databases():
                raise self._no_database(identifier.database)
            try:
                self._refuse_leftovers(identifier)
            except BadInput:
                if self._has_schema(identifier):  # another process created it meanwhile, and wrote to it
                    return False
                raise
            return self._create(identifier, schema)

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
        """See Catalog."""
        identifier = _plain(name, "created")
        check_own_database(identifier.database)
        schema = create_schema(
            columns,
            primary_key=primary_key,
            partition_by=partition_by,
            options={**self._table_defaults, **(options or {})},
            comment=comment,
            time_ms=self._now_ms(),
        )
        self._check_letters(identifier.database, identifier.table, *schema.names)
        location = self._paths(identifier).location
        return TableContext(
            self._io,
            location,
            identifier.full_name,
            schema,
            TableOptions(schema.options),
            snapshot_commit=self._snapshot_commit,
        )

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        identifier = _plain(name, "dropped")
        if not self._has_schema(identifier):
            if if_exists:
                return
            raise self._no_table(identifier)
        self._refuse_links_of(identifier)
        with self._excluding_others(identifier):
            self._drop(identifier)

    def _create(self, identifier: Identifier, schema: TableSchema) -> bool:
        """Return False if another process created the table first."""
        return self._schemas(identifier).publish(schema)

    def _drop(self, identifier: Identifier) -> None:
        dropped = self._readable(identifier)
        self._delete(identifier)
        if dropped is not None and self._schemas(identifier).latest_id() is None:  # else an external table
            delete_metadata_outside(dropped)

    def _delete(self, identifier: Identifier) -> None:
        """Delete the schema first. A crash then leaves a directory without a table, which blocks this name.

        Files in external paths stay: other tables may store files there, too, and nothing tells them apart.
        """
        paths = self._paths(identifier)
        for place in self._external_places(identifier):
            _log.warning("files of the dropped table stay", table=str(identifier), there=place)
        self._io.delete_directory(paths.schema_directory)
        self._io.delete_directory(paths.location)

    def rename_table(self, name: str, new_name: str) -> None:
        """See Catalog. Atomic on local disks. An object store copies all files, and a crash leaves the copies."""
        old, new = _plain(name, "renamed"), _plain(new_name, "the new name of one")
        check_own_database(new.database)
        self._check_letters(new.database, new.table)
        if not self._has_schema(old):
            raise self._no_table(old)
        if new.database not in self.list_databases():
            raise self._no_database(new.database)
        try:
            if new == old:
                raise FileExistsError
            with self._excluding_others(*sorted((old, new), key=str)):
                moved = self._readable(old)
                self._move(old, new)
                if moved is not None:
                    delete_metadata_outside(moved)
                    refresh_iceberg_metadata(self.load(str(new)))
        except FileExistsError:
            target = self._paths(new).location
            raise BadInput(f"{new} can't be the new name: {target} already exists; choose another one") from None

    def _move(self, old: Identifier, new: Identifier) -> None:
        """Raise FileExistsError if the new name is taken."""
        self._io.rename_directory(self._paths(old).location, self._paths(new).location)

    def alter_table(self, name: str, changes: Sequence[CatalogChange]) -> TableSchema:
        """See Catalog. If another process changes the schema at the same time, the changes are applied to its version.

        If nothing changes, no new version is created. Raises CommitConflict if other processes win every attempt.
        """
        identifier = Identifier.parse(name)
        _refuse_system_table(identifier)
        if not self._is_registered(identifier):
            raise self._no_table(identifier)
        with self._excluding_others(identifier):
            evolved = self._alter(identifier, changes)
            self._altered(identifier, evolved)
        return evolved

    def check_rewritable(self, name: str) -> None:
        """See Catalog. Any table can be rewritten."""

    def _alter(self, identifier: Identifier, changes: Sequence[CatalogChange]) -> TableSchema:
        schemas = self._schemas(identifier)
        for _ in range(_ALTER_ATTEMPTS):
            current = schemas.latest()
            if current is None:
                raise self._no_table(identifier)
            has_snapshots = SnapshotStore(self._io, self._paths(identifier)).latest_id() is not None
            evolved = apply_changes(current, changes, has_snapshots=has_snapshots, time_ms=self._now_ms())
            if replace(evolved, id=current.id, time_ms=current.time_ms) == current:
                return current
            check_alterable(str(identifier), current, evolved, identifier.branch)
            if has_snapshots and has_finer_times(current, evolved):
                check_times_fit(self.load(str(identifier)).with_schema(current), evolved)
            check_branches_read(self._io, self._paths(identifier), current.options, evolved.options)
            self._check_letters(*evolved.names)
            self._check_registrable(identifier, evolved)
            if schemas.publish(evolved):
                return evolved
        raise CommitConflict(f"{identifier}: others changed the schema {_ALTER_ATTEMPTS} times; try again later")

    def load(self, name: str, options: Mapping[str, str] | None = None) -> TableContext:
        """See Catalog. The dynamic option `branch` selects a branch, like `$branch_NAME` in the name."""
        identifier = of_branch(Identifier.parse(name), options or {})
        _refuse_system_table(identifier)
        if not self._is_registered(identifier):
            raise self._no_table(identifier)
        location = self._paths(identifier).location
        try:
            stored = TableContext.open(
                self._io,
                location,
                identifier.full_name,
                branch=identifier.branch,
                snapshot_commit=self._snapshot_commit,
            )
        except BadInput:
            raise self._no_table(identifier) from None
        return stored.opened_with(options)

    def format_table(self, name: str, options: Mapping[str, str] | None = None) -> TableContext | None:
        """See Catalog. Always None: this catalog knows tables by their schema files, and a format table has none."""
        return None

    # ------------------------------------------------------------ system tables

    def warehouse_table(self, identifier: Identifier, options: Mapping[str, str] | None = None) -> SystemTable:
        """See Catalog. Raises BadInput if no such table exists."""
        nothing = TableSchema(0, (), -1)
        context = TableContext(self._io, self.warehouse, str(identifier), nothing, TableOptions(options or {}))
        return warehouse_table(context, identifier.table, self._all_tables, self.options)

    def _all_tables(self) -> Iterator[TableContext]:
        """Return the tables that can be opened. Skips those that are dropped in the meantime."""
        for database in self.list_databases():
            for table in self.list_tables(database):
                with suppress(BadInput):
                    yield self.load(f"{database}.{table}")

    # ------------------------------------------------------------ where things are

    def _database_path(self, name: str) -> str:
        return f"{self.warehouse}/{name}{_DATABASE_SUFFIX}"

    def _paths(self, identifier: Identifier) -> TablePaths:
        return TablePaths(self._table_path(identifier), identifier.branch)

    def _table_path(self, identifier: Identifier) -> str:
        return f"{self._database_path(identifier.database)}/{identifier.table}"

    def _schemas(self, identifier: Identifier) -> SchemaStore:
        return SchemaStore(self._io, self._paths(identifier))

    def _has_schema(self, identifier: Identifier) -> bool:
        return self._is_registered(identifier) and self._has_schema_file(identifier)

    def _has_schema_file(self, identifier: Identifier) -> bool:
        """Check for schema 0 first: it nearly always exists, and the check is cheaper than a listing."""
        return self._io.exists(self._paths(identifier).schema(0)) or self._schemas(identifier).latest_id() is not None

    # ------------------------------------------------------------ for catalogs that keep names elsewhere, too

    def _is_registered(self, identifier: Identifier) -> bool:
        """Whether the catalog has an entry for the table. This catalog has no entries apart from the directories."""
        return True

    def _check_registrable(self, identifier: Identifier, schema: TableSchema) -> None:
        """Raise BadInput for a schema that the catalog can't store, before the schema is published."""

    def _altered(self, identifier: Identifier, schema: TableSchema) -> None:
        """Learn that the table, or the branch, got this schema."""

    def _excluding_others(self, *identifiers: Identifier) -> AbstractContextManager[object]:
        """Lock these tables while they are created, changed or dropped. Here `create_if_absent` is enough."""
        return nullcontext()

    # ------------------------------------------------------------ refusals

    def _check_letters(self, *names: str) -> None:
        if not self._is_case_sensitive:
            check_letters(names)

    def _refuse_leftovers(self, identifier: Identifier) -> None:
        """Raise BadInput if the directory contains files other than a schema.

        `schema` is allowed: another process may be creating the same table. Directories without files are allowed: on a
        local disk a writer leaves them if its table is dropped.
        """
        location = self._paths(identifier).location
        entries = [entry for entry in self._io.list_directory(location) if entry.name != "schema"]
        found = sorted(e.name for e in entries if not e.is_directory or self._holds_files(f"{location}/{e.name}"))
        if found:
            raise BadInput(
                f"table {identifier} can't be created: {location} is not a table, but contains "
                f"{', '.join(found[:5])}; move these files away, or choose another name"
            )

    def _holds_files(self, directory: str) -> bool:
        entries = self._io.list_directory(directory)
        return any(not e.is_directory or self._holds_files(f"{directory}/{e.name}") for e in entries)

    def _refuse_links_of(self, identifier: Identifier) -> None:
        """Refuse symbolic links before anything is deleted: all files of the table must be below its directory."""
        location = self._paths(identifier).location
        self._refuse_links(f"table {identifier}", self._database_path(identifier.database), identifier.table)
        self._refuse_links(f"table {identifier}", location)

    def _refuse_links(self, what: str, directory: str, only: str | None = None) -> None:
        """only: the entry of the directory to check; None checks all entries."""
        for entry in self._io.list_directory(directory):
            if entry.is_link and only in (None, entry.name):
                raise UnsupportedFeature(
                    f"{what}: {directory}/{entry.name} is a symbolic link",
                    "a drop would leave the link's target, and a directory without a table; nothing was deleted",
                    "Replace the link by the directory itself and drop again, or delete both manually",
                )

    def _readable(self, identifier: Identifier) -> TableContext | None:
        """Return the table, or None for one without a readable schema, which can be dropped, too."""
        try:
            return TableContext.open(self._io, self._paths(identifier).location, str(identifier))
        except (BadInput, CorruptFile):
            return None

    def _external_places(self, identifier: Identifier) -> list[str]:
        """Return the external paths in the options of all schemas of all branches."""
        found: dict[str, None] = {}
        for branch in (DEFAULT_BRANCH, *branch_names(self._io, self._paths(identifier))):
            schemas = self._schemas(replace(identifier, branch=branch))
            for schema_id in schemas.ids():
                options = schemas.get(schema_id).options
                found.update(dict.fromkeys(options[key] for key in sorted(_EXTERNAL & options.keys())))
        return list(found)

    def _no_database(self, name: str) -> BadInput:
        return no_database(name, self.warehouse, self.list_databases())

    def _no_table(self, identifier: Identifier) -> BadInput:
        """Return an error that says why the table is missing: no database, no schema, no branch, or a wrong name."""
        if identifier.database not in self.list_databases():
            return self._no_database(identifier.database)
        main = Identifier(identifier.database, identifier.table)
        if identifier.branch != DEFAULT_BRANCH and self._has_schema(main):
            branches = branch_names(self._io, self._paths(main))
            if identifier.branch in branches:
                what = f"branch {identifier.branch!r} of {main} has no schema"
                return BadInput(f"{what}: its creation was interrupted. Delete it, and create it again")
            existing = f"its branches are {', '.join(branches)}" if branches else "it has no branches"
            return BadInput(f"table {main} has no branch {identifier.branch!r}; {existing}")
        location = self._paths(main).location
        if self._io.list_directory(location):
            return BadInput(f"{location} is not a table: the directory has no schema; see list_tables")
        tables = self.list_tables(identifier.database)
        hint = did_you_mean(identifier.table, tables, prefix=f"{identifier.database}.")
        return BadInput(f"no table {main}{hint} (create_table creates one)")


def _plain(name: str, what: str) -> Identifier:
    identifier = Identifier.parse(name)
    if not identifier.is_plain:
        raise BadInput(
            f"{name!r}: a branch or a system table can't be {what}; name the table: {identifier.full_name!r}"
        )
    return identifier


def _refuse_system_table(identifier: Identifier) -> None:
    if identifier.system_table is not None:
        raise UnsupportedFeature(
            str(identifier), "system tables can't be read yet", f"Open {identifier.full_name} and read its schema"
        )
