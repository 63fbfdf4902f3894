"""`tidelake table refresh`: refreshes a materialized table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from tidelake.catalog import Catalog
from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.compaction.cancellation import cancelled_by_signals
from tidelake.materialized.refresh import Refreshed, RefreshKind
from tidelake.storage.base.errors import BadInput
from tidelake.storage.model.options.values import parse_duration_ms


def refresh(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    full: bool,
    when_due: bool,
    dialect: str | None,
    sources: Sequence[tuple[str, str]],
    every: str | None,
) -> None:
    """Refresh a materialized table.

    every: repeat at this interval until SIGINT or SIGTERM; the first error ends it.
    """
    opened = catalog.open()

    def once(opened: Catalog) -> Refreshed:
        return opened.refresh_table(name, full=full, when_due=when_due, dialect=dialect, sources=dict(sources))

    if every is None:
        _show(out, once(opened), is_only=True)
        return
    wait_ms = _wait_ms(every)
    with cancelled_by_signals() as cancellation:
        out.note(f"refreshing {name} every {every}; Ctrl-C ends it")
        while not cancellation.is_cancelled:
            done = once(opened)
            if done.kind is not RefreshKind.NONE:
                _show(out, done, is_only=False)
            cancellation.wait_ms(wait_ms)


def _wait_ms(every: str) -> int:
    try:
        wait_ms = parse_duration_ms(every)
    except BadInput as error:
        raise UsageError(f"--every: {error}") from None
    if wait_ms < 1:
        raise UsageError(f"--every {every}: the time must be longer than 0, for example '10 min'")
    return wait_ms


def _show(out: CommandOutput, done: Refreshed, *, is_only: bool) -> None:
    if out.is_json:
        members = {**asdict(done), "kind": done.kind.value}
        out.document(members) if is_only else out.lines([members])
        return
    match done.kind:
        case RefreshKind.NONE:
            text = f"{done.table} was not refreshed: {done.reason}"
        case RefreshKind.INCREMENTAL:
            text = f"{done.table}: snapshot {done.snapshot_id}, {done.reason}"
        case RefreshKind.FULL:
            text = f"{done.table}: snapshot {done.snapshot_id}, all rows, because {done.reason}"
    out.console.print(printable(text), soft_wrap=True)
