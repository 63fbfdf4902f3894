"""Progress bars of long work, on the terminal of a command: what is done, the rate, and the time until the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelake.storage.base import env
from tidelake.storage.base.progress import Advance

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SHOWN_AFTER_S: Final = 1.0
_REFRESHES_A_SECOND: Final = 5


class TerminalProgress:
    """Shows a bar for each task that takes longer than a second, and removes it at its end.

    console: returns where to draw. It is called for the first bar, as its library takes a while to import
    """

    def __init__(self, console: Callable[[], Console]) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._lock = env.Lock()
        self._is_over = False

    def close(self) -> None:
        """Remove all bars."""
        with self._lock:
            self._is_over = True
            if self._bars is not None:
                self._bars.stop()

    @contextmanager
    def task(self, what: str, total: int, unit: str) -> Iterator[Advance]:
        """See `ProgressDisplay.task`."""
        done = 0
        shown: int | None = None
        ended = env.Event()

        def show_later() -> None:
            nonlocal shown
            if ended.wait(SHOWN_AFTER_S):
                return
            bars = self._started()
            with self._lock:
                if bars is not None and not ended.is_set():
                    shown = bars.add_task(what, total=total, completed=done, unit=unit)

        def advance(amount: int) -> None:
            nonlocal done
            with self._lock:
                done += amount
                if shown is not None and self._bars is not None:
                    self._bars.update(shown, completed=done)  # type: ignore[arg-type]

        env.Thread(target=show_later, name=f"progress of {what}", daemon=True).start()
        try:
            yield advance
        finally:
            with self._lock:
                ended.set()
                if shown is not None and self._bars is not None:
                    self._bars.remove_task(shown)  # type: ignore[arg-type]

    def _started(self) -> Progress | None:
        """Return the bars, shown; None if the command is over."""
        with self._lock:
            if self._is_over:
                return None
            if self._bars is None:
                self._bars = _bars(self._console())
                self._bars.start()
            return self._bars


def _bars(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from tidelake.cli.formatting import size_text

    class Amount(ProgressColumn):
        """`3 of 12 files, 1.5 files/s`, or sizes."""

        def render(self, task: object) -> Text:
            done, total = int(task.completed), int(task.total or 0)  # type: ignore[attr-defined]
            unit, speed = task.fields["unit"], task.speed  # type: ignore[attr-defined]
            if unit == "bytes":
                rate = "" if speed is None else f", {size_text(round(speed))}/s"
                return Text(f"{size_text(done)} of {size_text(total)}{rate}")
            rate = "" if speed is None else f", {speed:,.{0 if speed >= 10 else 1}f} {unit}/s"
            return Text(f"{done:,} of {total:,} {unit}{rate}")

    columns = (TextColumn("{task.description}"), BarColumn(None), Amount(), TimeRemainingColumn(compact=True))
    return Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESHES_A_SECOND)
