"""What an error message tells the user to do next: a command that alters the table, or a similar name that exists.

`tidelake.cli.schema_texts` parses the commands (`tidelake table alter shop.orders --add-column 'note STRING'`); a test
checks that both match.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from tidelake.storage.model.types import DataType, nullable


def alter_command(table: str, location: str, *changes: str) -> str:
    """Return the command, quoted for a shell.

    table: its full name.
    location: its root directory. If it is unknown (""), the command lacks the warehouse.
    changes: made by the functions below.
    """
    return f"tidelake table alter {_address(table, location)} {' '.join(changes)}"


def rewrite_command(table: str, location: str, *changes: str) -> str:
    """Return the command that rewrites a table, like `alter_command`."""
    return " ".join(("tidelake", "table", "rewrite", _address(table, location), *changes))


def _address(table: str, location: str) -> str:
    warehouse = f" -w {shlex.quote(location.rsplit('/', 2)[0])}" if location else ""
    return f"{shlex.quote(table)}{warehouse}"


def add_column(path: str | Sequence[str], data_type: DataType) -> str:
    """Return the option that adds a column. It is always nullable, as existing rows lack the column."""
    return f"--add-column {shlex.quote(f'{path_text(path)} {nullable(data_type)}')}"


def drop_column(name: str) -> str:
    """Return the option that drops a column."""
    return f"--drop {shlex.quote(name)}"


def set_type(path: str | Sequence[str], data_type: DataType) -> str:
    """Return the option that changes a type. The column stays nullable, or NOT NULL."""
    return f"--set-type {shlex.quote(f'{path_text(path)} {nullable(data_type)}')}"


def set_option(key: str, value: str) -> str:
    return f"--set {shlex.quote(f'{key}={value}')}"


def set_primary_key(columns: Sequence[str]) -> str:
    """Return the option of a rewrite that changes the primary key."""
    return f"--primary-key {shlex.quote(','.join(columns))}"


def path_text(path: str | Sequence[str]) -> str:
    """Return a path as `address.city`.

    A name with other characters than letters, digits and `_` is quoted in backquotes.
    """
    names = (path,) if isinstance(path, str) else path
    return ".".join(name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`" for name in names)


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return `; did you mean 'orders'?` for the end of a message; "" if no known name is similar.

    prefix: shown before the known name, to make it whole: `shop.`
    """
    by_lower_case = {k.lower(): k for k in known}
    matches = get_close_matches(name.lower(), by_lower_case, n=1)
    return f"; did you mean {prefix + by_lower_case[matches[0]]!r}?" if matches else ""
