"""`tidelake demo`."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments import Commands, command, positive
from tidelake.cli.exits import ExitCode
from tidelake.cli.formatting import size_text
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.cli.demo.demo_run import DemoPaths, DemoReport

_PYPAIMON: Final = (
    "2.1.0"  # the tested release; without a version, pip falls back to 0.2.0 if the newest release has no wheel
)


def add_demo(nouns: Commands) -> None:
    summary = "run a demo: a shop's changes become tables, compared with the shop at the end"
    parser = command(
        nouns, "demo", demo, summary, log_format="text", example="tidelake demo --directory shop --records 20000"
    )  # its output is for people, also in a file
    parser.add_argument(
        "--engine",
        choices=("auto", "spark", "asyncio"),
        default="auto",
        help="engine of the pipeline; auto: Spark if PySpark and Java are installed, otherwise asyncio",
    )
    parser.add_argument("--directory", metavar="DIR", help="an empty or new directory; default: a new temporary one")
    parser.add_argument("--records", type=positive, default=60_000, metavar="N", help="default: 60000")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the shop's random changes; default: 1"
    )
    parser.add_argument(
        "--pace",
        type=_seconds,
        default=1.2,
        metavar="SECONDS",
        help="time between files of the change log; default: 1.2",
    )


def demo(out: CommandOutput, *, engine: str, directory: str | None, records: int, seed: int, pace: float) -> ExitCode:
    """Run the demo. Returns FAILED if a table differs from the shop."""
    import tempfile
    from pathlib import Path

    from tidelake.cli.demo.demo_run import DemoPaths, DemoRun
    from tidelake.cli.demo.screen import LiveScreen, PlainScreen

    console = out.error_console if out.is_json else out.console
    screen = LiveScreen(console) if console.is_terminal else PlainScreen(console)
    layout = DemoPaths(Path(directory or tempfile.mkdtemp(prefix="tidelake-demo-")).absolute())
    with screen.shown():
        report = DemoRun(layout, engine, records, seed, pace, screen).run()
    if out.is_json:
        out.document(_document(report))
    else:
        _print_report(out, report)
    return ExitCode.DONE if report.is_right else ExitCode.FAILED


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds; use 0 or more")
    return seconds


_seconds.__name__ = "number of seconds"  # argparse says: invalid number of seconds value: 'x'


def _document(report: DemoReport) -> dict[str, Any]:
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
                "name": comparison.table.full_name,
                "rows": comparison.rows,
                "checksum": comparison.checksum,
                "is_right": comparison.is_right,
                "differences": list(comparison.differences),
            }
            for comparison in report.verdicts
        ],
    }


# ---------------------------------------------------------------- for people


def _print_report(out: CommandOutput, report: DemoReport) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    console = out.console
    console.print()
    console.print(Text("Each table compared with the shop, row by row:", style="bold"))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for comparison in report.verdicts:
        mark = Text("✓", style="green") if comparison.is_right else Text("✗", style="bold red")
        rows = (
            f"{comparison.rows:,} rows"
            if comparison.is_right
            else f"{comparison.rows:,} rows, expected {comparison.rows_expected:,}"
        )
        grid.add_row(mark, comparison.table.full_name, rows, Text(f"sha256 {comparison.checksum}", style="dim"))
    counts = Text("inserts minus deletes equal the row count")
    mark = Text("✓", style="green") if report.is_changelog_right else Text("✗", style="bold red")
    grid.add_row(mark, "their changelogs", f"{report.changes:,} changes", counts)
    console.print(grid)
    for comparison in report.verdicts:
        for difference in comparison.differences:
            console.print(Text(f"  {comparison.table.full_name}: {difference}", style="red"), soft_wrap=True)
    console.print()
    rate = report.records / report.seconds if report.seconds else 0
    size = sum(path.stat().st_size for path in report.layout.log.iterdir())
    became = f"{report.records:,} records ({size_text(size)}) became {report.snapshots} snapshots"
    throughput = f"in {report.seconds:.1f} s, {rate:,.0f} records/s, while the log still grew"
    console.print(Text(f"{became} {throughput}"), soft_wrap=True)
    console.print(Text(f"The tables: {report.layout.warehouse}   the change log: {report.layout.log}"), soft_wrap=True)
    if report.is_right:
        _print_next_steps(out, report.layout)


def _print_next_steps(out: CommandOutput, layout: DemoPaths) -> None:
    from rich.text import Text

    for title, *commands in _next_steps(layout):
        out.console.print()
        out.console.print(Text(title, style="bold"))
        for line in commands:
            out.console.print(Text(f"  {line}"), soft_wrap=True)


def _next_steps(layout: DemoPaths) -> Iterator[tuple[str, ...]]:
    """Yield a title and commands, ready to be copied."""
    program, python = _program_command(), shlex.quote(sys.executable)
    warehouse = shlex.quote(str(layout.warehouse))
    condition = "status = 'returned' and amount > 850"
    yield (
        "Query a table, and show its files",
        f'{program} table scan shop.orders -w {warehouse} --where "{condition}" --limit 10',
        f"{program} table show shop.orders -w {warehouse}",
    )
    table = f"tidelake.open_catalog({str(layout.warehouse)!r}).table('shop.stock')"
    query = "columns=['sku', 'quantity'], filter=tidelake.col('quantity') > 480"
    yield (
        "The same in Python",
        f'{python} -c "import tidelake; print({table}.scan({query}).to_arrow().to_pydict())"',
    )
    venv = shlex.quote(str(layout.directory / "pypaimon"))
    opened = f"c.CatalogFactory.create({{'warehouse': {str(layout.warehouse)!r}}}).get_table('shop.orders')"
    read = "b = t.new_read_builder(); print(b.new_read().to_arrow(b.new_scan().plan().splits()))"
    yield (
        "Read it with Paimon's own Python client, in a separate environment",
        f"python3 -m venv {venv} && {venv}/bin/pip install --quiet pypaimon=={_PYPAIMON}",
        f'{venv}/bin/python -c "import pypaimon as c; t = {opened}; {read}"',
    )


def _program_command() -> str:
    """Return the program as it was called, so that the line can be copied."""
    from pathlib import Path

    name = sys.argv[0]
    return shlex.quote(name) if Path(name).name == "tidelake" else f"{shlex.quote(sys.executable)} -m tidelake"
