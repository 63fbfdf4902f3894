"""What the arguments of all commands share: their nouns and verbs, common options, and the types of values.

It uses argparse, which answers `--help` in 40 ms and starts a command as fast; typer takes 150 ms for either, cyclopts
150 and 80. Each option is a parameter of its command's function; a test checks that they agree.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO, cast

from tidelake.cli.exits import UsageError

if TYPE_CHECKING:
    from tidelake.catalog import Catalog

WAREHOUSE_VARIABLE: Final = "TIDELAKE_WAREHOUSE"
TABLE_NAME: Final = "database.table, or 'database.table$branch_<name>'"

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


if TYPE_CHECKING:
    _CommandsAction = argparse._SubParsersAction["ArgumentParser"]
else:
    _CommandsAction = argparse._SubParsersAction  # no generic type while a program runs, and no public name


class Commands(_CommandsAction):
    """The commands below the program, or below a noun. Help lists them by task."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.of_task: dict[str, list[argparse.Action]] = {}  # what help shows of each command
        self._task = "commands"

    def begin(self, task: str) -> None:
        """Begin the list of another task."""
        self._task = task

    def add_parser(self, name: str, **named: Any) -> ArgumentParser:
        parser: ArgumentParser = super().add_parser(name, **named)
        self.of_task.setdefault(self._task, []).append(self._choices_actions[-1])
        return parser


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose help lists commands by task, in colours on a terminal. An error ends with what a misspelt command,
    option or choice was meant to be.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.color = False  # Python 3.14 has colours of its own

    def add_commands(self) -> Commands:
        return cast(Commands, self.add_subparsers(title="commands", metavar="COMMAND", action=Commands))

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        # Commands come first: the options of a noun are not why one asks.
        for group in sorted(self._action_groups, key=lambda group: not _commands_in(group)):
            commands = _commands_in(group)
            lists = commands[0].of_task if commands else {group.title: group._group_actions}
            for title, actions in lists.items():
                formatter.start_section(title)
                formatter.add_text(group.description)
                formatter.add_arguments(actions)
                formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def print_help(self, file: Any = None) -> None:
        """Print the help; on a terminal in colours, unless NO_COLOR is set."""
        stream = sys.stdout if file is None else file
        if stream.isatty():
            _print_in_colours(self.format_help(), stream)
        else:
            super().print_help(stream)

    def error(self, message: str) -> NoReturn:
        super().error(message + _hint(message, self._option_string_actions))


def _commands_in(group: argparse._ArgumentGroup) -> list[Commands]:
    return [action for action in group._group_actions if isinstance(action, Commands)]


def _print_in_colours(text: str, stream: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    shown = Text(text.rstrip("\n"))
    shown.highlight_regex(r"(?m)^(usage|[a-z][^\n:]*):", "bold")
    shown.highlight_regex(r"(?<![\w-])--?[a-z][a-z-]*", "cyan")
    shown.highlight_regex(r"(?m)^  (?P<cyan>[a-z][a-z-]*)(?=  |$)")  # a command
    shown.highlight_regex(r"`[^`\n]+`", "cyan")
    Console(file=stream, highlight=False).print(shown, soft_wrap=True)


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


def noun(nouns: Commands, name: str, summary: str) -> Commands:
    parser = nouns.add_parser(name, help=summary, description=_sentence(summary), allow_abbrev=False)
    parser.set_defaults(parser=parser)
    return parser.add_commands()


def command(
    verbs: Commands,
    name: str,
    function: Command,
    summary: str,
    details: str = "",
    *,
    example: str,
    log_level: str = "warning",
    log_format: str = "auto",
    is_service: bool = False,
) -> argparse.ArgumentParser:
    """Add a verb with the options that every command has.

    function: runs the command; it gets the options as keyword arguments
    example: a command line that does something useful, or a few lines of them
    log_level: default of --log-level
    log_format: default of --log-format
    is_service: the command runs until it is stopped, and as the only one in its process
    """
    examples = "".join(f"\n  {line}" for line in example.splitlines())
    parser = verbs.add_parser(
        name,
        help=summary,
        description=_sentence(summary) + (f"\n\n{details}" if details else ""),
        epilog=f"example:{examples}",
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
    verbs: Commands, name: str, function: Command, summary: str, details: str = "", *, example: str
) -> argparse.ArgumentParser:
    """Add a verb whose first argument is a table."""
    parser = command(verbs, name, function, summary, details, example=example)
    parser.add_argument("name", metavar="NAME", help=TABLE_NAME)
    add_warehouse(parser)
    return parser


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + ("" if summary.endswith("…") else ".")


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


def finite(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return number


finite.__name__ = "number"
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
