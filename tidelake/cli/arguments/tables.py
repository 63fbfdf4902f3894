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
from tidelake.cli.arguments.values import names, not_negative, pair, positive, range_of, share, start


def add_table(verbs: Verbs) -> None:
    _add_table_management(verbs)
    _add_table_reading(verbs)
    _add_table_maintenance(verbs)
    _add_consumers(verbs)
    add_history(verbs)


def _add_consumers(verbs: Verbs) -> None:
    consumers = noun(verbs, "consumers", "readers whose positions the table keeps: expiry spares what they still need")
    table_command(consumers, "list", "where they stand", module="consumers", function="list_")
    reset = table_command(consumers, "reset", "have one go on elsewhere; stop it first", module="consumers")
    reset.add_argument("consumer", metavar="CONSUMER")
    reset.add_argument("--to", type=positive, required=True, metavar="ID", help="the snapshot that it reads next")
    delete = table_command(consumers, "delete", "delete one: expiry keeps no snapshots for it", module="consumers")
    delete.add_argument("consumer", metavar="CONSUMER")


def _add_table_management(verbs: Verbs) -> None:
    create = table_command(verbs, "create", "create a table, and its database if there is none")
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
        help="of Paimon: --option bucket=4, repeatable",
    )
    create.add_argument("--query", metavar="SQL", help="a materialized table, which `refresh` fills with its rows")
    create.add_argument("--freshness", metavar="TIME", help="of --query, how old rows may be; default: '1 hour'")
    create.add_argument("--comment", metavar="TEXT")
    create.add_argument("--if-not-exists", action="store_true", help="no error when it exists; it stays as it is")

    _add_alter(verbs)

    rename = table_command(verbs, "rename", "another name; stop its writers first")
    rename.add_argument("new_name", metavar="NEW", help="database.table")
    clone = table_command(
        verbs,
        "clone",
        "a new table with the rows of a snapshot: files are copied as they are",
        "History, tags, branches and consumers stay behind. A clone that fails is dropped.",
        module="maintenance.clone",
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
        help="as --catalog-option, of the clone's warehouse; repeatable",
    )
    of = clone.add_mutually_exclusive_group()
    of.add_argument("--snapshot", type=positive, metavar="ID", help="default: the newest")
    of.add_argument("--tag", metavar="NAME")
    migrate = table_command(
        verbs,
        "migrate",
        "a new append table of files that others wrote: they are registered as they are",
        "Nobody may write there meanwhile. A call that failed can be repeated.",
        module="maintenance.migrate",
    )
    add_migration_source(migrate, "of files or partitions, or a format table's name")
    migrate.add_argument("--add", action="store_true", help="into a table that is there, with the same columns")
    rescale = table_command(
        verbs,
        "rescale",
        "another number of buckets: partitions are overwritten with their own rows",
        module="maintenance.rescale",
    )
    rescale.add_argument("--bucket", type=positive, required=True, metavar="N", help="how many each partition gets")
    add_partition(rescale)

    _add_refresh(verbs)

    listing = command(verbs, "list", "table:list_tables", "names of tables")
    listing.add_argument("database", metavar="DATABASE", nargs="?", help="default: all of the warehouse")
    add_warehouse(listing)

    show = table_command(verbs, "show", "columns, keys, options, newest snapshot, files")
    show.add_argument("--all-buckets", action="store_true", help="list every bucket, not only the largest")

    snapshots = table_command(verbs, "snapshots", "snapshots, newest first")
    snapshots.add_argument("--limit", type=positive, metavar="N", help="default: 20, or all with --json")

    _add_compact(verbs)

    rewrite = command(
        verbs,
        "rewrite-file-index",
        "maintenance.expiry:rewrite_file_index",
        "give the files that are there the indexes that the options file-index.* name now",
        "No data file is written: one snapshot replaces what is known of the files whose indexes changed.",
    )
    rewrite.add_argument("name", metavar="NAME", help="database.table, or 'database.table$branch_<name>'")
    add_warehouse(rewrite)
    rewrite.add_argument("--where", metavar="CONDITION", help="on partition columns: only partitions that fulfil it")
    rewrite.add_argument("--dry-run", action="store_true", help="only say how many files would change")

    truncate = table_command(
        verbs, "truncate", "remove all rows, or those of some partitions; older snapshots keep them"
    )
    add_partition(truncate)
    truncate.add_argument("--yes", action="store_true", help="don't ask")

    _add_row_changes(verbs)

    drop = table_command(verbs, "drop", "delete a table with all its data, snapshots and tags")
    drop.add_argument("--yes", action="store_true", help="don't ask")
    drop.add_argument("--if-exists", action="store_true", help="no error when there is none")


def _add_refresh(verbs: Verbs) -> None:
    refresh = table_command(
        verbs,
        "refresh",
        "the rows of a materialized table, up to date",
        "Only rows that change, where its query and the changes of its source allow that; else all of them, and the\n"
        "reason is told. The query runs in this process, by DuckDB: pip install 'tidelake[sql]'.",
        module="maintenance.refresh",
    )
    refresh.add_argument("--full", action="store_true", help="all rows, anyway")
    refresh.add_argument("--when-due", action="store_true", help="only if rows are older than the definition allows")
    refresh.add_argument(
        "--dialect",
        choices=("duckdb",),
        help="the query is in DuckDB's SQL; without, only queries are taken that mean the same everywhere",
    )
    refresh.add_argument(
        "--source",
        dest="sources",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=TABLE",
        help="a name in the query and the table that it means, repeatable; default: tables of the same database",
    )
    refresh.add_argument("--every", metavar="TIME", help="go on: again after so long ('10 min'), until Ctrl-C")


def _add_row_changes(verbs: Verbs) -> None:
    delete = table_command(
        verbs,
        "delete",
        "remove the rows that fulfil a condition; older snapshots keep them",
        "Append tables need deletion-vectors.enabled = true: rows are marked, and gone once their files are\n"
        "compacted. Conditions are those of `scan`.",
        module="row_changes",
    )
    update = table_command(
        verbs,
        "update",
        "give the rows that fulfil a condition other values; older snapshots keep what they were",
        "Append tables need deletion-vectors.enabled = true. Conditions are those of `scan`; so are values.",
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
        changing.add_argument("--where", required=True, metavar="CONDITION", help="which rows")
        changing.add_argument("--dry-run", action="store_true", help="only say how many rows would change")


class _Change(argparse.Action):
    """Keeps the order in which changes of different kinds were typed: each sees what those before it made."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        namespace.changes = [*namespace.changes, (option, value)]


def _add_alter(verbs: Verbs) -> None:
    alter = command(
        verbs,
        "alter",
        "alter:alter",
        "change a table's columns, options and comment, all together or not at all",
        "Changes are made in the order given, each is repeatable. No file is rewritten: older rows are read through\n"
        "the new schema, older snapshots under their own. A field inside a column is named by its path: address.city\n"
        "for a ROW, items.element.price inside an ARRAY, sizes.value for a MAP. A name of other characters than\n"
        "letters, digits and _ stands in `backquotes`.",
    )
    alter.add_argument("name", metavar="NAME", help="database.table, or 'database.table$branch_<name>'")
    add_warehouse(alter)
    alter.set_defaults(changes=[])
    changes = alter.add_argument_group("changes")
    for option, metavar, summary in (
        ("--add-column", "COLUMN", "'note STRING', \"note STRING COMMENT 'text' FIRST\", 'note STRING AFTER id'"),
        ("--drop", "COLUMN", "its values are gone for good"),
        ("--rename", "COLUMN=NAME", "keys and options that name the column follow"),
        ("--set-type", "COLUMN", "'amount DECIMAL(18,2)'; older rows are cast when they are read"),
        ("--set-nullable", "COLUMN", "it may hold nulls from now on"),
        ("--set-not-null", "COLUMN", "it may hold none from now on"),
        ("--set-default", "COLUMN=VALUE", "what writers put where a row has no value"),
        ("--drop-default", "COLUMN", "null again"),
        ("--comment-column", "COLUMN=TEXT", "no text removes the comment"),
        ("--move", "COLUMN", "'note FIRST', 'note AFTER id', 'note BEFORE id'"),
        ("--set", "KEY=VALUE", "an option of Paimon: --set bucket=4"),
        ("--unset", "KEY", "back to the option's default"),
        ("--comment", "TEXT", "of the table; '' removes it"),
    ):
        changes.add_argument(option, action=_Change, dest="changes", metavar=metavar, help=summary)
    alter.add_argument("--dry-run", action="store_true", help="only say what would change")


def _add_compact(verbs: Verbs) -> None:
    compact = command(
        verbs,
        "compact",
        "maintenance.compact:compact",
        "rewrite files into fewer, for faster reading; no row changes",
        "Does what is due, or with --full everything. Writers may go on meanwhile; where theirs say write-only = true\n"
        "this is the one that compacts: --watch. SIGTERM or Ctrl-C: commits what is being rewritten, then ends; a\n"
        "second one ends at once. Nothing is lost either way.",
    )
    what = compact.add_mutually_exclusive_group(required=True)
    what.add_argument("name", metavar="NAME", nargs="?", help="database.table, or 'database.table$branch_<name>'")
    what.add_argument("--database", metavar="DATABASE", help="every table of it, instead of one")
    add_warehouse(compact)
    compact.add_argument("--full", action="store_true", help="everything into one sorted run a bucket")
    compact.add_argument("--where", metavar="CONDITION", help="on partition columns: only partitions that fulfil it")
    compact.add_argument(
        "--order-by",
        type=names,
        default=(),
        metavar="COLUMNS",
        help="append tables: lay all rows out by them, separated by commas, so that filters read fewer files",
    )
    compact.add_argument(
        "--strategy",
        choices=("order", "zorder", "hilbert"),
        help="of --order-by; default: order for one column, zorder for up to four, else hilbert",
    )
    compact.add_argument("--watch", action="store_true", help="go on: look again whenever there is a new snapshot")


def _add_table_reading(verbs: Verbs) -> None:
    scan = table_command(
        verbs,
        "scan",
        "rows at a snapshot: the newest, or the one asked for",
        "A condition compares columns with values: --where \"amount > 3 and status in ('new', 'paid')\".\n"
        "It knows = != < <= > >=, [not] in (…), [not] between … and …, is [not] null, like 'abc%', and, or, not.",
    )
    add_projection(scan)
    _add_bucket(scan)
    when = scan.add_mutually_exclusive_group()
    when.add_argument("--snapshot", type=positive, metavar="ID")
    when.add_argument("--tag", metavar="NAME")
    when.add_argument("--as-of", metavar="TIME", help="ISO time (2026-05-01T12:00:00Z; local without a zone)")
    scan.add_argument("--limit", type=positive, metavar="N", help="default: 100 in a table, else all")
    scan.add_argument(
        "--format",
        dest="row_format",
        choices=("table", "json", "csv", "arrow"),
        help="default: table; json is one row a line, arrow a stream of Arrow IPC",
    )
    scan.add_argument(
        "--explain",
        dest="row_format",
        action="store_const",
        const="explain",
        help="instead of rows: of each file, why it is read or not",
    )

    changes = table_command(
        verbs,
        "changes",
        "what snapshots changed, row by row",
        "+I inserted, -U and +U the row before and after an update, -D deleted.",
    )
    add_projection(changes)
    _add_bucket(changes)
    changes.add_argument(
        "--start",
        type=start,
        metavar="WHERE",
        help="first snapshot; default: the oldest there is. With --follow as in `follow`; default: latest",
    )
    changes.add_argument("--end", type=positive, metavar="ID", help="last snapshot; default: the newest now")
    between = changes.add_mutually_exclusive_group()
    between.add_argument(
        "--between", type=range_of("auto"), metavar="A,B", help="after A, with B: two snapshot ids, tags or times"
    )
    between.add_argument(
        "--diff",
        dest="between",
        type=range_of("diff"),
        metavar="A,B",
        help="the difference of the two states, whatever happened between",
    )
    changes.add_argument("--follow", action="store_true", help="go on with what is committed, until Ctrl-C or --end")
    changes.add_argument("--consumer", metavar="NAME", help="of --follow: keep the position in the table")
    changes.add_argument("--share", type=share, metavar="N/COUNT", help="of --follow: as in `follow`")
    changes.add_argument("--limit", type=positive, metavar="N", help="end after so many changes")

    follow = table_command(verbs, "follow", "changes as they are committed, until Ctrl-C")
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
        type=share,
        metavar="N/COUNT",
        help="1/3 is the first of three readers, each with buckets, and a position, of its own",
    )
    follow.add_argument("--limit", type=positive, metavar="N", help="end after so many changes")


def _add_bucket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bucket", type=not_negative, metavar="ID", help="only this bucket, of every partition")


def _add_table_maintenance(verbs: Verbs) -> None:
    expire = table_command(
        verbs,
        "expire",
        "remove snapshots that are no longer needed, and the files that only they reference",
        "Keeps what the table's options say (snapshot.num-retained.*, snapshot.time-retained), or the arguments; what\n"
        "consumers have still to read; tags; the newest snapshot. Writers may go on meanwhile.",
        module="maintenance.expiry",
    )
    expire.add_argument("--retain-min", type=positive, metavar="N", help="this many of the newest always stay")
    expire.add_argument("--retain-max", type=positive, metavar="N", help="no more than this many stay")
    expire.add_argument("--retain-time", metavar="DURATION", help="younger ones stay: 30 min, 1 d, 0 s")
    expire.add_argument("--dry-run", action="store_true", help="only say which would go")

    verify = table_command(
        verbs,
        "verify",
        "see whether everything is there and fits together; changes nothing",
        "All snapshots, tags and branches: their files and the sizes of these, manifests, counts, levels, the chain\n"
        "of each pipeline's positions; and files that nothing names. Exit code 1 when something is wrong.",
        module="maintenance.expiry",
    )
    verify.add_argument("--snapshot", type=positive, metavar="ID", help="only this one")
    verify.add_argument("--deep", action="store_true", help="also read every row of every file")
    verify.add_argument(
        "--changelog",
        action="store_true",
        help="fold the changelog instead, and compare it with the table by checksums of key ranges",
    )
    verify.add_argument(
        "--start", type=not_negative, metavar="ID", help="of --changelog: the state to begin with; 0 is no row"
    )
    verify.add_argument("--end", type=positive, metavar="ID", help="of --changelog: the state to compare with")

    explain = table_command(
        verbs,
        "explain",
        "every version of one row: where it came from, and which is seen",
        "Snapshot, file, level, kind, sequence number, offsets of the source, for each version that is still on file;\n"
        "what the changelog holds; and what a read merges.",
        module="explain",
    )
    explain.add_argument(
        "--key",
        action="append",
        type=pair,
        default=[],
        required=True,
        metavar="COLUMN=VALUE",
        help="a column of the primary key, repeatable: all of them",
    )
    explain.add_argument("--snapshot", type=positive, metavar="ID", help="as of this one; default: the newest")
    verify.add_argument(
        "--orphans-older-than",
        default="1 d",
        metavar="DURATION",
        help="younger files that nothing names may belong to a commit under way; default: 1 d",
    )
