"""`Catalog.migrate_database`: makes a table of each folder, or of each format table of a database.

All are checked before the first table is created; then they are migrated one after the other. A call that failed can be
repeated: folders that are empty because their table exists already are skipped.

Source: Java `hive/migrate/HiveMigrator.java` (getDatabaseMigrators), `spark/procedure/MigrateDatabaseProcedure.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tidelake.storage.base.errors import BadInput
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.fileio.location import absolute
from tidelake.storage.kinds.format_tables.objects import is_object_table
from tidelake.storage.kinds.format_tables.partition_directories import is_hidden
from tidelake.storage.maintenance.migration.migration import holds_files, is_unfinished, partition_types_of
from tidelake.table_kinds.migrating import ANY_COLUMN, Migration, migrate_table


def migrate_database(
    catalog: Catalog,
    source: str,
    database: str,
    *,
    tables: Sequence[str],
    file_format: str | None,
    partition_types: Mapping[str, str],
    options: Mapping[str, str],
    keep_source: bool,
    dry_run: bool,
) -> list[Migration]:
    """See `Catalog.migrate_database`."""
    found = _sources(catalog, source, database)
    if missing := [name for name in tables if name not in found]:
        raise BadInput(f"{source} holds no table {missing[0]!r}; its tables are {', '.join(sorted(found)) or 'none'}")
    wanted = {name: place for name, place in sorted(found.items()) if not tables or name in tables}
    if not wanted:
        raise BadInput(
            f"{source} holds no tables; name the folder that holds their folders, or a database of format tables"
        )
    is_folder = "/" in next(iter(wanted.values()))
    migrations = [
        partial(
            migrate_table,
            catalog,
            place,
            f"{database}.{name}",
            file_format=file_format,
            partition_types=_types_of(catalog, place, name, database, partition_types) if is_folder else {},
            options=options,
            comment=None,
            keep_source=keep_source,
        )
        for name, place in wanted.items()
        if not (is_folder and _is_done(catalog, place, f"{database}.{name}"))
    ]
    plans = [migration(dry_run=True) for migration in migrations]
    if dry_run:
        return plans
    catalog.create_database(database, if_not_exists=True)
    return [migration(dry_run=False) for migration in migrations]


def _sources(catalog: Catalog, source: str, database: str) -> dict[str, str]:
    """Return the sources by the name of the new table: a folder, or `database.table` of a format table."""
    if "/" not in source and source in catalog.list_databases():
        if source == database:
            raise BadInput(
                f"the tables of {source} keep their entries in the catalog; name another database for the new ones"
            )
        names = {name: f"{source}.{name}" for name in catalog.list_tables(source)}
        found = {name: (full, catalog.format_table(full)) for name, full in names.items()}
        return {
            name: full
            for name, (full, context) in found.items()
            if context is not None and not is_object_table(context.options)
        }
    location = absolute(source).rstrip("/")
    io = catalog.preview_table(f"{database}.t", [ANY_COLUMN]).io
    inner = [entry for entry in io.list_directory(location) if not is_hidden(entry.name)]
    if stray := [entry.name for entry in inner if not entry.is_directory or "=" in entry.name]:
        raise BadInput(
            f"{location}/{stray[0]} is not the folder of a table; to migrate one table, pass its folder to "
            "migrate_table"
        )
    return {entry.name: f"{location}/{entry.name}" for entry in inner}


def _types_of(
    catalog: Catalog, location: str, name: str, database: str, partition_types: Mapping[str, str]
) -> dict[str, str]:
    """Return the types of those partition columns that this table has."""
    io = catalog.preview_table(f"{database}.{name}", [ANY_COLUMN]).io
    own = partition_types_of(io, location, {})
    return {column: text for column, text in partition_types.items() if column in own}


def _is_done(catalog: Catalog, location: str, name: str) -> bool:
    """Return whether an earlier call has migrated this folder."""
    if not catalog.table_exists(name):
        return False
    target = catalog.load(name)
    return is_unfinished(target) and target.snapshots.latest_id() is not None and not holds_files(target.io, location)
