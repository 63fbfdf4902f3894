"""Sessions in a terminal that pages show: their commands are run, and their output is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BLOCK: Final = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ANYTHING: Final = "..."


@dataclass(frozen=True)
class Command:
    text: str
    expected: list[str]


def commands(session: str) -> list[Command]:
    """The commands of a session, each with the lines below it."""
    found = []
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        text, *expected = part.splitlines()
        found.append(Command(text, expected))
    return found


def is_shown(expected: list[str], said: list[str]) -> bool:
    """Whether this is what was said. A line `...` stands for any lines, and `...` within a line for any text."""
    one_line = r"[^\n]*"
    pattern = "".join(
        rf"(?:{one_line}\n)*" if line == ANYTHING else re.escape(line).replace(re.escape(ANYTHING), one_line) + "\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in said)) is not None


def run_page(page: Path, folder: Path, **environment: str) -> int:
    """Run the commands of a page in a folder, into which its files are written. Returns the number of commands.

    Fails at the first command that fails, or that says something else than the page shows.
    """
    given = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    given |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **environment}
    count = 0
    for kind, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            (folder / title).write_text(text, encoding="utf-8")
        for command in commands(text) if kind == "console" else ():
            run = subprocess.run(
                command.text,
                shell=True,
                cwd=folder,
                env=given,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            said = [line for line in run.stdout.splitlines() if line.strip()]
            assert (run.returncode, is_shown(command.expected, said)) == (0, True), f"$ {command.text}\n{run.stdout}"
            count += 1
    return count
