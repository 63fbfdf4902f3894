"""PyIceberg reads our tables: what a table holds is what it sees, as far as nothing has to be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.iceberg import iceberg_rows, pyiceberg_table

IN_TABLE = {"metadata.iceberg.storage": "table-location"}
V3 = {**IN_TABLE, "metadata.iceberg.format-version": "3", "deletion-vectors.bitmap64": "true"}
ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


def _rows(*pairs: tuple[int, str | None], kind: int = 0) -> pa.Table:
    ids, names = zip(*pairs, strict=True)
    kinds = pa.array([kind] * len(ids), pa.int8())
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string()), "_VALUE_KIND": kinds})


def _metadata(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "t" / "metadata"


def _seen(tmp_path: Path, **scan: Any) -> list[dict[str, Any]]:
    rows = iceberg_rows(_metadata(tmp_path), **scan).to_pylist()
    return sorted(rows, key=str)


def _held(table: tidelake.Table, **scan: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**scan).to_arrow().to_pylist(), key=str)


def test_an_append_table_is_seen_whole_after_each_commit(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=IN_TABLE)
    with table.writer(commit_user="u") as writer:
        for number in range(1, 4):
            writer.write(_rows((number, str(number))))
            writer.commit(identifier=number)
            assert _seen(tmp_path) == _held(table)
    assert _seen(tmp_path, snapshot_id=2) == _held(table, snapshot=2)


def test_rows_of_a_primary_key_table_are_seen_once_they_are_compacted(
    catalog: tidelake.Catalog, tmp_path: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, primary_key=["id"], options={**IN_TABLE, "write-only": "true"})
    with table.writer(commit_user="u") as writer:
        writer.write(_rows((1, "a"), (2, "b"), (3, "c")))
        writer.commit(identifier=1)
        assert _seen(tmp_path) == []
        table.compact(full=True)
        assert _seen(tmp_path) == _held(table)
        writer.write(_rows((1, "new")))
        writer.write(_rows((2, None), kind=3))
        writer.commit(identifier=2)
    assert [row["name"] for row in _seen(tmp_path)] == ["a", "b", "c"]
    table.compact(full=True)
    assert _seen(tmp_path) == _held(table) == [{"id": 1, "name": "new"}, {"id": 3, "name": "c"}]


def test_filters_and_columns_reach_the_files(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("region", pa.string())])
    table = catalog.create_table("db.t", columns, partition_by=["day", "region"], options=IN_TABLE)
    days = [date(2024, 1, 31), date(2024, 2, 1), None]
    with table.writer(commit_user="u") as writer:
        writer.write(pa.table({"id": [1, 2, 3], "day": days, "region": ["eu", "us", "eu"]}, columns))
        writer.commit(identifier=1)
    assert _seen(tmp_path) == _held(table)
    assert _seen(tmp_path, row_filter="day = '2024-02-01'", selected_fields=("id",)) == [{"id": 2}]
    assert _seen(tmp_path, row_filter="region = 'eu' and id > 1") == [{"id": 3, "day": None, "region": "eu"}]
    scanned = list(pyiceberg_table(_metadata(tmp_path)).scan(row_filter="region = 'us'").plan_files())
    assert len(scanned) == 1


# Name of the column, Arrow type, a value. PyIceberg reads no times in milliseconds, which is how data files hold TIME.
TYPES: list[tuple[str, pa.DataType, Any]] = [
    ("a_boolean", pa.bool_(), True),
    ("a_tinyint", pa.int8(), -1),
    ("a_smallint", pa.int16(), 300),
    ("an_int", pa.int32(), -70_000),
    ("a_bigint", pa.int64(), 2**40),
    ("a_float", pa.float32(), 1.5),
    ("a_double", pa.float64(), float("-inf")),
    ("a_string", pa.string(), "ä" * 40),
    ("some_bytes", pa.binary(), b"\0\xff"),
    ("a_decimal", pa.decimal128(9, 2), Decimal("-1.25")),
    ("a_long_decimal", pa.decimal128(38, 4), Decimal("1234567890123456789012345678.1234")),
    ("a_date", pa.date32(), date(1969, 12, 31)),
    ("a_timestamp", pa.timestamp("us"), datetime(1960, 1, 31, 12, 34, 56, 789_123)),
    ("a_timestamp_in_ms", pa.timestamp("ms"), datetime(2024, 1, 31, 12, 34, 56, 789_000)),
    ("an_array", pa.list_(pa.int32()), [1, None]),
    ("an_array_of_arrays", pa.list_(pa.list_(pa.string())), [["a"], []]),
    ("a_map", pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    ("a_row", pa.struct([("x", pa.int32()), ("y", pa.string())]), {"x": 1, "y": "q"}),
]


@pytest.mark.parametrize("key", [(), ("id",)], ids=["append", "primary key"])
def test_values_of_each_type_are_seen(key: Sequence[str], catalog: tidelake.Catalog, tmp_path: Path) -> None:
    names = [name for name, _, _ in TYPES]
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, kind) for name, kind, _ in TYPES)])
    table = catalog.create_table("db.t", columns, primary_key=list(key), options=IN_TABLE)
    values = {name: pa.array([value, None], kind) for name, kind, value in TYPES}
    with table.writer(commit_user="u") as writer:
        writer.write(pa.table({"id": [1, 2], **values}, columns))
        writer.commit(identifier=1)
    table.compact(full=True)
    value_row, null_row = _seen(tmp_path)
    assert value_row == {"id": 1, **{name: value for name, _, value in TYPES}}
    assert null_row == {"id": 2, **dict.fromkeys(names)}
    for name in (name for name, kind, _ in TYPES if not pa.types.is_nested(kind)):
        assert _seen(tmp_path, row_filter=f"{name} is null", selected_fields=("id",)) == [{"id": 2}]
    for name, value in (("a_bigint", 2**40), ("a_string", "'" + "ä" * 40 + "'"), ("a_date", "'1969-12-31'")):
        assert _seen(tmp_path, row_filter=f"{name} = {value}", selected_fields=("id",)) == [{"id": 1}]


def test_partitions_of_each_type_are_seen(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    of_partition = [case for case in TYPES if not pa.types.is_nested(case[1]) and case[1] != pa.binary()]
    columns = pa.schema([("id", pa.int64()), *((name, kind) for name, kind, _ in of_partition)])
    names = [name for name, _, _ in of_partition]
    table = catalog.create_table("db.t", columns, partition_by=names, options=IN_TABLE)
    values = {name: pa.array([value, None], kind) for name, kind, value in of_partition}
    with table.writer(commit_user="u") as writer:
        for number in (1, 2):
            writer.write(pa.table({"id": [number, number + 10], **values}, columns))
            writer.commit(identifier=number)
    table.compact(full=True)
    assert _seen(tmp_path) == _held(table)
    for name in names:
        assert _seen(tmp_path, row_filter=f"{name} is null", selected_fields=("id",)) == [{"id": 11}, {"id": 12}]


def test_a_column_is_found_by_its_id_after_each_change(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=IN_TABLE)

    def append(rows: Mapping[str, Sequence[Any]]) -> None:
        with catalog.table("db.t").writer() as writer:
            writer.write(pa.table(dict(rows)))
            writer.commit()

    append({"id": [1], "name": ["a"]})
    catalog.alter_table("db.t", [tidelake.AddColumn("amount", pa.int32())])
    append({"id": [2], "name": ["b"], "amount": pa.array([2], pa.int32())})
    catalog.alter_table(
        "db.t", [tidelake.RenameColumn("name", "title"), tidelake.UpdateColumnType("amount", pa.int64())]
    )
    append({"id": [3], "title": ["c"], "amount": [2**40]})
    assert _seen(tmp_path) == _held(catalog.table("db.t"))
    catalog.alter_table("db.t", [tidelake.DropColumn("amount"), tidelake.AddColumn("amount", pa.string())])
    append({"id": [4], "title": ["d"], "amount": ["text"]})
    assert _seen(tmp_path) == _held(catalog.table("db.t"))
    assert table is not None


@pytest.mark.parametrize("key", [(), ("id",)], ids=["append", "primary key"])
def test_deleted_rows_are_not_seen_with_deletion_vectors(
    key: Sequence[str], catalog: tidelake.Catalog, tmp_path: Path
) -> None:
    options = {**V3, "deletion-vectors.enabled": "true"}
    table = catalog.create_table("db.t", ROWS, primary_key=list(key), options=options)
    with table.writer(commit_user="u") as writer:
        writer.write(_rows(*((number, str(number)) for number in range(10))))
        writer.commit(identifier=1)
        if key:
            writer.write(_rows((3, None), (5, None), kind=3))
            writer.write(_rows((7, "new")))
            writer.commit(identifier=2)
    if not key:
        table.delete(tidelake.col("id").is_in([3, 5]))
    assert len(_held(table)) == 8
    assert _seen(tmp_path) == _held(table)
    table.compact(full=True)
    assert _seen(tmp_path) == _held(table)
