"""What can be typed: nouns, verbs, options and their help. Imports nothing heavy: `tidelake --help` only needs this.

argparse, because it answers `--help` in 40 ms and starts a command as fast; typer takes 150 ms for either, cyclopts 150
and 80. Every option below is a parameter of its command's function; a test holds them together.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelake.catalog import Catalog

PROGRAM: Final = "tidelake"
WAREHOUSE_VARIABLE: Final = "TIDELAKE_WAREHOUSE"

_EPILOG: Final = """\
exit codes:
  0  done          3  refused: going on would risk data; the message names the options
  1  failed        4  fenced: a newer writer owns the pipeline
  2  usage       130  interrupted

Data goes to standard output, everything else to standard error. --json after any command gives output for programs.
"""


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """Which warehouse, and how its store is reached."""

    warehouse: str
    options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Catalog:
        from tidelake.catalog import open_catalog  # heavy

        return open_catalog(self.warehouse, **dict(self.options))


@dataclass(frozen=True, slots=True)
class Invocation:
    """command: `module:function`; options: its keyword arguments."""

    command: str
    options: Mapping[str, Any]
    is_json: bool
    is_debug: bool
    log_level: str
    log_format: str


def parse(arguments: Sequence[str] | None = None) -> Invocation:
    """Exits with code 2 and a message when the arguments are none, with 0 after `--help` and `--version`."""
    known, unknown = build_parser().parse_known_args(arguments)
    options = vars(known)
    if unknown:  # argparse by itself shows the usage of `tidelake`, which doesn't say what the command takes
        options["parser"].error(f"unrecognized arguments: {' '.join(unknown)}")
    if "command" not in options:
        options["parser"].print_help(sys.stderr)
        raise SystemExit(2)
    level = options.pop("log_level") or options.pop("default_log_level", "warning")
    for name in ("default_log_level", "parser", "version"):
        options.pop(name, None)
    if "warehouse" in options:
        options["catalog"] = CatalogAddress(options.pop("warehouse"), tuple(options.pop("catalog_options")))
    return Invocation(
        options.pop("command"),
        is_json=options.pop("json"),
        is_debug=options.pop("debug"),
        log_level=level,
        log_format=options.pop("log_format"),
        options=options,
    )


class _Version(argparse.Action):
    """Looks the version up only when asked: that takes as long as all the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Change streams from Kafka and Spark, into lake tables that every Apache Paimon reader can open.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.set_defaults(parser=parser)
    nouns = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(nouns)
    _add_ingest(_noun(nouns, "ingest", "a pipeline on this machine: from Kafka or a folder into tables"))
    _add_spark(_noun(nouns, "spark", "the same pipeline on Spark Structured Streaming"))
    _add_table(_noun(nouns, "table", "create tables, read them, follow their changes"))
    return parser


_Verbs = Any  # argparse keeps the type of what add_subparsers returns to itself


def _noun(nouns: _Verbs, name: str, summary: str) -> _Verbs:
    parser = nouns.add_parser(name, help=summary, description=_sentence(summary), allow_abbrev=False)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=False)


def _command(
    verbs: _Verbs,
    name: str,
    module: str,
    summary: str,
    details: str = "",
    *,
    log_level: str = "warning",
    log_format: str = "auto",
) -> argparse.ArgumentParser:
    """A verb with the options that every command has. log_level, log_format: unless others are asked for."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=_sentence(summary) + (f"\n\n{details}" if details else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser, command=f"tidelake.cli.commands.{module}", default_log_level=log_level)
    common = parser.add_argument_group("in every command")
    common.add_argument("--json", action="store_true", help="output for programs: a JSON document, or one a line")
    common.add_argument("--debug", action="store_true", help="show where an error came from")
    common.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help=f"default: {log_level}")
    common.add_argument(
        "--log-format",
        choices=("auto", "text", "json"),
        default=log_format,
        help=f"auto: text on a terminal, else json; default: {log_format}",
    )
    return parser


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


# ---------------------------------------------------------------- demo


def _add_demo(nouns: _Verbs) -> None:
    summary = "a small shop's changes become tables, live, proven at the end"
    parser = _command(nouns, "demo", "demo:demo", summary, log_format="text")  # it draws a picture, also into a file
    parser.add_argument(
        "--engine",
        choices=("auto", "spark", "asyncio"),
        default="auto",
        help="what runs the pipeline; auto: Spark if PySpark and Java are here, else asyncio",
    )
    parser.add_argument("--directory", metavar="DIR", help="empty or new; default: a new one for temporary files")
    parser.add_argument("--records", type=_positive, default=60_000, metavar="N", help="default: 60000")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, another shop; default: 1")
    parser.add_argument(
        "--pace", type=_seconds, default=1.2, metavar="SECONDS", help="between files of the change log; default: 1.2"
    )


# ---------------------------------------------------------------- ingest, spark


def _add_ingest(verbs: _Verbs) -> None:
    run = _command(
        verbs,
        "run",
        "ingest:run",
        "run a pipeline until its source ends, or for ever",
        "Ctrl-C or SIGTERM: commits what was read, then ends. A second one ends at once; nothing is lost either way.",
        log_level="info",
    )
    _add_config(run)
    _add_ways_out(run)
    plan = _command(verbs, "plan", "ingest:plan", "show what `run` would do: source, tables, positions; writes nothing")
    _add_config(plan)
    plan.add_argument("--details", action="store_true", help="name every topic and partition of each table")
    _add_ways_out(plan)


def _add_spark(verbs: _Verbs) -> None:
    run = _command(
        verbs,
        "run",
        "spark:run",
        "run a pipeline's configuration on Spark Structured Streaming",
        "Positions are kept in the tables and in Spark's checkpoint directory: keep that for the life of the pipeline.",
        log_level="info",
    )
    _add_config(run)
    run.add_argument("--master", default="local[*]", help="default: local[*]; ignored when spark-submit names one")
    run.add_argument(
        "--conf",
        action="append",
        type=_pair,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the Spark session, repeatable",
    )
    run.add_argument(
        "--checkpoint", metavar="DIR", help="Spark's checkpoint directory; default: <pipeline>.spark in the warehouse"
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML file; see docs/configuration.md")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="over the file and the environment: --set checkpoint.interval_ms=5000, repeatable",
    )


def _add_ways_out(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_argument_group(
        "options for a pipeline that refused to go on",
        "Each is for one start, and kept in the table's next snapshot.",
    )
    ways.add_argument(
        "--accept-gap",
        action="append",
        default=[],
        metavar="TABLE",
        help="go on beyond what is lost; nothing comes twice",
    )
    ways.add_argument(
        "--rewind-to",
        action="append",
        default=[],
        metavar="TABLE=WHERE",
        help="read again from `earliest`, an ISO time, or TOPIC:PARTITION:OFFSET,…",
    )
    ways.add_argument(
        "--from-snapshot",
        action="append",
        default=[],
        metavar="TABLE=ID",
        help="go on where this snapshot of the table ended",
    )


# ---------------------------------------------------------------- table


def _add_table(verbs: _Verbs) -> None:
    _add_table_management(verbs)
    _add_table_reading(verbs)
    _add_table_maintenance(verbs)


def _add_table_management(verbs: _Verbs) -> None:
    create = _table_command(verbs, "create", "create a table, and its database if there is none")
    create.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="a column with its Paimon type, repeatable: 'amount:DECIMAL(10,2) NOT NULL'",
    )
    create.add_argument("--schema-from", metavar="FILE", help="take the columns of a Parquet file instead")
    create.add_argument("--primary-key", type=_names, default=(), metavar="COLUMNS", help="separated by commas")
    create.add_argument("--partition-by", type=_names, default=(), metavar="COLUMNS", help="separated by commas")
    create.add_argument(
        "--option",
        dest="options",
        action="append",
        type=_pair,
        default=[],
        metavar="KEY=VALUE",
        help="of Paimon: --option bucket=4, repeatable",
    )
    create.add_argument("--comment", metavar="TEXT")
    create.add_argument("--if-not-exists", action="store_true", help="no error when it exists; it stays as it is")

    _add_alter(verbs)

    listing = _command(verbs, "list", "table:list_tables", "names of tables")
    listing.add_argument("database", metavar="DATABASE", nargs="?", help="default: all of the warehouse")
    _add_warehouse(listing)

    show = _table_command(verbs, "show", "columns, keys, options, newest snapshot, files")
    show.add_argument("--all-buckets", action="store_true", help="list every bucket, not only the largest")

    snapshots = _table_command(verbs, "snapshots", "snapshots, newest first")
    snapshots.add_argument("--limit", type=_positive, metavar="N", help="default: 20, or all with --json")

    _add_compact(verbs)

    truncate = _table_command(
        verbs, "truncate", "remove all rows, or those of some partitions; older snapshots keep them"
    )
    truncate.add_argument(
        "--partition",
        action="append",
        type=_pair,
        default=[],
        metavar="COLUMN=VALUE",
        help="only partitions that agree, repeatable for several columns",
    )
    truncate.add_argument("--yes", action="store_true", help="don't ask")

    drop = _table_command(verbs, "drop", "delete a table with all its data, snapshots and tags")
    drop.add_argument("--yes", action="store_true", help="don't ask")
    drop.add_argument("--if-exists", action="store_true", help="no error when there is none")


class _Change(argparse.Action):
    """Keeps the order in which changes of different kinds were typed: each sees what those before it made."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        namespace.changes = [*namespace.changes, (option, value)]


def _add_alter(verbs: _Verbs) -> None:
    alter = _command(
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
    _add_warehouse(alter)
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


def _add_compact(verbs: _Verbs) -> None:
    compact = _command(
        verbs,
        "compact",
        "compact:compact",
        "rewrite files into fewer, for faster reading; no row changes",
        "Does what is due, or with --full everything. Writers may go on meanwhile; where theirs say write-only = true\n"
        "this is the one that compacts: --watch. SIGTERM or Ctrl-C: commits what is being rewritten, then ends; a\n"
        "second one ends at once. Nothing is lost either way.",
    )
    what = compact.add_mutually_exclusive_group(required=True)
    what.add_argument("name", metavar="NAME", nargs="?", help="database.table, or 'database.table$branch_<name>'")
    what.add_argument("--database", metavar="DATABASE", help="every table of it, instead of one")
    _add_warehouse(compact)
    compact.add_argument("--full", action="store_true", help="everything into one sorted run a bucket")
    compact.add_argument("--where", metavar="CONDITION", help="on partition columns: only partitions that fulfil it")
    compact.add_argument(
        "--order-by",
        type=_names,
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


def _add_table_reading(verbs: _Verbs) -> None:
    scan = _table_command(
        verbs,
        "scan",
        "rows at a snapshot: the newest, or the one asked for",
        "A condition compares columns with values: --where \"amount > 3 and status in ('new', 'paid')\".\n"
        "It knows = != < <= > >=, [not] in (…), [not] between … and …, is [not] null, like 'abc%', and, or, not.",
    )
    _add_projection(scan)
    when = scan.add_mutually_exclusive_group()
    when.add_argument("--snapshot", type=_positive, metavar="ID")
    when.add_argument("--tag", metavar="NAME")
    when.add_argument("--as-of", metavar="TIME", help="ISO time (2026-05-01T12:00:00Z; local without a zone)")
    scan.add_argument("--limit", type=_positive, metavar="N", help="default: 100 in a table, else all")
    scan.add_argument(
        "--format",
        dest="row_format",
        choices=("table", "json", "csv", "arrow"),
        help="default: table; json is one row a line, arrow a stream of Arrow IPC",
    )

    changes = _table_command(
        verbs,
        "changes",
        "what snapshots changed, row by row",
        "+I inserted, -U and +U the row before and after an update, -D deleted.",
    )
    _add_projection(changes)
    changes.add_argument(
        "--start",
        type=_start,
        metavar="WHERE",
        help="first snapshot; default: the oldest there is. With --follow as in `follow`; default: latest",
    )
    changes.add_argument("--end", type=_positive, metavar="ID", help="last snapshot; default: the newest now")
    between = changes.add_mutually_exclusive_group()
    between.add_argument(
        "--between", type=_range("auto"), metavar="A,B", help="after A, with B: two snapshot ids, tags or times"
    )
    between.add_argument(
        "--diff",
        dest="between",
        type=_range("diff"),
        metavar="A,B",
        help="the difference of the two states, whatever happened between",
    )
    changes.add_argument("--follow", action="store_true", help="go on with what is committed, until Ctrl-C or --end")
    changes.add_argument("--consumer", metavar="NAME", help="of --follow: keep the position in the table")

    follow = _table_command(verbs, "follow", "changes as they are committed, until Ctrl-C")
    _add_projection(follow)
    follow.add_argument(
        "--start",
        type=_start,
        default="latest",
        metavar="WHERE",
        help="latest (default), earliest, a snapshot id, latest-full, …: docs/reading-changes.md",
    )
    follow.add_argument("--consumer", metavar="NAME", help="keep the position in the table under this name")
    follow.add_argument("--until", type=_positive, metavar="ID", help="end after this snapshot")


def _add_table_maintenance(verbs: _Verbs) -> None:
    expire = _table_command(
        verbs,
        "expire",
        "remove snapshots that are no longer needed, and the files that only they reference",
        "Keeps what the table's options say (snapshot.num-retained.*, snapshot.time-retained), or the arguments; what\n"
        "consumers have still to read; tags; the newest snapshot. Writers may go on meanwhile.",
        module="maintenance",
    )
    expire.add_argument("--retain-min", type=_positive, metavar="N", help="this many of the newest always stay")
    expire.add_argument("--retain-max", type=_positive, metavar="N", help="no more than this many stay")
    expire.add_argument("--retain-time", metavar="DURATION", help="younger ones stay: 30 min, 1 d, 0 s")
    expire.add_argument("--dry-run", action="store_true", help="only say which would go")

    verify = _table_command(
        verbs,
        "verify",
        "see whether everything is there and fits together; changes nothing",
        "All snapshots, tags and branches: their files and the sizes of these, manifests, counts, levels, the chain\n"
        "of each pipeline's positions; and files that nothing names. Exit code 1 when something is wrong.",
        module="maintenance",
    )
    verify.add_argument("--snapshot", type=_positive, metavar="ID", help="only this one")
    verify.add_argument("--deep", action="store_true", help="also read every row of every file")
    verify.add_argument(
        "--changelog",
        action="store_true",
        help="fold the changelog instead, and compare it with the table row by row",
    )
    verify.add_argument(
        "--start", type=_not_negative, metavar="ID", help="of --changelog: the state to begin with; 0 is no row"
    )
    verify.add_argument("--end", type=_positive, metavar="ID", help="of --changelog: the state to compare with")

    explain = _table_command(
        verbs,
        "explain",
        "every version of one row: where it came from, and which is seen",
        "Snapshot, file, level, kind, sequence number, offsets of the source, for each version that is still on file;\n"
        "what the changelog told; and what a read merges.",
        module="explain",
    )
    explain.add_argument(
        "--key",
        action="append",
        type=_pair,
        default=[],
        required=True,
        metavar="COLUMN=VALUE",
        help="a column of the primary key, repeatable: all of them",
    )
    explain.add_argument("--snapshot", type=_positive, metavar="ID", help="as of this one; default: the newest")
    verify.add_argument(
        "--orphans-older-than",
        default="1 d",
        metavar="DURATION",
        help="younger files that nothing names may belong to a commit under way; default: 1 d",
    )


def _table_command(
    verbs: _Verbs, name: str, summary: str, details: str = "", *, module: str = "table"
) -> argparse.ArgumentParser:
    parser = _command(verbs, name, f"{module}:{name}", summary, details)
    parser.add_argument("name", metavar="NAME", help="database.table, or 'database.table$branch_<name>'")
    _add_warehouse(parser)
    return parser


def _add_warehouse(parser: argparse.ArgumentParser) -> None:
    known = os.environ.get(WAREHOUSE_VARIABLE)
    parser.add_argument(
        "-w",
        "--warehouse",
        default=known,
        required=not known,
        metavar="PATH",
        help=f"path or URI of the warehouse; or set {WAREHOUSE_VARIABLE}",
    )
    parser.add_argument(
        "--catalog-option",
        dest="catalog_options",
        action="append",
        type=_pair,
        default=[],
        metavar="KEY=VALUE",
        help="of the object store: s3.endpoint=…, repeatable",
    )


def _add_projection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", type=_names, metavar="COLUMNS", help="separated by commas, in the order wanted")
    parser.add_argument("--where", metavar="CONDITION", help="only rows that fulfil it")


# ---------------------------------------------------------------- kinds of values


_NUMBER_MAX: Final = 2**63 - 1  # of rows, of snapshots


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    if number > _NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {_NUMBER_MAX}")
    return number


def _not_negative(text: str) -> int:
    return 0 if text == "0" else _positive(text)


_not_negative.__name__ = "whole number"
_positive.__name__ = "whole number"  # argparse says: invalid whole number value: 'x'


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time to wait; give 0 or more")
    return seconds


_seconds.__name__ = "number of seconds"


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, not {text!r}")
    return key.strip(), value


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return names


def _range(mode: str) -> Callable[[str], tuple[str, str, str]]:
    def parse(text: str) -> tuple[str, str, str]:
        first, comma, last = (part.strip() for part in text.partition(","))
        if not comma or not first or not last or "," in last:
            raise argparse.ArgumentTypeError(f"{text!r}: write A,B, as in 3,7")
        return mode, first, last

    return parse


_START_WORDS: Final = ("latest", "earliest", "latest-full", "compacted-full")


def _start(text: str) -> str | int:
    """A word, a mode with what it needs behind a colon, a position, or a snapshot id."""
    if text in _START_WORDS or text.startswith(("from-", "{")):
        return text
    return _positive(text)


_start.__name__ = "start (latest, earliest, a snapshot id, …)"
