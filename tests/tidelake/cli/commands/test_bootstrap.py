"""`tidelake table bootstrap`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake
from tests.support.command_line import Call

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
