"""The estimated number of rows of a condition, from the last analysis."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake import col

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("few", pa.string()),
        ("some", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("m", pa.map_(pa.string(), pa.string())),
    ]
)
ROWS = 1000


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    """A thousand ids, ten texts, one number in four null, evenly spread."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA)
    numbers = range(ROWS)
    columns: list[Any] = [
        list(numbers),
        [f"t{n % 10}" for n in numbers],
        [None if n % 4 == 0 else n % 100 for n in numbers],
        [Decimal(n) for n in numbers],
        [date(2026, 1, 1) + timedelta(days=n % 365) for n in numbers],
        [datetime(2026, 1, 1) + timedelta(hours=n) for n in numbers],
        [[("k", "v")] for _ in numbers],
    ]
    with table.writer() as writer:
        writer.write(pa.table(columns, schema=SCHEMA))
        writer.commit()
    table.analyze()
    return catalog.table("db.t")


@pytest.mark.parametrize(
    ("condition", "off_by"),
    [
        pytest.param(None, 0, id="no condition"),
        pytest.param(col("id") == 5, 0, id="one of many"),
        pytest.param(col("id") == -5, 0, id="outside of the bounds"),
        pytest.param(col("few") == "t3", 0, id="one of few"),
        pytest.param(col("few") != "t3", 0, id="all but one"),
        pytest.param(col("few").is_in(["t1", "t2"]), 0, id="two of few"),
        pytest.param(~col("few").is_in(["t1", "t2"]), 0, id="all but two"),
        pytest.param(col("some").is_null(), 0, id="nulls"),
        pytest.param(col("some").is_not_null(), 0, id="no nulls"),
        pytest.param(col("some") != 7, 5, id="nulls are no other value"),
        pytest.param(~(col("some") == 7), 5, id="nor the opposite of one"),
        pytest.param(col("id") < 250, 2, id="a range"),
        pytest.param(~(col("id") < 250), 2, id="the opposite of a range"),
        pytest.param(col("price") >= 900, 2, id="a range of decimals"),
        pytest.param(col("day") >= "2026-07-01", 60, id="a range of days"),
        pytest.param(col("at") < datetime(2026, 1, 11), 3, id="a range of times"),
        pytest.param((col("few") == "t3") & (col("id") < 500), 3, id="both"),
        pytest.param((col("few") == "t3") | (col("few") == "t4"), 15, id="either"),
    ],
)
def test_the_estimate_for_evenly_distributed_values_is_close(
    table: tidelake.Table, condition: Any, off_by: int
) -> None:
    scan = table.scan(filter=condition)
    estimated = scan.estimated_rows()
    assert estimated is not None
    assert abs(estimated - scan.to_arrow().num_rows) <= off_by


@pytest.mark.parametrize(
    "condition",
    [col("few") < "t3", col("few").starts_with("t"), col("m")["k"] == "v", col("m").is_null()],
    ids=["a range of texts", "a prefix", "a key of a map", "a column that is not counted"],
)
def test_without_enough_statistics_no_estimate_is_given(table: tidelake.Table, condition: Any) -> None:
    assert table.scan(filter=condition).estimated_rows() is None
    assert table.scan(snapshot=1).estimated_rows() is None


def test_system_tables_and_changes_have_no_estimate(table: tidelake.Table, tmp_path: Path) -> None:
    files = tidelake.open_catalog(str(tmp_path)).table("db.t$files")
    assert files.scan().estimated_rows() is None
    assert table.scan(between=(0, 1)).estimated_rows() is None


def test_the_explained_scan_prints_the_estimate(table: tidelake.Table, tmp_path: Path, call: Call) -> None:
    arguments = ("table", "scan", "db.t", "-w", str(tmp_path), "--where", "few = 't3'", "--explain")
    assert "about 100 rows in the result, estimated from `table analyze`" in call(*arguments).out
    assert call(*arguments, "--json").document["estimatedRows"] == 100
