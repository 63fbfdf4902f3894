"""`tidelake demo`."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from tidelake.cli.exits import ExitCode
from tidelake.cli.output import Output
from tidelake.cli.texts import size_text
from tidelake.demo.screen import LiveScreen, PlainScreen
from tidelake.demo.story import Layout, Report, Story


def demo(out: Output, *, engine: str, directory: str | None, records: int, seed: int) -> ExitCode:
    """FAILED when a table is not what the shop is."""
    console = out.error_console if out.is_json else out.console
    screen = LiveScreen(console) if console.is_terminal else PlainScreen(console)
    layout = Layout(Path(directory or tempfile.mkdtemp(prefix="tidelake-demo-")).absolute())
    with screen.shown():
        report = Story(layout, engine, records, seed, screen).tell()
    if out.is_json:
        out.document(_document(report))
    else:
        _print_report(out, report)
    return ExitCode.DONE if report.is_right else ExitCode.FAILED


def _document(report: Report) -> dict[str, Any]:
    return {
        "engine": report.engine,
        "warehouse": str(report.layout.warehouse),
        "records": report.records,
        "snapshots": report.snapshots,
        "changes": report.changes,
        "seconds": round(report.seconds, 3),
        "is_right": report.is_right,
        "tables": [
            {
                "name": verdict.table.full_name,
                "rows": verdict.rows,
                "checksum": verdict.checksum,
                "is_right": verdict.is_right,
                "differences": list(verdict.differences),
            }
            for verdict in report.verdicts
        ],
    }


# ---------------------------------------------------------------- for people


def _print_report(out: Output, report: Report) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    console = out.console
    console.print()
    console.print(Text("Is every table what the shop is? Compared row by row:", style="bold"))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for verdict in report.verdicts:
        mark = Text("✓", style="green") if verdict.is_right else Text("✗", style="bold red")
        rows = f"{verdict.rows:,} rows" if verdict.is_right else f"{verdict.rows:,} rows, not {verdict.rows_expected:,}"
        grid.add_row(mark, verdict.table.full_name, rows, Text(f"sha256 {verdict.checksum}", style="dim"))
    counts = Text("insertions less deletions are the rows")
    mark = Text("✓", style="green") if report.is_changelog_right else Text("✗", style="bold red")
    grid.add_row(mark, "their changelogs", f"{report.changes:,} changes", counts)
    console.print(grid)
    for verdict in report.verdicts:
        for difference in verdict.differences:
            console.print(Text(f"  {verdict.table.full_name}: {difference}", style="red"), soft_wrap=True)
    console.print()
    rate = report.records / report.seconds if report.seconds else 0
    size = sum(path.stat().st_size for path in report.layout.log.iterdir())
    console.print(
        Text(
            f"{report.records:,} records ({size_text(size)}) became {report.snapshots} snapshots in {report.seconds:.1f} s: "
            f"{rate:,.0f} records/s, from a log that grew meanwhile ({report.engine})."
        ),
        soft_wrap=True,
    )
    console.print(Text(f"The tables: {report.layout.warehouse}   the change log: {report.layout.log}"), soft_wrap=True)
    if report.is_right:
        _print_next_steps(out, report.layout)


def _print_next_steps(out: Output, layout: Layout) -> None:
    from rich.text import Text

    program = _this_program()
    python = shlex.quote(sys.executable)
    warehouse = shlex.quote(str(layout.warehouse))
    steps = (
        (
            "Ask a table, or look at what it is made of",
            f"{program} table scan shop.orders -w {warehouse} --where \"status = 'returned' and amount > 850\" --limit 10",
            f"{program} table show shop.orders -w {warehouse}",
        ),
        (
            "The same from Python",
            f'{python} -c "import tidelake; '
            f"t = tidelake.open_catalog('{layout.warehouse}').table('shop.orders'); "
            "print(t.scan(columns=['id', 'amount'], filter=tidelake.col('amount') > 850).to_arrow().to_pandas())\"",
        ),
        (
            "Another Paimon reader, in an environment of its own",
            f"python3 -m venv {layout.directory / 'pypaimon'}",
        ),
    )
    for title, *commands in steps:
        out.console.print()
        out.console.print(Text(title, style="bold"))
        for command in commands:
            out.console.print(Text(f"  {command}"), soft_wrap=True)


def _this_program() -> str:
    """As it was called, so that the line can be copied."""
    return (
        shlex.quote(sys.argv[0])
        if Path(sys.argv[0]).name == "tidelake"
        else f"{shlex.quote(sys.executable)} -m tidelake"
    )
