"""Statistics of a table: what is counted, in which file, and how long snapshots reference it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake.storage.maintenance.analysis.column_summary import ColumnSummary
from tidelake.storage.model.types import DataField, arrow_type, parse_type

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "amount": pa.decimal128(10, 2),
        "at": pa.timestamp("ms"),
        "day": pa.date32(),
        "tags": pa.list_(pa.string()),
    }
)


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    """Three rows of two keys in two commits."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    day, at = date(2026, 5, 1), datetime(2026, 5, 1, 12, 30)
    rows: list[dict[str, list[Any]]] = [
        {"id": [1, 2], "name": ["ä", "four"], "amount": [Decimal("1.50"), None], "at": [at, at], "day": [day, None]},
        {"id": [2], "name": ["later"], "amount": [Decimal("-7.25")], "at": [None], "day": [day]},
    ]
    with table.writer(commit_user="u") as writer:
        for identifier, columns in enumerate(rows, 1):
            writer.write(pa.table({**columns, "tags": [None] * len(columns["id"])}, SCHEMA))
            writer.commit(identifier)
    return table


def test_rows_are_counted_as_readers_see_them(table: tidelake.Table) -> None:
    assert table.analyze() == 3
    found = table.statistics()
    assert found is not None
    assert (found.snapshot_id, found.merged_record_count) == (2, 2)
    size = sum(table_of(table, "files").column("file_size_in_bytes").to_pylist())
    assert found.merged_record_size == size * 2 // 3
    assert found.columns == {
        "id": {
            "colId": 0,
            "distinctCount": 2,
            "min": "1",
            "max": "2",
            "nullCount": 0,
            "avgLen": 8,
            "maxLen": 8,
        },
        "name": {"colId": 1, "distinctCount": 2, "nullCount": 0, "avgLen": 3, "maxLen": 5},
        "amount": {
            "colId": 2,
            "distinctCount": 2,
            "min": "-7.25",
            "max": "1.50",
            "nullCount": 0,
            "avgLen": 8,
            "maxLen": 8,
        },
        "at": {
            "colId": 3,
            "distinctCount": 1,
            "min": "2026-05-01 12:30:00.000",
            "max": "2026-05-01 12:30:00.000",
            "nullCount": 1,
            "avgLen": 8,
            "maxLen": 8,
        },
        "day": {
            "colId": 4,
            "distinctCount": 1,
            "min": "20574",
            "max": "20574",
            "nullCount": 0,
            "avgLen": 4,
            "maxLen": 4,
        },
    }


def table_of(table: tidelake.Table, system: str) -> pa.Table:
    warehouse = str(Path(table.location).parent.parent)
    return tidelake.open_catalog(warehouse).table(f"{table.name}${system}").scan().to_arrow()


def test_only_the_named_columns_are_analyzed(table: tidelake.Table) -> None:
    table.analyze(["name"])
    assert list(((found := table.statistics()) and found.columns) or ()) == ["name"]
    table.analyze([])
    assert (found := table.statistics()) is not None
    assert (found.merged_record_count, found.columns) == (2, {})


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [("nothing", tidelake.BadInput, "no column 'nothing'"), ("tags", tidelake.UnsupportedFeature, "have no order")],
)
def test_columns_that_cannot_be_analyzed_are_named(
    table: tidelake.Table, column: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        table.analyze([column])
    assert len(table.snapshots()) == 2


def test_a_table_without_rows_has_no_statistics(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.empty", SCHEMA)
    assert table.analyze() is None
    assert table.statistics() is None


def test_snapshots_reference_statistics_until_the_schema_changes(table: tidelake.Table, tmp_path: Path) -> None:
    table.analyze()
    with table.writer(commit_user="u") as writer:
        writer.commit(5)
    assert table.snapshots()[-1].statistics == table.snapshots()[-2].statistics is not None
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.alter_table("db.t", [tidelake.AddColumn("more", "INT")])
    with catalog.table("db.t").writer(commit_user="u") as writer:
        writer.commit(6)
    assert catalog.table("db.t").statistics() is None


def test_the_statistics_file_is_deleted_with_the_last_snapshot_that_references_it(table: tidelake.Table) -> None:
    table.analyze()
    table.analyze()
    assert len(list(Path(table.location, "statistics").iterdir())) == 2
    assert table.clean_orphans(older_than_ms=0).paths == ()
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    (left,) = Path(table.location, "statistics").iterdir()
    assert left.name == table.snapshots()[-1].statistics


def test_java_reads_the_statistics(table: tidelake.Table, java_oracle: JavaOracle, tmp_path: Path) -> None:
    table.analyze()
    (javas,) = java_oracle.system(tmp_path, "db.t", "statistics")
    (ours,) = table_of(table, "statistics").to_pylist()
    assert json.loads(javas.pop("colstat")) == json.loads(ours.pop("colstat"))
    assert javas == ours


# ---------------------------------------------------------------- one column


def summary(sql: str, *batches: Sequence[Any]) -> dict[str, Any]:
    found = ColumnSummary(DataField(7, "c", parse_type(sql)))
    for batch in batches:
        found.add(pa.array(batch, arrow_type(parse_type(sql))))
    return found.to_json()


def test_nan_is_not_a_bound(tmp_path: Path) -> None:
    reported = summary("DOUBLE", [float("nan"), 2.5], [0.0, -0.0, None, float("nan")])
    assert (reported["min"], reported["max"], reported["distinctCount"], reported["nullCount"]) == ("0.0", "2.5", 3, 1)


def test_only_nulls_have_no_bounds() -> None:
    assert summary("INT", [None, None]) == {"colId": 7, "distinctCount": 0, "nullCount": 2, "avgLen": 4, "maxLen": 4}
    reported = summary("STRING", [None])
    assert reported == {"colId": 7, "distinctCount": 0, "nullCount": 1, "avgLen": 0, "maxLen": 0}


@pytest.mark.parametrize("distinct", [16_384, 100_000, 1_000_000])
def test_many_different_values_are_estimated(distinct: int) -> None:
    numbers = np.random.default_rng(16).permutation(distinct).astype(np.int64)
    found = ColumnSummary(DataField(0, "c", parse_type("BIGINT")))
    for part in (*np.array_split(numbers, 5), numbers[: distinct // 3]):
        found.add(pa.array(part))
    count = found.to_json()["distinctCount"]
    assert count == distinct if distinct <= 16_384 else abs(count - distinct) < 0.03 * distinct


@pytest.mark.parametrize(
    ("sql", "values", "reported"),
    [
        ("BOOLEAN", [True, False, True], ("false", "true", 2, 1)),
        ("TINYINT", [-1, 5], ("-1", "5", 2, 1)),
        ("FLOAT", [1e10, 0.5], ("0.5", "1.0E10", 2, 4)),
        ("DECIMAL(30, 2)", [Decimal("2.00"), Decimal("2.00")], ("2.00", "2.00", 1, 16)),
        ("TIME(3)", [1000, 2000], ("1000", "2000", 2, 4)),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            [0, 1],
            ("1970-01-01 00:00:00.000000", "1970-01-01 00:00:00.000001", 2, 8),
        ),
        ("BYTES", [b"ab", b""], (None, None, 2, 2)),
    ],
)
def test_bounds_are_strings_as_java_reads_them(sql: str, values: list[Any], reported: tuple[Any, ...]) -> None:
    found = summary(sql, values)
    assert (found.get("min"), found.get("max"), found["distinctCount"], found["maxLen"]) == reported
