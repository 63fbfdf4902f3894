"""The demo: its shop, its comparison, and complete runs on both engines."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call, call
from tests.support.tools import TOOLS, build_tool
from tests.tidelake.shop_log import write_shop_log
from tidelake.cli.demo import demo_run
from tidelake.cli.demo.comparison import compare_table
from tidelake.cli.demo.shop import CUSTOMERS, ORDERS, STOCK, TABLES, Shop, ShopChange
from tidelake.storage.base.logs import get_logger

__all__ = ["call"]


# ---------------------------------------------------------------- the shop


def some_changes(seed: int, count: int = 3_000) -> Iterator[ShopChange]:
    shop = Shop(seed)
    yield from shop.initial_rows(customers=30, articles=8)
    yield from itertools.islice(shop.changes(), count)


def test_the_same_seed_gives_the_same_shop() -> None:
    assert list(some_changes(1)) == list(some_changes(1))
    assert list(some_changes(1)) != list(some_changes(2))


def test_applying_all_changes_gives_the_expected_tables() -> None:
    shop = Shop(1)
    rows: dict[str, dict[tuple[object, ...], object]] = {table.name: {} for table in TABLES}
    for change in itertools.chain(shop.initial_rows(customers=30, articles=8), itertools.islice(shop.changes(), 3_000)):
        kept = rows[change.table.name]
        if change.before is not None:
            assert kept.pop(change.table.key_of(change.before)) == change.before
        if change.after is not None:
            assert change.table.key_of(change.after) not in kept
            kept[change.table.key_of(change.after)] = change.after
    assert rows == shop.rows


def test_the_demo_shop_has_every_kind_of_change() -> None:
    kinds = {
        "moved" if c.before and c.after and c.table.key_of(c.before) != c.table.key_of(c.after)
        else ("insert" if c.before is None else "delete" if c.after is None else "update")
        for c in some_changes(1)
    }  # fmt: skip
    assert kinds == {"insert", "update", "delete", "moved"}
    assert {change.table.name for change in some_changes(1)} == {CUSTOMERS.name, ORDERS.name, STOCK.name}


def test_a_file_of_the_log_appears_atomically(tmp_path: Path) -> None:
    write_shop_log(tmp_path, files=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"changes-0000{n}.jsonl" for n in (1, 2, 3)]
    offsets: dict[tuple[str, int], int] = {}
    for path in sorted(tmp_path.iterdir()):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            partition = (record["topic"], record["partition"])
            assert record["offset"] == offsets.get(partition, 0)
            offsets[partition] = record["offset"] + 1


# ---------------------------------------------------------------- the proof

A = {"sku": "a", "shelf": 1, "quantity": 5}
B = {"sku": "b", "shelf": 2, "quantity": None}


def stock(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=STOCK.schema)


def test_the_comparison_ignores_row_order() -> None:
    comparison = compare_table(STOCK, stock(B, A), stock(A, B))
    assert comparison.is_right
    assert comparison.checksum == comparison.checksum_expected


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        pytest.param([A], "missing: {'sku': 'b'", id="a row is missing"),
        pytest.param([A, B, {**A, "shelf": 9}], "unexpected: {'sku': 'a', 'shelf': 9", id="a row too much"),
        pytest.param([A, B, B], "1 keys occur twice", id="a row twice"),
        pytest.param([A, {**B, "quantity": 0}], "'quantity': None, 'price': None} in the shop", id="a value"),
    ],
)
def test_the_comparison_reports_the_difference(found: list[dict[str, object]], reported: str) -> None:
    comparison = compare_table(STOCK, stock(*found), stock(A, B))
    assert not comparison.is_right
    assert comparison.checksum != comparison.checksum_expected
    assert comparison.differences[0].find(reported) >= 0


# ---------------------------------------------------------------- the whole

SMALL = ("--records", "1500", "--pace", "0.01", "--json")


def test_the_demo_proves_its_tables_on_asyncio(call: Call, tmp_path: Path) -> None:
    result = call("demo", "--engine", "asyncio", "--directory", tmp_path / "demo", *SMALL)
    assert result.code == 0, result.err
    report = result.document
    assert report["is_right"]
    assert report["records"] >= 1500
    assert report["warehouse"] == str(tmp_path / "demo" / "warehouse")
    orders = tidelake.open_catalog(report["warehouse"]).table("shop.orders")
    assert {table["name"]: table["rows"] for table in report["tables"]}[
        "shop.orders"
    ] == orders.scan().to_arrow().num_rows
    assert not (tmp_path / "demo" / "scratch").exists()
    again = call("demo", "--engine", "asyncio", "--directory", tmp_path / "demo", *SMALL)
    assert (again.code, again.out) == (1, "")
    assert "is not empty" in again.err


@pytest.mark.interop
@pytest.mark.needs("Spark")
def test_the_demo_proves_its_tables_on_spark(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tidelake",
        "demo",
        "--engine",
        "spark",
        "--directory",
        str(tmp_path / "demo"),
        *SMALL,
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "without effect" not in run.stderr
    report = json.loads(run.stdout)
    assert report["engine"].startswith("Spark ")
    assert report["is_right"]
    assert "WARN" not in run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo"]
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["change-log", "shop.yaml", "warehouse"]


def release_of_pypaimon() -> str:
    """As pip takes it."""
    requirements = (TOOLS / "pypaimon" / "requirements.txt").read_text(encoding="utf-8")
    return next(line for line in requirements.splitlines() if line.startswith("pypaimon=="))


@pytest.mark.interop
def test_a_warning_in_the_demo_is_printed_as_plain_text(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def proven(*arguments: Any) -> Any:
        get_logger("tidelake.cli.demo").warning("something to know", table="shop.orders")
        return compare_table(*arguments)

    monkeypatch.setattr(demo_run, "compare_table", proven)
    result = call("demo", "--engine", "asyncio", "--directory", tmp_path / "demo", *SMALL[:-1])
    assert result.code == 0
    lines = [line for line in result.err.splitlines() if "something to know" in line]
    assert len(lines) == 3
    assert all("[warning" in line and "{" not in line for line in lines)


@pytest.mark.interop
def test_without_java_the_demo_prints_a_note_and_continues(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_run, "missing_for_spark", lambda: "Java was not found: install one")
    result = call("demo", "--directory", tmp_path / "demo", *SMALL)
    assert result.code == 0
    assert "Spark is not available (Java was not found: install one); the asyncio pipeline runs instead" in result.err
    forced = call("demo", "--engine", "spark", "--directory", tmp_path / "other", *SMALL)
    assert (forced.code, forced.out) == (1, "")
    assert "Java was not found" in forced.err


def test_a_wrong_table_fails_the_demo(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shop, "expected_rows", lambda _, table: table.schema.empty_table())
    result = call("demo", "--engine", "asyncio", "--directory", tmp_path / "demo", *SMALL)
    assert result.code == 1
    assert not result.document["is_right"]
    assert result.document["tables"][0]["differences"][0].startswith("unexpected: ")


@pytest.mark.interop
def test_the_demo_prints_the_location_of_the_tables_and_commands_to_try(call: Call, tmp_path: Path) -> None:
    result = call("demo", "--engine", "asyncio", "--directory", tmp_path / "demo", *SMALL[:-1])
    assert result.code == 0
    assert result.out.count("✓") == 4
    assert f"The tables: {tmp_path}/demo/warehouse" in result.out
    commands = [line.strip() for line in result.out.partition("Query a table")[2].splitlines() if line.startswith("  ")]
    assert len(commands) == 5
    python = build_tool(TOOLS / "pypaimon" / "build")
    venv = f"{tmp_path}/demo/pypaimon"
    assert commands.pop(3) == f"python3 -m venv {venv} && {venv}/bin/pip install --quiet {release_of_pypaimon()}"
    for command in commands:
        copied = command.replace(f"{venv}/bin/python", python)
        subprocess.run(copied, shell=True, check=True, capture_output=True)
