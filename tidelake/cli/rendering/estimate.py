"""Prints the estimate of a sample: new tables, records that would fail, and one hour of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tidelake.cli.formatting import size_text
from tidelake.cli.output import CommandOutput

_COLUMNS_SHOWN: Final = 12


def print_estimate(out: CommandOutput, planned: Mapping[str, Any], *, details: bool) -> None:
    """Print an estimate.

    planned: the members of an `Estimate`, with `estimate` for `tables`
    details: list all columns
    """
    from rich.text import Text

    lines = [*_table_lines(planned["estimate"], details=details), *_obstacle_lines(planned)]
    for line in [""] * bool(lines) + lines:
        out.console.print(Text(line))
    _print_hour(out, planned["estimate"], planned["settings"]["request_prices"]["currency"])


def _table_lines(estimates: Sequence[dict[str, Any]], *, details: bool) -> Iterator[str]:
    for one in estimates:
        if one["exists"]:
            if one["changes"]:
                yield f"{one['name']} changes: {', '.join(one['changes'])}"
            continue
        columns = [f"{name} {type_}" for name, type_ in one["columns"].items()]
        if len(columns) > _COLUMNS_SHOWN and not details:
            columns = [*columns[:_COLUMNS_SHOWN], f"and {len(columns) - _COLUMNS_SHOWN} more (--details)"]
        key = f"primary key {', '.join(one['primary_key'])}" if one["primary_key"] else "no primary key"
        partition = f" · partitioned by {', '.join(one['partition_by'])}" if one["partition_by"] else ""
        yield f"{one['name']} would be created with {', '.join(columns)} · {key}{partition}"


def _obstacle_lines(planned: Mapping[str, Any]) -> Iterator[str]:
    for one in planned["obstacles"]:
        count = f", {one['records']:,} of the sample's records" if one["records"] else ""
        yield f"{one['table']}: {one['code']}{count}: {one['example']}"
    if planned["passed_over"]:
        yield f"no table matches records of {', '.join(planned['passed_over'])}; they are skipped"


def _print_hour(out: CommandOutput, estimates: Sequence[dict[str, Any]], currency: str) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    charged = [one for one in estimates if one["price"] is not None]
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    titles = ["estimate for one hour", "rows", "commits", "new files", "bytes", "written with compaction"]
    for title in (*titles, *(["requests", currency] if charged else [])):
        grid.add_column(title, overflow="fold", justify="left" if title.startswith("estimate") else "right")
    for one in estimates:
        if one["rows_an_hour"] is None:
            cells = ["unknown" if one["rows"] else "none sampled", *[""] * 4]
        else:
            counts = [f"{one[name]:,.0f}" for name in ("rows_an_hour", "commits", "files")]
            cells = [*counts, size_text(round(one["bytes"])), f"{one['write_amplification']:.1f} x"]
        if charged:
            cells += _requests_cells([one] if one in charged else [])
        grid.add_row(*map(Text, (one["name"], *cells)))
    if len(charged) > 1:
        grid.add_row(*map(Text, (f"these {len(charged)} together", *[""] * 5, *_requests_cells(charged))))
    out.console.print(Text())
    out.console.print(grid)


def _requests_cells(charged: Sequence[dict[str, Any]]) -> list[str]:
    if not charged:
        return ["", ""]
    requests, price = sum(one["puts"] + one["gets"] for one in charged), sum(one["price"] for one in charged)
    return [f"{requests:,.0f}", f"{price:.4f}"]
