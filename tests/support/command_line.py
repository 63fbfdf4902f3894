"""Calls the command line inside this process, and returns its output."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tidelake.cli.program import main


@dataclass(frozen=True)
class Said:
    """The result of a command: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Call: TypeAlias = Callable[..., Said]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Runs a command: `call("table", "list")`.

    The terminal is wide, the environment has no warehouse, and logging is restored afterwards.
    """
    monkeypatch.delenv("TIDELAKE_WAREHOUSE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    root = logging.getLogger()
    before = (root.handlers, root.level, warnings.showwarning)

    def run(*arguments: str | Path) -> Said:
        capsys.readouterr()
        try:
            code = int(main([str(argument) for argument in arguments]))
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    yield run
    logging.captureWarnings(False)
    logging.getLogger("tidelake").setLevel(logging.NOTSET)
    root.handlers, root.level, warnings.showwarning = before
