"""The grid of columns that commands print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as Grid


def plain_grid(*titles: str, right: Sequence[str] = ()) -> Grid:
    """Return an empty grid without borders. Long values are folded.

    right: titles of the columns with numbers
    """
    from rich import box
    from rich.table import Table as Grid

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title in titles:
        grid.add_column(title, overflow="fold", justify="right" if title in right else "left")
    return grid
