"""`tidelake table clone`: creates a table with the rows of another."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.catalog import open_catalog
from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput


def clone(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    new_name: str,
    to: str | None,
    to_options: Sequence[tuple[str, str]],
    snapshot: int | None,
    tag: str | None,
) -> None:
    if to is None and to_options:
        raise UsageError("--to-catalog-option needs --to")
    source = catalog.open()
    target = source if to is None else open_catalog(to, **dict(to_options))
    cloned = target.clone_table(source.table(name), new_name, snapshot=snapshot, tag=tag)
    newest = cloned.context.snapshots.latest()
    rows = 0 if newest is None else newest.total_record_count
    if out.is_json:
        out.document({"table": new_name, "location": cloned.location, "rows_in_files": rows})
    else:
        out.note(f"{new_name} is a clone of {name}, with {rows:,} rows in its files: {cloned.location}")
