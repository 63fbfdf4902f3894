"""What an hour of a pipeline comes to, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelake.cli.formatting import size_text
from tidelake.cli.output import CommandOutput


def print_estimate(out: CommandOutput, estimates: Sequence[dict[str, Any]]) -> None:
    """estimates: each a `TableEstimate`."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title in ("an hour like the sample", "rows", "commits", "new files", "bytes", "written with compaction"):
        grid.add_column(title, overflow="fold", justify="left" if title.startswith("an") else "right")
    for one in estimates:
        if one["rows_an_hour"] is None:
            cells = ["unknown", *[""] * 4]
        else:
            counts = [f"{one[name]:,.0f}" for name in ("rows_an_hour", "commits", "files")]
            cells = [*counts, size_text(round(one["bytes"])), f"{one['write_amplification']:.1f} x"]
        grid.add_row(*map(Text, (one["name"], *cells)))
    out.console.print(Text())
    out.console.print(grid)
