"""Migrations of a catalog: existing files become a new table, part of a table, or all tables of a database.

A migration finds the files, creates the table if it is new, and registers the files in it. All tables of a database are
checked before the first one is created; then they are migrated one after the other. A call that failed can be repeated:
it skips folders that are empty because their table already exists.

Source: Java `hive/migrate/HiveMigrator.java` (getDatabaseMigrators), `spark/procedure/MigrateDatabaseProcedure.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.location import LOCAL_SCHEME, absolute, scheme_of
from tidelake.storage.kinds.format_tables.format_options import format_of_table
from tidelake.storage.kinds.format_tables.objects import is_object_table
from tidelake.storage.kinds.format_tables.partition_directories import is_hidden
from tidelake.storage.maintenance.migration.iceberg_source import find_iceberg_metadata, plan_iceberg_migration
from tidelake.storage.maintenance.migration.migration import (
    MigrationPlan,
    SourceFolder,
    holds_files,
    is_unfinished,
    migrate,
    partition_types_of,
    plan_migration,
)
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import INT, DataField

ANY_COLUMN: Final = DataField(0, "any", INT)


@dataclass(frozen=True, slots=True)
class Migration:
    """The result of a migration; for a dry run, what it would do.

    columns: name -> type of the new table, partition columns last.
    snapshot_id: None for a dry run, and if an earlier call had committed already.
    """

    table: str
    source: str
    columns: Mapping[str, str]
    partition_by: tuple[str, ...]
    partitions: int
    files: int
    rows: int
    size_bytes: int
    snapshot_id: int | None


def migrate_table(
    catalog: Catalog,
    source: str,
    name: str,
    *,
    file_format: str | None,
    partition_types: Mapping[str, str],
    options: Mapping[str, str],
    comment: str | None,
    keep_source: bool,
    dry_run: bool,
) -> Migration:
    """See `Catalog.migrate_table`."""
    if wrong := [key for key in ("primary-key", "bucket-key") if key in options]:
        raise BadInput(f"option {wrong[0]}: imported files are not sorted and have no buckets; leave it out")
    plan = _plan(catalog, source, name, file_format, partition_types)
    folder = plan.source
    stored = {"partition.default-name": folder.default_name} if folder.partition_types else {}
    wanted = {**stored, **options, "bucket": "-1", "file.format": folder.format_name}
    preview = catalog.preview_table(
        name, plan.columns, partition_by=tuple(folder.partition_types), options=wanted, comment=comment
    )
    snapshot_id = None
    if not dry_run:
        target = _target(catalog, name, plan, wanted, comment)
        snapshot_id = migrate(plan, target, keep_source=keep_source)
    return Migration(
        name,
        folder.location,
        {field.name: str(field.type) for field in preview.schema.fields},
        tuple(folder.partition_types),
        plan.partition_count,
        len(plan.files),
        plan.row_count,
        plan.size_bytes,
        snapshot_id,
    )


def migrate_files(
    catalog: Catalog, source: str, name: str, *, file_format: str | None, keep_source: bool, dry_run: bool
) -> Migration:
    """See `Catalog.migrate_files`."""
    target = catalog.load(name)
    check_addable(target)
    keys = target.schema.partition_fields
    is_folder = catalog_source(catalog, source) is None
    types = {field.name: str(field.type) for field in keys} if is_folder else {}
    plan = _plan(catalog, source, name, file_format, types, adds=True)
    _check_columns(plan, target)
    snapshot_id = None if dry_run else migrate(plan, target, keep_source=keep_source, adds=True)
    return Migration(
        name,
        plan.source.location,
        {field.name: str(field.type) for field in target.schema.fields},
        target.schema.partition_keys,
        plan.partition_count,
        len(plan.files),
        plan.row_count,
        plan.size_bytes,
        snapshot_id,
    )


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
    found = _sources_of(catalog, source, database)
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


def check_addable(target: TableContext) -> None:
    """Raise UnsupportedFeature for a table to which files of other systems can't be added."""
    if bucket_mode(target.schema, target.options) is not BucketMode.UNAWARE:
        raise UnsupportedFeature(
            f"imported files in {target.name}",
            "imported files are not sorted and have no buckets",
            "Scan the files and write the rows into it. Files can be imported only into tables without primary key "
            "and with bucket = -1",
        )
    if target.options.is_on("row-tracking.enabled"):
        raise UnsupportedFeature(
            f"imported files in {target.name}",
            "with row-tracking.enabled each row gets an id when it is written",
            "Scan the files and write the rows into it",
        )


def _check_columns(plan: MigrationPlan, target: TableContext) -> None:
    """Raise BadInput, naming the column, unless the files have the table's columns, in any order."""
    if tuple(plan.source.partition_types) != target.schema.partition_keys:
        raise BadInput(
            f"{plan.source.location} is partitioned by ({', '.join(plan.source.partition_types)}), and {target.name} "
            f"by ({', '.join(target.schema.partition_keys)}); they must agree"
        )
    expected = {field.name: str(field.type) for field in target.schema.fields}
    found = {field.name: str(field.type) for field in plan.columns}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            raise BadInput(
                f"column {name!r} is {found.get(name, 'missing')} in {plan.source.location} and "
                f"{expected.get(name, 'missing')} in {target.name}; alter the table, or scan the files and write the "
                "rows into it"
            )


def catalog_source(catalog: Catalog, source: str) -> TableContext | None:
    """Return the format table of this name, or None if `source` is a folder."""
    return catalog.format_table(source) if "/" not in source and source.count(".") == 1 else None


def _plan(
    catalog: Catalog,
    source: str,
    name: str,
    file_format: str | None,
    partition_types: Mapping[str, str],
    *,
    adds: bool = False,
) -> MigrationPlan:
    """Return the plan for a folder, a format table of the catalog, or an Iceberg table."""
    if catalog_source(catalog, source) is None:
        io, location = _place(catalog, source, name)
        metadata = find_iceberg_metadata(io, location)
        if metadata is not None:
            if file_format is not None or (partition_types and not adds):
                raise BadInput(
                    f"{source} is an Iceberg table, whose metadata has the formats and the partitions; leave these "
                    "arguments out"
                )
            is_committed = not adds and catalog.table_exists(name) and _is_committed(catalog.load(name))
            return plan_iceberg_migration(io, metadata, is_committed=is_committed)
    return plan_migration(_source(catalog, source, name, file_format, partition_types))


def _is_committed(target: TableContext) -> bool:
    """Return whether the table is the result of an earlier call."""
    return is_unfinished(target) and target.snapshots.latest_id() is not None


def _source(
    catalog: Catalog, source: str, name: str, file_format: str | None, partition_types: Mapping[str, str]
) -> SourceFolder:
    """Return the source: a folder, or a format table of the catalog."""
    found = catalog_source(catalog, source)
    if found is not None:
        if file_format is not None or partition_types:
            raise BadInput(
                f"{source} is a format table, whose definition has the format and the partitions; leave these "
                "arguments out"
            )
        types = {field.name: field.type for field in found.schema.partition_fields}
        default = found.options.partition_default_name
        return SourceFolder(found.io, found.location, format_of_table(found.options), types, default)
    io, location = _place(catalog, source, name)
    types = partition_types_of(io, location, partition_types)
    return SourceFolder(io, location, (file_format or "parquet").strip().lower(), types)


def _place(catalog: Catalog, source: str, name: str) -> tuple[FileIO, str]:
    """Return a path, and access to its store."""
    location = absolute(source).rstrip("/")
    if (scheme_of(location) == LOCAL_SCHEME) != (scheme_of(catalog.warehouse) == LOCAL_SCHEME):
        raise BadInput(
            f"{location} is in another kind of store than the warehouse {catalog.warehouse}; copy it to that store"
        )
    return catalog.preview_table(name, [ANY_COLUMN]).io, location


def _target(
    catalog: Catalog, name: str, plan: MigrationPlan, options: Mapping[str, str], comment: str | None
) -> TableContext:
    """Create the table, or return the one of an earlier call. Raises BadInput for any other table of this name."""
    keys = tuple(plan.source.partition_types)
    catalog.create_table(name, plan.columns, partition_by=keys, options=options, comment=comment, if_not_exists=True)
    target = catalog.load(name)
    columns = [(field.name, str(field.type)) for field in plan.columns]
    existing = [(field.name, str(field.type)) for field in target.schema.fields]
    if not is_unfinished(target) or (existing, target.schema.partition_keys) != (columns, keys) or target.schema.id:
        raise BadInput(
            f"table {Identifier.parse(name)} already exists, and is not an unfinished migration; choose another name"
        )
    return target


def _sources_of(catalog: Catalog, source: str, database: str) -> dict[str, str]:
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
    return _is_committed(target) and not holds_files(target.io, location)
