"""The grid of columns that commands print. If it is wider than the terminal, columns in its middle are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from rich.table import Table as Grid
    from rich.text import Text

_READABLE_WIDTH: Final = 20  # of a column whose values are folded onto several lines
_GAP: Final = 3  # between two columns: the padding of both, and the blank that separates them


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


def print_grid(
    out: CommandOutput,
    titles: Sequence[str],
    rows: Sequence[Sequence[Text]],
    *,
    right: Sequence[bool],
    vertical: bool = False,
    remedy: str = "--vertical prints all columns, --columns the chosen ones",
) -> None:
    """Print rows below the titles of their columns, and say which columns did not fit.

    right: whether each column is aligned to the right
    vertical: print each value on a line of its own, so that all columns fit
    remedy: how to see the columns that did not fit
    """
    if vertical:
        _print_vertically(out, titles, rows)
        return
    from rich.text import Text

    widths = [
        max([Text(printable(title)).cell_len, *(row[number].cell_len for row in rows)])
        for number, title in enumerate(titles)
    ]
    shown = columns_that_fit(widths, out.width)
    hidden = len(titles) - len(shown)
    first_of_end = next((at for at in range(1, len(shown)) if shown[at] != shown[at - 1] + 1), len(shown))
    grid = plain_grid()
    for at, number in enumerate(shown):
        if hidden and at == first_of_end:
            grid.add_column(f"… {hidden} more", style="dim")
        grid.add_column(Text(printable(titles[number])), overflow="fold", justify="right" if right[number] else "left")
    if hidden and first_of_end == len(shown):
        grid.add_column(f"… {hidden} more", style="dim")
    for row in rows:
        cells = [row[number] for number in shown]
        grid.add_row(*(cells if not hidden else [*cells[:first_of_end], Text("…"), *cells[first_of_end:]]))
    out.console.print(grid, width=None if out.width is not None else max(1, sum(widths) + _GAP * len(widths)))
    if hidden:
        names = [printable(title) for number, title in enumerate(titles) if number not in shown]
        out.note(f"without {', '.join(names)}: {remedy}")


def columns_that_fit(widths: Sequence[int], width: int | None) -> list[int]:
    """Return the columns to print, ascending: the outer ones first, as many as fit with a readable width.

    width: of the terminal; None: of any width
    """
    least = [min(one, _READABLE_WIDTH) + _GAP for one in widths]
    if width is None or sum(least) - _GAP <= width:
        return list(range(len(widths)))
    left = width - len("… 100 more")
    order = [at for pair in zip(range(len(widths)), reversed(range(len(widths))), strict=True) for at in pair]
    shown: list[int] = []
    for at in dict.fromkeys(order):
        left -= least[at]
        if left < 0 and shown:
            break
        shown.append(at)
    return sorted(shown)


def _print_vertically(out: CommandOutput, titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    from rich.text import Text

    names = [Text(printable(title), style="bold") for title in titles]
    width = max((name.cell_len for name in names), default=0)
    for number, row in enumerate(rows, 1):
        out.console.print(Text(f"─── row {number} ", style="dim"), soft_wrap=True)
        for name, value in zip(names, row, strict=True):
            out.console.print(Text.assemble(name, " " * (width - name.cell_len), "  ", value), soft_wrap=True)
