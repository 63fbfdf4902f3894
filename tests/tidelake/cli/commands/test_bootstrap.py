"""`tidelake table bootstrap`."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake
from tests.support.command_line import Call
from tests.tidelake.shop_log import create_shop_tables, rows_in_key_order
from tidelake.cli.demo.change_log import ChangeLog
from tidelake.cli.demo.shop import TABLES, Shop

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("amount", pa.decimal128(9, 2)), ("paid", pa.bool_())])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Has the empty table shop.t."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.t", COLUMNS, primary_key=["id"], options={"bucket": "2"})
    return tmp_path / "lake"


def rows(lake: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tidelake.open_catalog(str(lake)).table("shop.t").scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_all_parquet_files_of_a_pattern_become_one_snapshot(lake: Path, tmp_path: Path, call: Call) -> None:
    for number in range(3):
        dump = [{"id": number * 2 + n, "note": f"größe {n}", "amount": Decimal("1.50"), "paid": None} for n in range(3)]
        pq.write_table(pa.Table.from_pylist(dump, COLUMNS), tmp_path / f"dump-{number}.parquet")
    arguments = ("table", "bootstrap", "shop.t", "-w", lake, "--from", tmp_path / "*.parquet")
    assert call(*arguments).out.strip() == "9 rows read into snapshot 1 of shop.t"
    assert [row["id"] for row in rows(lake)] == list(range(7))
    assert rows(lake)[2]["note"] == "größe 0"  # of the file with the later name
    again = call(*arguments)
    assert (again.code, "shop.t is not empty (snapshot 1)" in again.err) == (1, True)


def test_csv_takes_the_types_of_the_table(lake: Path, tmp_path: Path, call: Call) -> None:
    text = 'amount,id,note,paid\n1.50,1,"a ""b""\nc",t\n,2,,false\n12.00,3,"",\n'
    (tmp_path / "dump.csv").write_text(text, encoding="utf-8")
    result = call("table", "bootstrap", "shop.t", "-w", lake, "--from", tmp_path / "dump.csv", "--json")
    assert result.document == {"files": 1, "rows": 3, "snapshot": 1}
    assert rows(lake) == [
        {"id": 1, "note": 'a "b"\nc', "amount": Decimal("1.50"), "paid": True},
        {"id": 2, "note": None, "amount": None, "paid": False},
        {"id": 3, "note": "", "amount": Decimal("12.00"), "paid": None},
    ]


def test_texts_of_a_csv_that_look_like_numbers_or_times_stay_as_they_are(
    lake: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "dump.csv").write_text("id,note\n1,007\n2,1.50\n3,2026-05-01\n", encoding="utf-8")
    call("table", "bootstrap", "shop.t", "-w", lake, "--from", tmp_path / "dump.csv")
    assert [row["note"] for row in rows(lake)] == ["007", "1.50", "2026-05-01"]


def test_a_text_of_several_lines_may_lie_where_a_csv_is_cut_into_blocks(lake: Path, tmp_path: Path, call: Call) -> None:
    note = "line\n" * 2_000
    records = "".join(f'{number},"{note}"\n' for number in range(300))  # 3 MB; a block has 1 MiB
    (tmp_path / "dump.csv").write_text(f"id,note\n{records}", encoding="utf-8")
    call("table", "bootstrap", "shop.t", "-w", lake, "--from", tmp_path / "dump.csv")
    assert [(row["id"], row["note"] == note) for row in rows(lake)] == [(number, True) for number in range(300)]


def test_files_without_rows_write_nothing(lake: Path, tmp_path: Path, call: Call) -> None:
    pq.write_table(COLUMNS.empty_table(), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("id,note\n", encoding="utf-8")
    files = (tmp_path / "a.parquet", tmp_path / "b.csv")
    result = call("table", "bootstrap", "shop.t", "-w", lake, "--from", *files)
    assert result.out.strip() == "the files have no rows: nothing was written to shop.t"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dump.parquet", b"no Parquet", "dump.parquet can't be read"),
        ("dump.csv", b"id,note\n1,a\nx,b\n", "dump.csv can't be read"),
        ("dump.csv", b"", "dump.csv can't be read"),
        ("dump.csv", b"id,nme\n1,a\n", "dump.csv: shop.t"),
        ("dump.csv", b"id,note\n,a\n", "dump.csv: shop.t"),
        ("dump.txt", b"1", "dump.txt is neither .parquet nor .csv"),
        ("other.csv", b"id\n1\n", "names no file"),
    ],
)
def test_files_that_don_t_fit_are_named_and_nothing_is_written(
    lake: Path, tmp_path: Path, call: Call, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    result = call("table", "bootstrap", "shop.t", "-w", lake, "--from", tmp_path / "dump*")
    assert (result.code, message in result.err) == (1, True), result.err
    assert rows(lake) == []
    assert not list(lake.rglob("data-*"))


def test_a_pipeline_that_starts_before_the_dump_ends_with_the_rows_of_the_source(tmp_path: Path, call: Call) -> None:
    """The changes from before the dump are applied once more."""
    log, shop = ChangeLog(tmp_path / "changes"), Shop(seed=7)
    (tmp_path / "changes").mkdir()
    events = shop.changes()
    log.write(shop.initial_rows(customers=20, articles=5))
    log.write(itertools.islice(events, 300))
    create_shop_tables(tmp_path / "lake", **{"changelog-producer": "lookup"})
    for table in TABLES:
        pq.write_table(shop.expected_rows(table), tmp_path / f"{table.name}.parquet")
        dump = tmp_path / f"{table.name}.parquet"
        assert call("table", "bootstrap", table.full_name, "-w", tmp_path / "lake", "--from", dump).code == 0
    log.write(itertools.islice(events, 300))
    config = tmp_path / "shop.yaml"
    config.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.customers}, {name: shop.orders}, {name: shop.stock}]\n"
    )
    assert call("ingest", "run", config).code == 0
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    for table in TABLES:
        found = catalog.table(table.full_name).scan().to_arrow()
        assert rows_in_key_order(table, found) == shop.expected_rows(table).to_pylist()
    again = call("table", "bootstrap", "shop.orders", "-w", tmp_path / "lake", "--from", tmp_path / "orders.parquet")
    assert (again.code, "shop.orders is not empty" in again.err) == (1, True)
