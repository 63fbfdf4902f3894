"""Refreshes of a catalog's tables in this process: `Catalog.refresh_table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelake.materialized.duckdb_sql import DIALECT, check_installed
from tidelake.materialized.in_process import InProcess
from tidelake.materialized.refresh import Refresh, Refreshed
from tidelake.storage.base.errors import BadInput
from tidelake.table import Table


def refresh_in_process(
    open_table: Callable[[str], Table],
    name: str,
    full: bool,
    when_due: bool,
    dialect: str | None,
    sources: Mapping[str, str],
) -> Refreshed:
    """See `Catalog.refresh_table`.

    open_table: opens a table by its full name.
    """
    if dialect not in (None, DIALECT):
        raise BadInput(
            f"dialect={dialect!r}: expected {DIALECT!r}, or nothing for a query that means the same in every dialect. "
            "Refresh a query in Spark's SQL on Spark: tidelake spark call refresh_materialized_table -w WAREHOUSE"
        )
    target = open_table(name)
    database = target.name.partition(".")[0]

    def find(name: str) -> Table:
        found = sources.get(name, name)
        return open_table(found if "." in found else f"{database}.{found}")

    check_installed(target.name)
    return Refresh(target, find, InProcess(target.name), dialect == DIALECT).run(full=full, when_due=when_due)
