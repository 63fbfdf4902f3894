"""The parser of all commands, and a parsed command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments.common import noun
from tidelake.cli.arguments.databases import add_catalog, add_database
from tidelake.cli.arguments.pipelines import (
    add_completion,
    add_dead_letters,
    add_demo,
    add_ingest,
    add_spark,
)
from tidelake.cli.arguments.sync import add_sync_database, add_sync_table
from tidelake.cli.arguments.tables import add_table
from tidelake.cli.arguments.views import add_view

if TYPE_CHECKING:
    from tidelake.catalog import Catalog

PROGRAM: Final = "tidelake"

_EPILOG: Final = """\
exit codes:
  0  done          3  refused: continuing could lose data; the message lists the options
  1  failed        4  fenced: a newer writer owns the pipeline
  2  usage       130  interrupted

Data goes to standard output, everything else to standard error. --json after any command gives output for programs.
"""


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """The address of a catalog: its warehouse, and the options of the catalog and the store."""

    warehouse: str
    options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Catalog:
        from tidelake.catalog import open_catalog  # slow to import

        return open_catalog(self.warehouse, **dict(self.options))


@dataclass(frozen=True, slots=True)
class Invocation:
    """A parsed command line.

    command: `module:function`
    options: keyword arguments of that function
    """

    command: str
    options: Mapping[str, Any]
    is_json: bool
    is_debug: bool
    log_level: str
    log_format: str


def parse(arguments: Sequence[str] | None = None) -> Invocation:
    """Parse a command line. Exits with code 2 and a message if it is invalid, with 0 after `--help` and `--version`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    known, unknown = build_parser().parse_known_args(own)
    if hasattr(known, "passed_on"):  # argparse doesn't support `--` after options that follow a positional
        known.passed_on = tuple(given[len(own) + 1 :])
    elif own != given:
        known, unknown = build_parser().parse_known_args(given)
    options = vars(known)
    if unknown:  # argparse would show the usage of `tidelake`, without the arguments of the command
        options["parser"].error(f"unrecognized arguments: {' '.join(unknown)}")
    if "command" not in options:
        options["parser"].print_help(sys.stderr)
        raise SystemExit(2)
    level = options.pop("log_level") or options.pop("default_log_level", "warning")
    for name in ("default_log_level", "parser", "version"):
        options.pop(name, None)
    if "catalog_options" in options:
        options["catalog"] = CatalogAddress(options.pop("warehouse"), tuple(options.pop("catalog_options")))
    return Invocation(
        options.pop("command"),
        is_json=options.pop("json"),
        is_debug=options.pop("debug"),
        log_level=level,
        log_format=options.pop("log_format"),
        options=options,
    )


class _PrintVersion(argparse.Action):
    """Prints the version. It is looked up only now, as that takes as long as all other parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Writes change streams from Kafka and Spark into tables that every Apache Paimon reader can open.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="show the version and exit")
    parser.set_defaults(parser=parser)
    nouns = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_demo(nouns)
    add_ingest(noun(nouns, "ingest", "run a pipeline on this machine, from Kafka or a folder into tables"))
    add_dead_letters(noun(nouns, "dead-letters", "dead letters: list, show, replay"))
    add_sync_table(nouns)
    add_sync_database(nouns)
    add_spark(noun(nouns, "spark", "run a pipeline on Spark Structured Streaming, or call procedures"))
    add_completion(nouns)
    add_database(noun(nouns, "database", "databases: list, create, drop, migrate"))
    add_catalog(noun(nouns, "catalog", "catalog entries: repair"))
    add_table(noun(nouns, "table", "tables: create, alter, read, follow, compact, expire, …"))
    add_view(noun(nouns, "view", "views of a catalog: list, show, create, rename, drop"))
    return parser
