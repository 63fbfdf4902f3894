"""Java reads, writes and compacts a table that was migrated from a folder of files."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import tidelake
from tests.support.hive_metastore import HiveLake
from tests.support.java_oracle import JavaOracle

ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "v": "a",
        "amount": Decimal("12.50"),
        "day": date(2026, 5, 1),
        "at": datetime(2026, 5, 1, 12, 30, 0, 5),
        "tags": ["x", None],
    },
    {"id": 2, "v": None, "amount": None, "day": None, "at": None, "tags": None},
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
    ]
)
READ: list[dict[str, Any]] = [
    {"id": 1, "v": "a", "amount": "12.50", "day": "2026-05-01", "tags": ["x", None]},
    {"id": 2, "v": None, "amount": None, "day": None, "tags": None},
]


def write_folder(folder: Path, file_format: str) -> None:
    for hour in ("7", "8", "__HIVE_DEFAULT_PARTITION__"):
        (folder / f"hour={hour}").mkdir(parents=True)
        path = folder / f"hour={hour}" / "000000_0"
        table = pa.Table.from_pylist(ROWS, SCHEMA)
        if file_format == "parquet":
            pq.write_table(table, path)
        else:
            orc.write_table(table, str(path))


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted. The digits of a time are the format's: parquet says microseconds, orc nothing."""
    found = [{name: value for name, value in row.items() if name != "at"} for row in rows]
    return sorted(found, key=lambda row: (row["hour"] is None, row["hour"], row["id"]))


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_java_continues_a_migrated_table(file_format: str, java_oracle: JavaOracle, tmp_path: Path) -> None:
    write_folder(tmp_path / "hive", file_format)
    lake = tidelake.open_catalog(str(tmp_path / "lake"))
    lake.create_database("shop")
    lake.migrate_table(str(tmp_path / "hive"), "shop.visits", file_format=file_format, partition_types={"hour": "INT"})
    read = java_oracle.read(tmp_path / "lake", "shop.visits")
    expected = without_time([{**row, "hour": hour} for hour in (7, 8, None) for row in READ])
    assert without_time(read) == expected
    assert {str(row["at"])[:26] for row in read} == {"2026-05-01T12:30:00.000005", "None"}
    found = java_oracle.read(tmp_path / "lake", "shop.visits", where=["=", "id", 1])
    assert without_time(found) == [row for row in expected if row["id"] == 1]
    java_oracle.write(tmp_path / "lake", "shop.visits", [{**READ[1], "id": 3, "at": None, "hour": 7}])
    java_oracle.compact(tmp_path / "lake", "shop.visits", full=True)
    ids = lake.table("shop.visits").scan(filter=tidelake.col("hour") == 7).to_arrow().column("id")
    assert sorted(ids.to_pylist()) == [1, 2, 3]


def test_java_reads_files_added_under_a_later_schema(java_oracle: JavaOracle, tmp_path: Path) -> None:
    write_folder(tmp_path / "hive", "parquet")
    lake = tidelake.open_catalog(str(tmp_path / "lake"))
    lake.create_database("shop")
    lake.migrate_table(str(tmp_path / "hive"), "shop.visits", partition_types={"hour": "INT"})
    lake.alter_table("shop.visits", [tidelake.RenameColumn("v", "w")])
    (tmp_path / "more" / "hour=7").mkdir(parents=True)
    renamed = pa.Table.from_pylist(ROWS, SCHEMA).rename_columns(["id", "w", "amount", "day", "at", "tags"])
    pq.write_table(renamed, tmp_path / "more" / "hour=7" / "000000_0")
    lake.migrate_files(str(tmp_path / "more"), "shop.visits")
    found = java_oracle.read(tmp_path / "lake", "shop.visits")
    assert sorted((row["hour"], row["id"], row["w"]) for row in found if row["hour"] == 7) == [
        (7, 1, "a"),
        (7, 1, "a"),
        (7, 2, None),
        (7, 2, None),
    ]
    assert len(found) == 8


@pytest.mark.interop
def test_a_hive_table_is_migrated_in_the_same_metastore(hive_lake: HiveLake, java_with_hive: JavaOracle) -> None:
    java, lake = hive_lake.of_java, hive_lake.open()
    lake.create_database(hive_lake.database)
    old, new = hive_lake.name("visits"), hive_lake.name("moved")
    columns = [{"name": "id", "type": "BIGINT"}, {"name": "hour", "type": "INT"}]
    java_with_hive.create(
        java, old, columns, partition_keys=["hour"], options={"type": "format-table", "file.format": "parquet"}
    )
    java_with_hive.write_format_table(java, old, [{"id": 1, "hour": 7}, {"id": 2, "hour": None}])
    done = lake.migrate_table(old, new)
    assert (done.rows, done.partitions) == (2, 2)
    expected = [{"id": 1, "hour": 7}, {"id": 2, "hour": None}]
    assert sorted(java_with_hive.read(java, new), key=lambda row: row["id"]) == expected
    assert java_with_hive.read(java, old) == []
    lake.drop_table(old)
    assert lake.list_tables(hive_lake.database) == ["moved"]


@pytest.mark.interop
def test_tables_of_a_hive_database_are_migrated_to_another_database(
    hive_lake: HiveLake, java_with_hive: JavaOracle
) -> None:
    java, lake = hive_lake.of_java, hive_lake.open()
    lake.create_database(hive_lake.database)
    columns = [{"name": "id", "type": "BIGINT"}]
    for number, name in enumerate(("first", "second")):
        options = {"type": "format-table", "file.format": "parquet"}
        java_with_hive.create(java, hive_lake.name(name), columns, options=options)
        java_with_hive.write_format_table(java, hive_lake.name(name), [{"id": number}])
    lake.create_table(hive_lake.name("own"), pa.schema([("id", pa.int64())]))  # no table of others
    with pytest.raises(tidelake.BadInput, match="name another database"):
        lake.migrate_database(hive_lake.database, hive_lake.database)
    moved = f"{hive_lake.database}_moved"
    done = lake.migrate_database(hive_lake.database, moved)
    assert [one.table for one in done] == [f"{moved}.first", f"{moved}.second"]
    assert java_with_hive.read(java, f"{moved}.second") == [{"id": 1}]
    lake.drop_database(moved, cascade=True)
