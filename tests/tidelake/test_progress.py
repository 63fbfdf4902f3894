"""Long work says how far it has got: each operation counts all of its amount, and a terminal shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import tidelake
from tests.support.command_line import Call
from tests.support.recorded_progress import Recorded
from tests.tidelake.cli.test_terminal import on_a_terminal, with_output_elsewhere
from tidelake.cli.rendering import progress
from tidelake.cli.rendering.progress import TerminalProgress
from tidelake.storage.base.progress import counted, shown_on, tracked
from tidelake.verification import inspect_table

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "2", "write-only": "true"})
    for start in range(3):
        table.upsert(pa.table({"id": range(start, start + 50), "v": ["x"] * 50}, SCHEMA))
    return table


def compacts(table: tidelake.Table) -> None:
    table.compact(full=True)


def verifies(table: tidelake.Table) -> None:
    inspect_table(table, deep=True)


def clones(table: tidelake.Table) -> None:
    lake(table).clone_table(table, "db.copy")


def rescales(table: tidelake.Table) -> None:
    lake(table).rescale_table("db.t", 3)


def migrates(table: tidelake.Table) -> None:
    folder = Path(table.location).parents[2] / "files"
    folder.mkdir()
    for number in range(4):
        pq.write_table(pa.table({"id": [number], "v": ["x"]}), folder / f"{number}.parquet")
    lake(table).migrate_table(str(folder), "db.migrated")


def lake(table: tidelake.Table) -> tidelake.Catalog:
    return tidelake.open_catalog(str(Path(table.location).parents[1]))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (compacts, [("compacting", "bytes")]),
        (verifies, [("checking snapshots", "snapshots"), ("checking rows", "bytes")]),
        (clones, [("copying", "files")]),
        (rescales, [("rewriting", "rows")]),
        (migrates, [("reading footers", "files"), ("linking or copying", "files")]),
    ],
    ids=["compact", "verify", "clone", "rescale", "migrate"],
)
def test_an_operation_counts_all_of_its_work(
    operation: Callable[[tidelake.Table], None], expected: list[tuple[str, str]], table: tidelake.Table
) -> None:
    display = Recorded()
    with shown_on(display):
        operation(table)
    assert [(what, unit) for what, unit, _, _ in display.tasks] == expected
    for what, _, total, done in display.tasks:
        assert total > 0
        assert done == total or (what == "rewriting" and 0 < done < total)  # merged rows are fewer


def test_without_a_display_the_items_just_pass() -> None:
    assert list(tracked("copying", iter("abc"), 3)) == ["a", "b", "c"]
    with counted("copying", 3) as advance:
        advance(1)


def test_work_without_an_amount_is_not_shown() -> None:
    display = Recorded()
    with shown_on(display):
        assert list(tracked("copying", [], 0)) == []
    assert display.tasks == []


async def test_threads_and_tasks_of_the_work_count_on_the_same_display() -> None:
    display = Recorded()

    async def work() -> None:
        with counted("reading", 2, "records") as advance:
            await asyncio.to_thread(advance, 2)

    with shown_on(display):
        await asyncio.create_task(work())
        await asyncio.to_thread(lambda: list(tracked("copying", "ab", 2)))
    await work()
    assert display.tasks == [("reading", "records", 2, 2), ("copying", "files", 2, 2)]


# ---------------------------------------------------------------- on a terminal


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    return StringIO()


def display_on(screen: StringIO) -> TerminalProgress:
    return TerminalProgress(lambda: Console(file=screen, force_terminal=True, width=100, color_system=None))


def until_shown(display: TerminalProgress, text: str, screen: StringIO) -> None:
    for _ in range(2_000):
        if display._bars is not None:
            display._bars.refresh()
        if text in screen.getvalue():
            return
    pytest.fail(f"{text!r} is not in {screen.getvalue()[-300:]!r}")


@pytest.mark.parametrize(
    ("unit", "total", "done", "text"),
    [("files", 12, 3, "3 of 12 files"), ("bytes", 8 << 20, 2 << 20, "2.0 MiB of 8.0 MiB")],
    ids=["a number", "a size"],
)
def test_a_bar_has_the_amount_and_the_whole(unit: str, total: int, done: int, text: str, screen: StringIO) -> None:
    display = display_on(screen)
    with display.task("copying", total, unit) as advance:
        advance(done)
        until_shown(display, text, screen)
    display.close()
    assert "copying" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[2K\x1b[?25h\r")  # the bar is gone, and the cursor there again


def test_short_work_shows_nothing(screen: StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 3_600.0)
    display = display_on(screen)
    with display.task("copying", 2, "files") as advance:
        advance(2)
    display.close()
    assert screen.getvalue() == ""


def test_an_error_removes_the_bar(screen: StringIO) -> None:
    display = display_on(screen)
    with pytest.raises(OSError, match="full"), display.task("copying", 2, "files"):
        until_shown(display, "0 of 2 files", screen)
        raise OSError("the disk is full")
    assert display._bars is not None
    assert display._bars.tasks == []
    display.close()


@pytest.mark.interop
def test_a_quick_command_shows_no_bar_on_a_terminal_and_never_one_in_a_pipe(table: tidelake.Table, call: Call) -> None:
    warehouse = Path(table.location).parents[1]
    code, shown = on_a_terminal("table", "compact", "db.t", "--full", "-w", warehouse)
    assert (code, "of" in shown and "/s" in shown) == (0, False)
    code, shown, _ = with_output_elsewhere("table", "verify", "db.t", "--deep", "-w", warehouse)
    assert (code, "\x1b[?25l" in shown) == (0, False)
    assert "/s" not in call("table", "verify", "db.t", "--deep", "-w", warehouse).err
