"""`tidelake table …`."""

from __future__ import annotations

import argparse
from typing import Any

from tidelake.cli.arguments.common import (
    Verbs,
    add_migration_source,
    add_partition,
    add_projection,
    add_warehouse,
    command,
    noun,
    table_command,
)
from tidelake.cli.arguments.history import add_history
from tidelake.cli.arguments.values import names, not_negative, pair, parse_subtask, positive, range_of, start


def add_table(verbs: Verbs) -> None:
    _add_table_management(verbs)
    _add_table_reading(verbs)
    _add_table_maintenance(verbs)
    _add_consumers(verbs)
    add_history(verbs)


def _add_consumers(verbs: Verbs) -> None:
    consumers = noun(
        verbs, "consumers", "consumers of a table: list, reset, delete. Expiry keeps the snapshots they still need"
    )
    table_command(consumers, "list", "list consumers and their next snapshot", module="consumers", function="list_")
    reset = table_command(
        consumers, "reset", "reset a consumer to another snapshot; stop its readers first", module="consumers"
    )
    reset.add_argument("consumer", metavar="CONSUMER")
    reset.add_argument("--to", type=positive, required=True, metavar="ID", help="snapshot to read next")
    delete = table_command(consumers, "delete", "delete a consumer. Its snapshots can then expire", module="consumers")
    delete.add_argument("consumer", metavar="CONSUMER")


def _add_table_management(verbs: Verbs) -> None:
    create = table_command(verbs, "create", "create a table, and its database if it does not exist")
    create.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="a column with its Paimon type, repeatable: 'amount:DECIMAL(10,2) NOT NULL'",
    )
    create.add_argument("--schema-from", metavar="FILE", help="take the columns of a Parquet file instead")
    create.add_argument("--primary-key", type=names, default=(), metavar="COLUMNS", help="separated by commas")
    create.add_argument("--partition-by", type=names, default=(), metavar="COLUMNS", help="separated by commas")
    create.add_argument(
        "--option",
        dest="options",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="table option of Paimon, as in --option bucket=4; repeatable",
    )
    create.add_argument("--query", metavar="SQL", help="create a materialized table of this query; `refresh` fills it")
    create.add_argument("--freshness", metavar="TIME", help="with --query: how old rows may be; default: '1 hour'")
    create.add_argument("--comment", metavar="TEXT")
    create.add_argument("--if-not-exists", action="store_true", help="no error if it exists; it is not changed")

    _add_alter(verbs)

    rename = table_command(verbs, "rename", "rename a table; stop its writers first")
    rename.add_argument("new_name", metavar="NEW", help="database.table")
    clone = table_command(
        verbs,
        "clone",
        "copy a snapshot into a new table; files are copied unchanged",
        "History, tags, branches and consumers are not copied. A clone that fails is dropped.",
        module="maintenance.migrate",
    )
    clone.add_argument("new_name", metavar="NEW", help="database.table")
    clone.add_argument("--to", metavar="PATH", help="warehouse of the clone; default: the same")
    clone.add_argument(
        "--to-catalog-option",
        dest="to_options",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="like --catalog-option, for the clone's warehouse; repeatable",
    )
    of = clone.add_mutually_exclusive_group()
    of.add_argument("--snapshot", type=positive, metavar="ID", help="default: the newest")
    of.add_argument("--tag", metavar="NAME")
    migrate = table_command(
        verbs,
        "migrate",
        "register existing files as a new append table, without rewriting them",
        "Stop writers of the source first. A call that failed can be repeated.",
        module="maintenance.migrate",
    )
    add_migration_source(migrate, "folder of files or partitions, or the name of a format table")
    migrate.add_argument("--add", action="store_true", help="add them to an existing table with the same columns")
    rescale = table_command(
        verbs,
        "rescale",
        "change the number of buckets: rewrites the rows of each partition",
        module="maintenance.migrate",
    )
    rescale.add_argument(
        "--bucket", type=positive, required=True, metavar="N", help="new number of buckets of each partition"
    )
    add_partition(rescale)

    _add_refresh(verbs)

    listing = command(verbs, "list", "table:list_tables", "list tables")
    listing.add_argument("database", metavar="DATABASE", nargs="?", help="default: the whole warehouse")
    add_warehouse(listing)

    show = table_command(verbs, "show", "show columns, keys, options, newest snapshot and files")
    show.add_argument("--all-buckets", action="store_true", help="list every bucket, not only the largest")

    snapshots = table_command(verbs, "snapshots", "list snapshots, newest first")
    snapshots.add_argument("--limit", type=positive, metavar="N", help="default: 20, or all with --json")

    _add_compact(verbs)

    rewrite = command(
        verbs,
        "rewrite-file-index",
        "maintenance.expiry:rewrite_file_index",
        "build the file indexes that the options file-index.* name, for existing files",
        "Data files are not rewritten. One snapshot updates the metadata of files whose indexes changed.",
    )
    rewrite.add_argument("name", metavar="NAME", help="database.table, or 'database.table$branch_<name>'")
    add_warehouse(rewrite)
    rewrite.add_argument("--where", metavar="CONDITION", help="only partitions that match; on partition columns")
    rewrite.add_argument("--dry-run", action="store_true", help="only print how many files would change")

    truncate = table_command(
        verbs, "truncate", "delete all rows, or those of some partitions; older snapshots keep them"
    )
    add_partition(truncate)
    truncate.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    _add_row_changes(verbs)

    drop = table_command(verbs, "drop", "delete a table with all its data, snapshots and tags")
    drop.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    drop.add_argument("--if-exists", action="store_true", help="no error if it does not exist")


def _add_refresh(verbs: Verbs) -> None:
    refresh = table_command(
        verbs,
        "refresh",
        "refresh a materialized table",
        "Applies only changed rows when the query and its source allow it. Otherwise it recomputes all rows and\n"
        "prints the reason. The query runs in this process with DuckDB: pip install 'tidelake[sql]'.",
        module="maintenance.refresh",
    )
    refresh.add_argument("--full", action="store_true", help="recompute all rows")
    refresh.add_argument("--when-due", action="store_true", help="only if rows are older than the table's freshness")
    refresh.add_argument(
        "--dialect",
        choices=("duckdb",),
        help="the query is in DuckDB's SQL; by default only queries are accepted that mean the same in every dialect",
    )
    refresh.add_argument(
        "--source",
        dest="sources",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=TABLE",
        help="the table that a name in the query refers to; repeatable; default: tables of the same database",
    )
    refresh.add_argument("--every", metavar="TIME", help="repeat at this interval ('10 min') until Ctrl-C")


def _add_row_changes(verbs: Verbs) -> None:
    delete = table_command(
        verbs,
        "delete",
        "delete the rows that match a condition; older snapshots keep them",
        "Append tables need deletion-vectors.enabled = true: rows are marked as deleted, and compaction removes them.\n"
        "Conditions are written as in `scan`.",
        module="row_changes",
    )
    update = table_command(
        verbs,
        "update",
        "update the rows that match a condition; older snapshots keep the old values",
        "Append tables need deletion-vectors.enabled = true. Conditions and values are written as in `scan`.",
        module="row_changes",
    )
    update.add_argument(
        "--set",
        dest="assignments",
        action="append",
        required=True,
        metavar="COLUMN=VALUE",
        help="\"status = 'paid'\", amount=3.5, note=NULL; repeatable for several columns",
    )
    for changing in (delete, update):
        changing.add_argument("--where", required=True, metavar="CONDITION", help="rows to change")
        changing.add_argument("--dry-run", action="store_true", help="only print how many rows would change")


class _Change(argparse.Action):
    """Collects changes of different kinds in the order of the command line.

    Each change applies to the result of the one before.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        namespace.changes = [*namespace.changes, (option, value)]


def _add_alter(verbs: Verbs) -> None:
    alter = command(
        verbs,
        "alter",
        "alter:alter",
        "change a table's columns, options and comment in one step",
        "Changes are applied in the order given; each is repeatable. No file is rewritten: older rows are read with\n"
        "the new schema, older snapshots with their own. A nested field is named by its path: address.city for a ROW,\n"
        "items.element.price in an ARRAY, sizes.value for a MAP. Put names with other characters than letters, digits\n"
        "and _ in `backquotes`.",
    )
    alter.add_argument("name", metavar="NAME", help="database.table, or 'database.table$branch_<name>'")
    add_warehouse(alter)
    alter.set_defaults(changes=[])
    changes = alter.add_argument_group("changes")
    for option, metavar, summary in (
        ("--add-column", "COLUMN", "'note STRING', \"note STRING COMMENT 'text' FIRST\", 'note STRING AFTER id'"),
        ("--drop", "COLUMN", "drop a column and its values"),
        ("--rename", "COLUMN=NAME", "keys and options that name the column are updated"),
        ("--set-type", "COLUMN", "'amount DECIMAL(18,2)'; older rows are cast when they are read"),
        ("--set-nullable", "COLUMN", "allow nulls"),
        ("--set-not-null", "COLUMN", "allow no nulls from now on"),
        ("--set-default", "COLUMN=VALUE", "value that writers use where a row has none"),
        ("--drop-default", "COLUMN", "remove the default value of a column; the default is then null"),
        ("--comment-column", "COLUMN=TEXT", "comment of a column; an empty string removes it"),
        ("--move", "COLUMN", "'note FIRST', 'note AFTER id', 'note BEFORE id'"),
        ("--set", "KEY=VALUE", "table option of Paimon, as in --set bucket=4"),
        ("--unset", "KEY", "reset an option to its default"),
        ("--comment", "TEXT", "comment of the table; '' removes it"),
    ):
        changes.add_argument(option, action=_Change, dest="changes", metavar=metavar, help=summary)
    alter.add_argument("--dry-run", action="store_true", help="only print what would change")


def _add_compact(verbs: Verbs) -> None:
    compact = command(
        verbs,
        "compact",
        "maintenance.compact:compact",
        "rewrite files into fewer, for faster reads; rows do not change",
        "Compacts what is due, or everything with --full. Writers can continue. With --watch it is the compaction\n"
        "job of tables whose writers have write-only = true. SIGTERM or Ctrl-C commits what is being rewritten, then\n"
        "ends; a second one ends at once. Nothing is lost either way.",
    )
    what = compact.add_mutually_exclusive_group(required=True)
    what.add_argument("name", metavar="NAME", nargs="?", help="database.table, or 'database.table$branch_<name>'")
    what.add_argument("--database", metavar="DATABASE", help="all tables of this database")
    add_warehouse(compact)
    compact.add_argument("--full", action="store_true", help="compact each bucket into one sorted run")
    compact.add_argument("--where", metavar="CONDITION", help="only partitions that match; on partition columns")
    compact.add_argument(
        "--order-by",
        type=names,
        default=(),
        metavar="COLUMNS",
        help="append tables: sort all rows by these, separated by commas, so that filters read fewer files",
    )
    compact.add_argument(
        "--strategy",
        choices=("order", "zorder", "hilbert"),
        help="with --order-by; default: order for one column, zorder for up to four, otherwise hilbert",
    )
    compact.add_argument("--watch", action="store_true", help="keep running: check again at each new snapshot")


def _add_table_reading(verbs: Verbs) -> None:
    scan = table_command(
        verbs,
        "scan",
        "read the rows of the newest snapshot, or of another",
        "A condition compares columns with values: --where \"amount > 3 and status in ('new', 'paid')\".\n"
        "Operators: = != < <= > >=, [not] in (…), [not] between … and …, is [not] null, like 'abc%', and, or, not.",
    )
    add_projection(scan)
    _add_bucket(scan)
    when = scan.add_mutually_exclusive_group()
    when.add_argument("--snapshot", type=positive, metavar="ID")
    when.add_argument("--tag", metavar="NAME")
    when.add_argument("--as-of", metavar="TIME", help="ISO time (2026-05-01T12:00:00Z); local time if it has no zone")
    scan.add_argument("--limit", type=positive, metavar="N", help="default: 100 with --format table, otherwise all")
    scan.add_argument(
        "--format",
        dest="row_format",
        choices=("table", "json", "csv", "arrow"),
        help="default: table; json: one row per line; arrow: an Arrow IPC stream",
    )
    scan.add_argument(
        "--explain",
        dest="row_format",
        action="store_const",
        const="explain",
        help="print for each file why it is read or skipped, instead of rows",
    )

    changes = table_command(
        verbs,
        "changes",
        "read the changes of snapshots, row by row",
        "+I: inserted; -U and +U: the row before and after an update; -D: deleted.",
    )
    add_projection(changes)
    _add_bucket(changes)
    changes.add_argument(
        "--start",
        type=start,
        metavar="WHERE",
        help="first snapshot; default: the oldest. With --follow: as in `follow`; default: latest",
    )
    changes.add_argument("--end", type=positive, metavar="ID", help="last snapshot; default: the newest now")
    between = changes.add_mutually_exclusive_group()
    between.add_argument(
        "--between",
        type=range_of("auto"),
        metavar="A,B",
        help="after A, up to and including B: two snapshot ids, tags or times",
    )
    between.add_argument(
        "--diff",
        dest="between",
        type=range_of("diff"),
        metavar="A,B",
        help="the difference between the two states, without the changes in between",
    )
    changes.add_argument("--follow", action="store_true", help="continue with new commits, until Ctrl-C or --end")
    changes.add_argument("--consumer", metavar="NAME", help="with --follow: keep the position in the table")
    changes.add_argument("--share", type=parse_subtask, metavar="N/COUNT", help="with --follow: as in `follow`")
    changes.add_argument("--limit", type=positive, metavar="N", help="end after this many changes")

    follow = table_command(verbs, "follow", "read changes as they are committed, until Ctrl-C")
    add_projection(follow)
    _add_bucket(follow)
    follow.add_argument(
        "--start",
        type=start,
        default="latest",
        metavar="WHERE",
        help="latest (default), earliest, a snapshot id, latest-full, …: docs/reading-changes.md",
    )
    follow.add_argument("--consumer", metavar="NAME", help="keep the position in the table under this name")
    follow.add_argument("--until", type=positive, metavar="ID", help="end after this snapshot")
    follow.add_argument(
        "--share",
        type=parse_subtask,
        metavar="N/COUNT",
        help="1/3: the first of three readers, each with its own buckets and position",
    )
    follow.add_argument("--limit", type=positive, metavar="N", help="end after this many changes")


def _add_bucket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bucket", type=not_negative, metavar="ID", help="only this bucket of each partition")


def _add_table_maintenance(verbs: Verbs) -> None:
    expire = table_command(
        verbs,
        "expire",
        "expire old snapshots, and delete the files that only they reference",
        "Keeps what the arguments or the table's options say (snapshot.num-retained.*, snapshot.time-retained), what\n"
        "consumers still have to read, tags, and the newest snapshot. Writers can continue.",
        module="maintenance.expiry",
    )
    expire.add_argument("--retain-min", type=positive, metavar="N", help="keep at least this many of the newest")
    expire.add_argument("--retain-max", type=positive, metavar="N", help="keep at most this many")
    expire.add_argument("--retain-time", metavar="DURATION", help="keep snapshots younger than this: 30 min, 1 d, 0 s")
    expire.add_argument("--dry-run", action="store_true", help="only list what would be deleted")

    verify = table_command(
        verbs,
        "verify",
        "check that a table is complete and consistent; changes nothing",
        "Checks all snapshots, tags and branches: files and their sizes, manifests, row counts, levels, the positions\n"
        "of each pipeline. Also counts files that nothing references. Exit code 1 if there are problems.",
        module="maintenance.expiry",
    )
    verify.add_argument("--snapshot", type=positive, metavar="ID", help="only this one")
    verify.add_argument("--deep", action="store_true", help="also read all rows of all files")
    verify.add_argument(
        "--changelog",
        action="store_true",
        help="replay the changelog and compare the result with the table, by checksums of key ranges",
    )
    verify.add_argument(
        "--start",
        type=not_negative,
        metavar="ID",
        help="with --changelog: snapshot to start from; 0 is the empty table",
    )
    verify.add_argument(
        "--end", type=positive, metavar="ID", help="with --changelog: snapshot to compare with; default: the newest"
    )

    explain = table_command(
        verbs,
        "explain",
        "show all versions of a row: where they came from, and which one is read",
        "For each version that a file still holds: snapshot, file, level, kind, sequence number and source offsets.\n"
        "Also shows the row's changes in the changelog, and which versions a read merges.",
        module="explain",
    )
    explain.add_argument(
        "--key",
        action="append",
        type=pair,
        default=[],
        required=True,
        metavar="COLUMN=VALUE",
        help="a column of the primary key; repeat it for each",
    )
    explain.add_argument("--snapshot", type=positive, metavar="ID", help="default: the newest")
    verify.add_argument(
        "--orphans-older-than",
        default="1 d",
        metavar="DURATION",
        help="younger unreferenced files may belong to a running commit; default: 1 d",
    )
