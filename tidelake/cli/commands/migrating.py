"""`tidelake table migrate` and `tidelake database migrate`: files become tables without being rewritten."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidelake.cli.arguments import CatalogAddress, Commands, add_dry_run, add_warehouse, command, pair, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.migration import Migration


def add_migrate(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "migrate",
        migrate,
        "register existing files as a new append table, without rewriting them",
        "Stop writers of the source first. A call that failed can be repeated.",
        example="tidelake table migrate shop.events -w lake --from /data/events --dry-run",
    )
    _add_source(parser, "folder of files or partitions, a format table, or the metadata file of an Iceberg table")
    parser.add_argument("--add", action="store_true", help="add them to an existing table with the same columns")


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


def add_migrate_database(verbs: Commands) -> None:
    parser = command(
        verbs,
        "migrate",
        migrate_database,
        "migrate each folder to a new append table",
        "Stop writers of the source first. A call that failed can be repeated.",
        example="tidelake database migrate archive -w lake --from /data/archive --dry-run",
    )
    parser.add_argument("name", metavar="NAME", help="database of the new tables; created if it does not exist")
    add_warehouse(parser)
    _add_source(parser, "folder with a folder for each table, or a database of format tables")
    parser.add_argument(
        "--table", dest="tables", action="append", default=[], metavar="NAME", help="only this table; repeatable"
    )


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


def _add_source(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add the arguments of both: where the files are, and what becomes of them.

    folder: help text of --from
    """
    parser.add_argument("--from", dest="source", required=True, metavar="FOLDER", help=folder)
    parser.add_argument(
        "--format",
        dest="file_format",
        choices=("parquet", "orc"),
        help="format of the files in a folder; default: parquet",
    )
    parser.add_argument(
        "--partition-type",
        dest="partition_types",
        action="append",
        type=pair,
        default=[],
        metavar="COLUMN=TYPE",
        help="type of a folder's partition column; default: STRING; repeatable",
    )
    parser.add_argument(
        "--option",
        dest="options",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="option of the table",
    )
    parser.add_argument("--keep-source", action="store_true", help="keep the files in the source, too")
    add_dry_run(parser, "only print what the table would be")


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
