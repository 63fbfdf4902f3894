"""Arguments that several commands share: their help, the options of all commands, the warehouse."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from tidelake.cli.arguments.values import names, pair

WAREHOUSE_VARIABLE: Final = "TIDELAKE_WAREHOUSE"

Verbs = Any  # argparse has no public name for the type that add_subparsers returns


def noun(nouns: Verbs, name: str, summary: str) -> Verbs:
    parser = nouns.add_parser(name, help=summary, description=sentence(summary), allow_abbrev=False)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=False)


def command(
    verbs: Verbs,
    name: str,
    module: str,
    summary: str,
    details: str = "",
    *,
    log_level: str = "warning",
    log_format: str = "auto",
) -> argparse.ArgumentParser:
    """Add a verb with the options that every command has.

    log_level: default of --log-level
    log_format: default of --log-format
    """
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=sentence(summary) + (f"\n\n{details}" if details else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser, command=f"tidelake.cli.commands.{module}", default_log_level=log_level)
    common = parser.add_argument_group("options of every command")
    common.add_argument("--json", action="store_true", help="output for programs: a JSON document, or one per line")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help=f"default: {log_level}")
    common.add_argument(
        "--log-format",
        choices=("auto", "text", "json"),
        default=log_format,
        help=f"auto: text on a terminal, otherwise json; default: {log_format}",
    )
    return parser


def sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


def table_command(
    verbs: Verbs, name: str, summary: str, details: str = "", *, module: str = "table", function: str | None = None
) -> argparse.ArgumentParser:
    parser = command(verbs, name, f"{module}:{function or name}", summary, details)
    parser.add_argument("name", metavar="NAME", help="database.table, or 'database.table$branch_<name>'")
    add_warehouse(parser)
    return parser


def add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        action="append",
        type=pair,
        default=[],
        metavar="COLUMN=VALUE",
        help="only partitions with this value; repeatable for several columns",
    )


def add_warehouse(parser: argparse.ArgumentParser) -> None:
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
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="option of the catalog or the object store: metastore=jdbc, s3.endpoint=…; repeatable",
    )


def add_projection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns", type=names, metavar="COLUMNS", help="only these, in this order, separated by commas"
    )
    parser.add_argument("--where", metavar="CONDITION", help="only rows that match")


def add_migration_source(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add the arguments of a migration's source.

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
    parser.add_argument("--dry-run", action="store_true", help="only print what the table would be")
