"""What the arguments of all commands share: their nouns and verbs, common options, and the types of values.

It uses argparse, which answers `--help` in 40 ms and starts a command as fast; typer takes 150 ms for either, cyclopts
150 and 80. Each option is a parameter of its command's function; a test checks that they agree.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tidelake.cli.exits import UsageError

if TYPE_CHECKING:
    from tidelake.catalog import Catalog

WAREHOUSE_VARIABLE: Final = "TIDELAKE_WAREHOUSE"
TABLE_NAME: Final = "database.table, or 'database.table$branch_<name>'"

Verbs = Any  # argparse has no public name for the type that add_subparsers returns
Command = Callable[..., Any]
"""Runs a command: takes a CommandOutput and an option each. Returns an exit code, or None if all was done."""


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """The address of a catalog: its warehouse, and the options of the catalog and the store."""

    warehouse: str
    options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Catalog:
        from tidelake.catalog import open_catalog  # slow to import

        return open_catalog(self.warehouse, **dict(self.options))


class ArgumentParser(argparse.ArgumentParser):
    """A parser that names what a misspelt command, option or choice was meant to be, in the last line."""

    def error(self, message: str) -> NoReturn:
        super().error(message + _hint(message, self._option_string_actions))


def _hint(message: str, options: Iterable[str]) -> str:
    """Return `; did you mean --until?` for a misspelt word of a message of argparse, or nothing."""
    choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if choice is not None:
        word, known = choice[1], re.findall(r"'([^']*)'", choice[2])
    elif message.startswith("unrecognized arguments: --"):
        word, known = message.split()[2].partition("=")[0], [name for name in options if name.startswith("--")]
    else:
        return ""
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


# ---------------------------------------------------------------- nouns and verbs


def noun(nouns: Verbs, name: str, summary: str) -> Verbs:
    parser = nouns.add_parser(name, help=summary, description=_sentence(summary), allow_abbrev=False)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=False)


def command(
    verbs: Verbs,
    name: str,
    function: Command,
    summary: str,
    details: str = "",
    *,
    log_level: str = "warning",
    log_format: str = "auto",
    is_service: bool = False,
) -> argparse.ArgumentParser:
    """Add a verb with the options that every command has.

    function: runs the command; it gets the options as keyword arguments
    log_level: default of --log-level
    log_format: default of --log-format
    is_service: the command runs until it is stopped, and as the only one in its process
    """
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=_sentence(summary) + (f"\n\n{details}" if details else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser, command=function, default_log_level=log_level, is_service=is_service)
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


def table_command(
    verbs: Verbs, name: str, function: Command, summary: str, details: str = ""
) -> argparse.ArgumentParser:
    """Add a verb whose first argument is a table."""
    parser = command(verbs, name, function, summary, details)
    parser.add_argument("name", metavar="NAME", help=TABLE_NAME)
    add_warehouse(parser)
    return parser


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


# ---------------------------------------------------------------- options of several commands


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


def add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        action="append",
        type=pair,
        default=[],
        metavar="COLUMN=VALUE",
        help="only partitions with this value; repeatable for several columns",
    )


def add_dry_run(parser: argparse.ArgumentParser, summary: str = "only list what would be deleted") -> None:
    parser.add_argument("--dry-run", action="store_true", help=summary)


def add_vertical(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vertical", action="store_true", help="in a table: print each value on a line of its own")


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML file; see `tidelake help configuration`")
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting of the file or the environment: --set checkpoint.interval_ms=5000; repeatable",
    )


# ---------------------------------------------------------------- types of values. argparse shows names and messages

_NUMBER_MAX: Final = 2**63 - 1  # for numbers of rows and snapshot ids


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    if number > _NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {_NUMBER_MAX}")
    return number


def not_negative(text: str) -> int:
    return 0 if text == "0" else positive(text)


not_negative.__name__ = "whole number"
positive.__name__ = "whole number"  # argparse says: invalid whole number value: 'x'


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, not {text!r}")
    return key.strip(), value


def names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return names


# ---------------------------------------------------------------- values that only a running command parses


def duration_ms(option: str, text: str) -> int:
    """Parse `30 min`. Raises UsageError that begins with the option."""
    from tidelake.errors import BadInput
    from tidelake.storage.model.options.values import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except (BadInput, ValueError) as error:
        raise UsageError(f"{option}: {error}") from None
