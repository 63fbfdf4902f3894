"""`tidelake table migrate`, `tidelake database migrate`.

`tidelake table clone`: creates a table with the rows of another.

`tidelake table rescale`: changes the number of buckets of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from tidelake.catalog import open_catalog
from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.migration import Migration


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


def clone(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    new_name: str,
    to: str | None,
    to_options: Sequence[tuple[str, str]],
    snapshot: int | None,
    tag: str | None,
) -> None:
    if to is None and to_options:
        raise UsageError("--to-catalog-option needs --to")
    source = catalog.open()
    target = source if to is None else open_catalog(to, **dict(to_options))
    cloned = target.clone_table(source.table(name), new_name, snapshot=snapshot, tag=tag)
    newest = cloned.context.snapshots.latest()
    rows = 0 if newest is None else newest.total_record_count
    if out.is_json:
        out.document({"table": new_name, "location": cloned.location, "rows_in_files": rows})
    else:
        out.note(f"{new_name} is a clone of {name}, with {rows:,} rows in its files: {cloned.location}")


def rescale(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, bucket: int, partition: Sequence[tuple[str, str]]
) -> None:
    rewritten = catalog.open().rescale_table(name, bucket, partition=dict(partition) or None)
    if out.is_json:
        out.document({"table": name, "bucket": bucket, "partitions": rewritten})
        return
    for directory in rewritten:
        out.console.print(printable(directory or "the whole table"), soft_wrap=True)
    out.note(f"{name}: {len(rewritten):,} partitions were rewritten into {bucket} buckets")
