"""Draws the pictures of the README, each for light and for dark pages.

python docs/pictures.py            draw all, in half a minute: this runs the demo
python docs/pictures.py --check    exit with 1 and say so when a picture is out of date (without the terminal)

overview: `overview-light.svg` is drawn by hand; only its colours change for dark pages
benchmarks: the medians of `docs/benchmarks.md`
terminal: the output of the commands in `COMMANDS`, which run in a terminal and a new directory
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

DOCS: Final = Path(__file__).parent
PICTURES: Final = DOCS / "pictures"

MONOSPACE: Final = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
SANS: Final = '-apple-system, BlinkMacSystemFont, "Segoe UI", Helvetica, Arial, sans-serif'


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one kind of page.

    soft: behind text that stands out
    page: what the page itself has
    """

    text: str
    quiet: str
    accent: str
    page: str
    border: str
    soft: str
    panel: str
    arrow: str
    green: str
    yellow: str
    red: str
    cyan: str


PALETTES: Final = {
    "light": Palette(
        text="#1f2328",
        quiet="#59636e",
        accent="#0a6e7d",
        page="#ffffff",
        border="#d1d9e0",
        soft="#eef8f9",
        panel="#f6f8fa",
        arrow="#818b98",
        green="#116329",
        yellow="#7d4e00",
        red="#cf222e",
        cyan="#1b7c83",
    ),
    "dark": Palette(
        text="#f0f6fc",
        quiet="#9198a1",
        accent="#4cc4d4",
        page="#0d1117",
        border="#3d444d",
        soft="#10262d",
        panel="#151b23",
        arrow="#656c76",
        green="#7ee787",
        yellow="#e3b341",
        red="#ff7b72",
        cyan="#76e3ea",
    ),
}

# ---------------------------------------------------------------- what Tidelake is


def overview(palette: Palette) -> str:
    light = PALETTES["light"]
    to_dark = {getattr(light, name): getattr(palette, name) for name in Palette.__slots__}
    drawn = (PICTURES / "overview-light.svg").read_text(encoding="utf-8")
    return re.sub(r"#[0-9a-f]{6}", lambda colour: to_dark[colour[0]], drawn)


# ---------------------------------------------------------------- how fast it is


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two lines of one section of the benchmarks page, which name the contenders last or in the middle."""

    title: str
    section: str
    ours: str
    peer: str
    peer_name: str


COMPARISONS: Final = (
    Comparison(
        "Kafka to table, 1 M records",
        "From Kafka, compared with Flink",
        "1 M, Tidelake, typed columns",
        "1 M, Flink SQL",
        "Flink SQL",
    ),
    Comparison(
        "Kafka to table, 4 M records",
        "From Kafka, compared with Flink",
        "4 M, Tidelake, typed columns",
        "4 M, Flink SQL",
        "Flink SQL",
    ),
    Comparison(
        "flush, 6 columns",
        "Flush: 6 columns",
        "6 columns, BIGINT key, 1 bucket, Tidelake",
        "6 columns, BIGINT key, 1 bucket, pypaimon-rust",
        "pypaimon-rust",
    ),
    Comparison(
        "merge read of ten runs",
        "Merge read of ten runs",
        "6 columns, batch by batch, Tidelake",
        "6 columns, batch by batch, pypaimon-rust",
        "pypaimon-rust",
    ),
    Comparison(
        "full compaction",
        "Full compaction of ten runs",
        "w3, deduplicate, Tidelake",
        "w3, deduplicate, Java Paimon",
        "Java Paimon",
    ),
    Comparison(
        "changelog by lookup",
        "Changelogs over a large table",
        "lookup, Tidelake",
        "lookup, Java Paimon",
        "Java Paimon",
    ),
)


def benchmarks(palette: Palette) -> str:
    """Return a pair of bars for each comparison. The longer bar of a pair has the full length."""
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    left, length, pair = 236, 470, 54
    height = 56 + pair * len(COMPARISONS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img" aria-labelledby="title">',
        '  <title id="title">Rows per CPU-second of Tidelake and of other implementations</title>',
        "  <style>",
        f"    text {{ font-family: {SANS}; font-size: 14px; fill: {palette.text}; }}",
        f"    .heading {{ font-size: 12px; font-weight: 600; letter-spacing: 1.2px; fill: {palette.quiet}; }}",
        f"    .quiet {{ font-size: 12.5px; fill: {palette.quiet}; }}",
        f"    .ours {{ font-weight: 600; fill: {palette.accent}; }}",
        "    .title { text-anchor: end; }",
        f"    .bar {{ fill: {palette.accent}; }}",
        f"    .peer {{ fill: {palette.border}; }}",
        "  </style>",
        f'  <text class="heading" x="{left}" y="24">ROWS PER CPU-SECOND</text>',
    ]
    for number, comparison in enumerate(COMPARISONS):
        ours, theirs = (thousands(page, comparison.section, line) for line in (comparison.ours, comparison.peer))
        longest, top = max(ours, theirs), 44 + pair * number
        width, peer_width = (round(length * value / longest) for value in (ours, theirs))
        parts += [
            f'  <text class="title" x="{left - 16}" y="{top + 22}">{comparison.title}</text>',
            f'  <rect class="bar" x="{left}" y="{top}" width="{width}" height="18" rx="3"/>',
            f'  <text class="ours" x="{left + width + 10}" y="{top + 14}">{ours:,} K Tidelake</text>',
            f'  <rect class="peer" x="{left}" y="{top + 22}" width="{peer_width}" height="18" rx="3"/>',
            f'  <text class="quiet" x="{left + peer_width + 10}" y="{top + 36}">'
            f"{theirs:,} K {comparison.peer_name}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def thousands(page: str, section: str, line: str) -> int:
    """Return the median of a line of the benchmarks page, in thousands of rows per CPU-second."""
    [text] = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    [median] = re.findall(rf"^\| {re.escape(line)} \|[^*]*\*\*([\d,]+) K\*\*", text, re.MULTILINE)
    return int(median.replace(",", ""))


# ---------------------------------------------------------------- what it looks like

COLUMNS: Final = 104
COMMANDS: Final = (
    "tidelake demo --engine asyncio --directory demo",
    "tidelake table scan shop.orders -w demo/warehouse --where \"status = 'returned' and amount > 890\"",
)
_STOP: Final = ("The tables: ", "Query a table")  # commands to try next: the picture shows some of them below


def terminal(palette: Palette, outputs: Iterable[tuple[str, list[Text]]]) -> str:
    """Return the window of a terminal: each command, and its output."""
    lines: list[Text] = []
    for command, output in outputs:
        lines += [Text.assemble(("$ ", "dim"), (command, "bold")), *output, Text()]
    character, line_height, left, top = 7.83, 18, 20, 62
    width = round(2 * left + COLUMNS * character)
    height = top + line_height * (len(lines) - 1) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        '  <title id="title">A terminal with the demo of Tidelake, and a query of one of its tables</title>',
        "  <style>",
        f"    text {{ font-family: {MONOSPACE}; font-size: 13px; fill: {palette.text}; }}",
        "    .bold { font-weight: 700; }",
        f"    .dim {{ fill: {palette.quiet}; }}",
        *(
            f"    .{name} {{ fill: {getattr(palette, name)}; }}"
            for name in ("red", "green", "yellow", "cyan", "accent")
        ),
        "  </style>",
        f'  <rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" fill="{palette.panel}"'
        f' stroke="{palette.border}"/>',
        *(f'  <circle cx="{left + 4 + 18 * number}" cy="22" r="5.5" fill="{palette.border}"/>' for number in range(3)),
    ]
    console = Console(width=COLUMNS)
    for row, line in enumerate(lines):
        column = 0
        for segment in line.render(console, end=""):
            kind = _css_class(segment.style)
            for piece in re.split(r"(^ +| {2,}| +$)", segment.text):  # SVG keeps single spaces inside a text only
                cells = cell_len(piece)
                if piece.strip():
                    x, y = left + column * character, top + row * line_height
                    text = escape(piece, quote=False)
                    parts.append(
                        f'  <text x="{x:.1f}" y="{y}" textLength="{cells * character:.1f}"{kind}>{text}</text>'
                    )
                column += cells
    return "\n".join([*parts, "</svg>", ""])


_COLOURS: Final = {1: "red", 2: "green", 3: "yellow", 6: "cyan"}  # by number in a terminal's palette


def _css_class(style: Style | None) -> str:
    if style is None:
        return ""
    names = [name for name in ("bold", "dim") if getattr(style, name)]
    if style.color is not None:
        names.append(_COLOURS.get(style.color.number, "accent"))
    return f' class="{" ".join(names)}"' if names else ""


def run_in_terminal(command: str, directory: Path) -> list[Text]:
    """Return the lines that a terminal shows after a command."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        shlex.split(command), cwd=directory, env=environment, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    received = bytearray()
    while True:
        try:
            part = os.read(master, 65_536)
        except OSError:  # Linux reports the end of a terminal like this
            break
        if not part:
            break
        received += part
    os.close(master)
    if process.wait() != 0:
        raise SystemExit(f"{command} failed:\n{received.decode()}")
    return lines_on_screen(received.decode())


_CONTROL: Final = re.compile(r"\x1b\[(\d*)([A-Za-ln-z])|\x1b\[\?\d+[hl]|(\r)|(\n)|((?:\x1b\[[\d;]*m|[^\x1b\r\n])+)")


def lines_on_screen(received: str) -> list[Text]:
    """Return what remains on the screen. Of all controls, rich's live display sends only cursor up and erase line."""
    lines, row = [""], 0
    for number, control, _, newline, text in _CONTROL.findall(received):
        match control:
            case "A":
                row -= int(number or 1)
            case "K":
                lines[row] = ""
        if newline:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        lines[row] += text
    shown = [Text.from_ansi(line) for line in lines]
    for line in shown:
        line.rstrip()
    while shown and not shown[-1].plain:
        shown.pop()
    return shown


def record() -> list[tuple[str, list[Text]]]:
    with tempfile.TemporaryDirectory() as directory:
        return [(command, _shortened(run_in_terminal(command, Path(directory)), directory)) for command in COMMANDS]


def _shortened(lines: list[Text], directory: str) -> list[Text]:
    """Without the commands that the demo suggests at its end, and without the directory that only we have."""
    plain = [line.plain for line in lines]
    end = next((number for number, line in enumerate(plain) if line.startswith(_STOP)), len(lines))
    kept = lines[:end]
    for line in kept:
        if directory in line.plain:
            line.plain = line.plain.replace(f"{directory}/", "")
    while kept and not kept[-1].plain:
        kept.pop()
    return kept


# ---------------------------------------------------------------- files


def main(arguments: list[str]) -> int:
    drawn = {
        f"{name}-{kind}.svg": draw(palette)
        for name, draw in (("overview", overview), ("benchmarks", benchmarks))
        for kind, palette in PALETTES.items()
    }
    if "--check" in arguments:
        stale = [name for name, text in drawn.items() if (PICTURES / name).read_text(encoding="utf-8") != text]
        if stale:
            sys.stderr.write(f"out of date: {', '.join(stale)}; run make pictures\n")
        return 1 if stale else 0
    outputs = record()
    drawn |= {f"terminal-{kind}.svg": terminal(palette, outputs) for kind, palette in PALETTES.items()}
    for name, text in drawn.items():
        (PICTURES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
