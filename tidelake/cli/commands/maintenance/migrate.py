"""`tidelake table migrate`, `tidelake database migrate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput
from tidelake.table_kinds.migrating import Migration


def migrate(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    source: str,
    file_format: str | None,
    partition_types: Sequence[tuple[str, str]],
    options: Sequence[tuple[str, str]],
    keep_source: bool,
    dry_run: bool,
    add: bool,
) -> None:
    opened = catalog.open()
    if add:
        if partition_types or options:
            raise UsageError("with --add the table exists: leave out --partition-type and --option")
        done = opened.migrate_files(source, name, file_format=file_format, keep_source=keep_source, dry_run=dry_run)
    else:
        done = opened.migrate_table(
            source,
            name,
            file_format=file_format,
            partition_types=dict(partition_types),
            options=dict(options),
            keep_source=keep_source,
            dry_run=dry_run,
        )
    if out.is_json:
        out.document(asdict(done))
        return
    _print_migration(out, done, dry_run=dry_run, adds=add)


def migrate_database(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    source: str,
    tables: Sequence[str],
    file_format: str | None,
    partition_types: Sequence[tuple[str, str]],
    options: Sequence[tuple[str, str]],
    keep_source: bool,
    dry_run: bool,
) -> None:
    done = catalog.open().migrate_database(
        source,
        name,
        tables=tables,
        file_format=file_format,
        partition_types=dict(partition_types),
        options=dict(options),
        keep_source=keep_source,
        dry_run=dry_run,
    )
    if out.is_json:
        out.document([asdict(one) for one in done])
        return
    for one in done:
        _print_migration(out, one, dry_run=dry_run)
    if not done:
        out.note("nothing to migrate: all of them are tables already")


def _print_migration(out: CommandOutput, done: Migration, *, dry_run: bool, adds: bool = False) -> None:
    if adds:
        verb = "would get" if dry_run else "got"
        out.note(f"{done.table} {verb} {done.files:,} more files with {done.rows:,} rows")
        return
    columns = ", ".join(f"{column} {kind}" for column, kind in done.columns.items())
    verb = "would be created from" if dry_run else "was created from"
    out.note(
        f"{done.table} {verb} {done.files:,} files in {done.partitions:,} partitions with {done.rows:,} rows: {columns}"
    )
