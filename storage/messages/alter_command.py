"""The command that alters a table, as messages give it: `tidelake table alter shop.orders --add-column 'note STRING'`.

`tidelake.cli.commands.alter` reads what is written here; a test holds the two together.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from storage.types import DataType, nullable


def alter_command(table: str, location: str, *changes: str) -> str:
    """To be pasted into a shell.

    table: its full name.
    location: its root directory; "" where it isn't known, and the command then lacks its warehouse.
    changes: made by the functions below.
    """
    warehouse = f" -w {shlex.quote(location.rsplit('/', 2)[0])}" if location else ""
    return f"tidelake table alter {shlex.quote(table)}{warehouse} {' '.join(changes)}"


def add_column(path: str | Sequence[str], data_type: DataType) -> str:
    """Nullable, whatever `data_type` says: rows that are there already lack the column."""
    return f"--add-column {shlex.quote(f'{path_text(path)} {nullable(data_type)}')}"


def set_type(path: str | Sequence[str], data_type: DataType) -> str:
    """The column stays nullable, or NOT NULL."""
    return f"--set-type {shlex.quote(f'{path_text(path)} {nullable(data_type)}')}"


def set_option(key: str, value: str) -> str:
    return f"--set {shlex.quote(f'{key}={value}')}"


def path_text(path: str | Sequence[str]) -> str:
    """`address.city`; a name that is more than letters, digits and `_` stands in backquotes."""
    names = (path,) if isinstance(path, str) else path
    return ".".join(name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`" for name in names)
