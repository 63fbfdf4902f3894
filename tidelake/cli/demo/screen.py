"""The screens of the demo: one for terminals, one for pipes and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table as Grid
from rich.text import Text

from tidelake.cli.demo.changelog_watcher import ShownChange
from tidelake.cli.demo.demo_run import DemoState
from tidelake.storage.base import env
from tidelake.storage.model.format import RowKind

_CHANGES_SHOWN: Final = 5  # changes of each table
_PLAIN_INTERVAL_SECONDS: Final = 2.0
_STUCK_INTERVAL_SECONDS: Final = 20.0
_STYLES: Final = {
    RowKind.INSERT: "green",
    RowKind.UPDATE_BEFORE: "yellow",
    RowKind.UPDATE_AFTER: "yellow",
    RowKind.DELETE: "red",
}


class LiveScreen:
    """A display that is updated in place; permanent lines stay above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._scene: DemoState | None = None
        self._spinner = Spinner("dots")

    @contextmanager
    def shown(self) -> Iterator[None]:
        with Live(get_renderable=self._render, console=self._console, refresh_per_second=8):
            yield

    def print_line(self, text: str) -> None:
        self._console.print(Text(text))

    def show(self, scene: DemoState) -> None:
        self._scene = scene

    def _render(self) -> Group | Text:
        scene = self._scene
        if scene is None:
            return Text()
        return Group(
            Text(), self._heading(scene), Text(), _bars(scene), Text(), _tables(scene), Text(), *_latest_changes(scene)
        )

    def _heading(self, scene: DemoState) -> Grid:
        line = Grid.grid(padding=(0, 1, 0, 0))
        is_done = scene.caught_up_after_seconds is not None
        line.add_row(
            Text("✓", style="green") if is_done else self._spinner,
            Text(scene.engine, style="bold"),
            Text(f"{scene.doing}", style="dim"),
        )
        return line


class PlainScreen:
    """Prints lines, for pipes and files."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_at = float("-inf")
        self._last_activity = ""
        self._records = -1

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield

    def print_line(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def show(self, scene: DemoState) -> None:
        """Print a line when the activity changes, else every few seconds while rows arrive, rarely while none do."""
        now = env.monotonic_s()
        is_stuck = scene.records_in_tables == self._records
        interval_seconds = _STUCK_INTERVAL_SECONDS if is_stuck else _PLAIN_INTERVAL_SECONDS
        if scene.doing == self._last_activity and now - self._printed_at < interval_seconds:
            return
        self._printed_at, self._last_activity, self._records = now, scene.doing, scene.records_in_tables
        tables = "  ".join(f"{name} {progress.rows:,} rows" for name, progress in scene.watcher.progress.items())
        records = f"{scene.records_in_tables:,} of {scene.log.records:,} records"
        self.print_line(f"{scene.seconds:6.1f} s  {scene.engine}: {scene.doing}; {records}; {tables}")


def _bars(scene: DemoState) -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    total = max(scene.records_wanted, scene.log.records)
    for name, count in (("change log", scene.log.records), ("in tables", scene.records_in_tables)):
        bar = ProgressBar(total=total, completed=count, width=32)
        grid.add_row(Text(name, style="bold"), bar, Text(f"{count:,} records"))
    rate = scene.records_in_tables / scene.seconds if scene.seconds else 0
    grid.add_row(
        Text("", style="bold"), Text(f"{scene.seconds:.1f} s", style="dim"), Text(f"{rate:,.0f} records/s", style="dim")
    )
    return grid


def _tables(scene: DemoState) -> Grid:
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("table")
    for title in ("rows", "snapshots"):
        grid.add_column(title, justify="right")
    for kind in RowKind:
        grid.add_column(Text(kind.symbol, style=_STYLES[kind]), justify="right")
    for name, progress in scene.watcher.progress.items():
        counts = [f"{progress.kinds[kind]:,}" for kind in RowKind]
        grid.add_row(name, f"{progress.rows:,}", str(progress.snapshots), *counts)
    return grid


def _latest_changes(scene: DemoState) -> list[Text]:
    """Return a few changes of each table; always the same number of lines, so that the display doesn't jump."""
    lines = []
    for name, progress in scene.watcher.progress.items():
        changes = progress.latest_changes[:_CHANGES_SHOWN]
        lines += [_change_line(name, change) for change in changes] + [Text()] * (_CHANGES_SHOWN - len(changes))
    return lines


def _change_line(table: str, change: ShownChange) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"#{change.snapshot_id:<3}", style="dim")
    line.append(f" {change.kind.symbol} ", style=_STYLES[change.kind])
    line.append(f"{table:<15}")
    for name, value in change.row.items():
        line.append(f" {name}=", style="dim")
        line.append(_value_text(value))
    return line


def _value_text(value: Any) -> str:
    return "null" if value is None else f"{value}"
