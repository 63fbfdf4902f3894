"""The parts of a table's name: `shop.orders`, `shop.orders$branch_dev`, `shop.orders$snapshots`.

Source: Java `catalog/Identifier.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import check_file_name
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.paths import check_branch_name

SYSTEM_DATABASE: Final = "sys"  # holds system tables about all tables; it never has a directory

_BRANCH: Final = "branch_"
_SPELLING: Final = "write 'database.table', 'database.table$branch_NAME' or 'database.table$SYSTEM_TABLE'"


@dataclass(frozen=True, slots=True)
class Identifier:
    """The name of a table, a branch or a system table.

    system_table: `snapshots`, `files`, …; None for the table itself.
    """

    database: str
    table: str
    branch: str = DEFAULT_BRANCH
    system_table: str | None = None

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """Parse a name. The database ends at the first dot; the table's name may contain dots. Raises BadInput."""
        database, dot, rest = text.partition(".")
        table, *suffixes = rest.split("$")
        branch, system_table = DEFAULT_BRANCH, None
        if suffixes and suffixes[0].startswith(_BRANCH):
            branch = suffixes.pop(0).removeprefix(_BRANCH)
        if suffixes:
            system_table = suffixes.pop(0)
        if not dot or suffixes or system_table == "":
            raise BadInput(f"{text!r} is not the name of a table: {_SPELLING}")
        check_database_name(database)
        _check_directory_name("table", table)
        if branch != DEFAULT_BRANCH:
            check_branch_name(branch)
        return cls(database, table, branch, system_table)

    def __str__(self) -> str:
        branch = "" if self.branch == DEFAULT_BRANCH else f"${_BRANCH}{self.branch}"
        return self.full_name + branch + (f"${self.system_table}" if self.system_table else "")

    @property
    def full_name(self) -> str:
        """`database.table`, without the branch."""
        return f"{self.database}.{self.table}"

    @property
    def is_plain(self) -> bool:
        """Whether this names a whole table: neither a branch nor a system table."""
        return self.branch == DEFAULT_BRANCH and self.system_table is None


def check_database_name(name: str) -> None:
    """Raise BadInput for names that can't be told apart from a table's name, or that no directory can have."""
    _check_directory_name("database", name)
    if "." in name or "$" in name:
        raise BadInput(f"database name {name!r} contains a dot or $; choose another")


def check_own_database(name: str) -> None:
    """Like `check_database_name`, for a database that can hold ordinary tables: refuses `sys`, too."""
    check_database_name(name)
    if name == SYSTEM_DATABASE:
        raise BadInput(f"the database name {name!r} is reserved by Paimon; choose another name")


def no_database(name: str, catalog: str, known: Sequence[str]) -> BadInput:
    """Return the error for an unknown database.

    catalog: the name of the catalog to show to users.
    known: the catalog's databases.
    """
    available = f"its databases are {', '.join(known[:10])}" if known else "it has no databases"
    return BadInput(
        f"no database {name!r} in {catalog}; {available}{did_you_mean(name, known)} (create_database creates one)"
    )


def _check_directory_name(what: str, name: str) -> None:
    if not name.strip() or name in (".", "..") or "/" in name or "\0" in name:
        raise BadInput(
            f"{what} name {name!r} is blank, a dot, or contains a slash, so no directory can have this name; choose "
            "another one"
        )
    check_file_name(f"{what} name", name, affix=".db" if what == "database" else "")


def of_branch(identifier: Identifier, options: Mapping[str, str]) -> Identifier:
    """Apply the dynamic option `branch` to a name.

    Raises BadInput if both the name and the option select a branch, and the branches differ.
    """
    branch = options.get("branch", identifier.branch)
    if branch == identifier.branch:
        return identifier
    if identifier.branch != DEFAULT_BRANCH:
        raise BadInput(f"{identifier}: option branch = {branch!r} names another branch; name only one of them")
    if branch != DEFAULT_BRANCH:
        check_branch_name(branch)
    return replace(identifier, branch=branch)
