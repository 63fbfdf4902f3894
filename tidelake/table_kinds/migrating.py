"""`Catalog.migrate_table` and `migrate_files`: finds the files, creates the table, and returns what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.storage.base.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.fileio.location import LOCAL_SCHEME, absolute, scheme_of
from tidelake.storage.kinds.format_tables.format_options import format_of_table
from tidelake.storage.maintenance.migration.migration import (
    MigrationPlan,
    SourceFolder,
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
    plan = plan_migration(_source(catalog, source, name, file_format, partition_types))
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
    plan = plan_migration(_source(catalog, source, name, file_format, types))
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
    location = absolute(source).rstrip("/")
    io = catalog.preview_table(name, [ANY_COLUMN]).io
    if (scheme_of(location) == LOCAL_SCHEME) != (scheme_of(catalog.warehouse) == LOCAL_SCHEME):
        raise BadInput(
            f"{location} is in another kind of store than the warehouse {catalog.warehouse}; copy it to that store"
        )
    types = partition_types_of(io, location, partition_types)
    return SourceFolder(io, location, (file_format or "parquet").strip().lower(), types)


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
            f"table {Identifier.parse(name)} exists already, and is not an unfinished migration; choose another name"
        )
    return target
