"""On a terminal: optional colours, progress on standard error only, and confirmations before data is deleted."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.tidelake.shop_log import create_shop_tables, write_shop_log

_COLOUR = r"\x1b\[(?:\d;)*3[0-7]m"


def on_a_terminal(*arguments: str | Path, typed: str = "", columns: int = 100, **environment: str) -> tuple[int, str]:
    """Exit code, and what the terminal shows."""
    code, shown, _ = _run(arguments, typed, columns, environment, is_piped=False)
    return code, shown


def with_output_elsewhere(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, what the terminal shows, and what standard output got, which is a pipe."""
    return _run(arguments, "", 100, {}, is_piped=True)


def _run(
    arguments: Sequence[str | Path], typed: str, columns: int, environment: Mapping[str, str], *, is_piped: bool
) -> tuple[int, str, str]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tidelake", *map(str, arguments)],
        stdin=theirs,
        stdout=subprocess.PIPE if is_piped else theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment},
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        with suppress(OSError):  # Linux says so when the other side is closed
            while data := os.read(ours, 65_536):
                shown += data
        os.close(ours)
        piped = process.stdout.read().decode() if process.stdout else ""
    return process.returncode, shown.decode(), piped


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    create_shop_tables(tmp_path / "lake")
    return tmp_path / "lake"


def test_help_has_colours_on_a_terminal_and_the_same_words() -> None:
    plain = with_output_elsewhere("table", "--help")[2]
    code, shown = on_a_terminal("table", "--help")
    assert code == 0
    assert "\x1b[1mread rows:\x1b[0m" in shown
    assert "  \x1b[36mscan\x1b[0m" in shown
    assert re.sub(r"\x1b\[[\d;]*m", "", shown).replace("\r\n", "\n") == plain
    assert on_a_terminal("table", "--help", NO_COLOR="1")[1].count("\x1b[3") == 0


@pytest.mark.interop
def test_colours_are_used_only_on_suitable_terminals(warehouse: Path) -> None:
    code, shown = on_a_terminal("table", "show", "shop.orders", "-w", warehouse)
    assert code == 0
    assert re.search(_COLOUR, shown)
    code, shown = on_a_terminal("table", "show", "shop.orders", "-w", warehouse, NO_COLOR="1")
    assert code == 0
    assert not re.search(_COLOUR, shown)


def test_a_narrow_terminal_wraps_without_truncating(warehouse: Path) -> None:
    _, shown = on_a_terminal("table", "show", "shop.orders", "-w", warehouse, columns=40, NO_COLOR="1")
    lines = re.sub(r"\x1b\[\d*m", "", shown).splitlines()
    assert max(len(line) for line in lines[2:]) <= 40  # the location is one line, to be copied
    assert "…" not in shown
    assert "TIMESTAMP(6)" in shown


@pytest.mark.interop
def test_dropping_asks_for_the_table_name(warehouse: Path) -> None:
    code, shown = on_a_terminal("table", "drop", "shop.orders", "-w", warehouse, typed="yes\n")
    assert code == 3
    assert "Type its name" in shown
    assert "shop.orders was not dropped" in shown
    code, shown = on_a_terminal("table", "drop", "shop.orders", "-w", warehouse, typed="shop.orders\n")
    assert code == 0
    assert tidelake.open_catalog(str(warehouse)).list_tables("shop") == ["customers", "stock"]


def test_bytes_are_not_written_to_a_terminal(warehouse: Path) -> None:
    code, shown = on_a_terminal("table", "scan", "shop.orders", "-w", warehouse, "--format", "arrow")
    assert code == 2
    assert "redirect it into a file" in shown


def test_progress_is_printed_to_the_terminal_only(tmp_path: Path, warehouse: Path) -> None:
    write_shop_log(tmp_path / "changes")
    config = tmp_path / "shop.yaml"
    config.write_text(
        f"warehouse: {warehouse}\nsource: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.orders}, {name: shop.stock}, {name: shop.customers}]\n"
    )
    code, shown, piped = with_output_elsewhere("ingest", "run", config, "--log-level", "error")
    assert code == 0
    assert " records (" in shown
    assert piped == ""


def test_a_closed_output_pipe_is_no_error(warehouse: Path) -> None:
    table = tidelake.open_catalog(str(warehouse)).table("shop.stock")
    with table.writer() as writer:
        writer.write(
            pa.table({"sku": [f"s{i}" for i in range(50_000)], "shelf": pa.array([1] * 50_000, pa.int32())})
            .append_column("quantity", pa.nulls(50_000, pa.int32()))
            .append_column("price", pa.nulls(50_000, pa.decimal128(10, 2)))
        )
        writer.commit()
    command = f"{sys.executable} -m tidelake table scan shop.stock -w {warehouse} --json | head -n 1"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert run.stdout.count("\n") == 1
    assert run.stderr == ""
