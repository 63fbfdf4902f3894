"""System tables of the golden tables: Tidelake reads the same rows and columns as Java."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import GoldenTable, golden_tables
from tests.support.java_oracle import JavaOracle
from tidelake.storage.kinds.system_tables.by_name import SYSTEM_TABLES

METADATA: Final = sorted(set(SYSTEM_TABLES) - {"audit_log", "binlog", "ro", "row_tracking"})
WAREHOUSE_TABLES: Final = ("tables", "partitions", "all_table_options")

# What may differ. Java takes the youngest file that a manifest names, also one that was deleted since. Its releases
# up to 2.0 don't show who wrote a snapshot.
DIFFERING: Final = {
    "partitions": {"last_update_time", "last_file_creation_time"},
    "buckets": {"last_update_time"},
    "snapshots": {"writer_version"},
}
# Nanoseconds from year 1: Arrow can't hold them, and an unknown bound is null.
BEYOND_ARROW: Final = {"java/orc_time_quirks": {"min_value_stats", "max_value_stats"}}
_ADDRESS: Final = re.compile(r"\[B@[0-9a-f]+")  # Java prints the memory address of bytes


def as_java_prints(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case dict():
            return {name: as_java_prints(member) for name, member in value.items()}
        case list():
            return [as_java_prints(element) for element in value]
    return value


def rows_of(table: pa.Table, differing: set[str]) -> list[dict[str, Any]]:
    return [{n: as_java_prints(v) for n, v in row.items() if n not in differing} for row in table.to_pylist()]


def java_rows(rows: list[dict[str, Any]], differing: set[str]) -> list[dict[str, Any]]:
    kept = [{name: value for name, value in row.items() if name not in differing} for row in rows]
    for row in kept:
        if str(row.get("file_path", "")).startswith("file:"):
            row["file_path"] = row["file_path"].removeprefix("file:")
    return kept


def assert_same(ours: list[dict[str, Any]], javas: list[dict[str, Any]], what: str) -> None:
    """Compares rows in any order. Where Java prints an object address, our text of the bytes is accepted."""
    assert len(ours) == len(javas), what
    order = lambda row: str({n: v for n, v in row.items() if "stats" not in n and "_key" not in n})  # noqa: E731
    for our, java in zip(sorted(ours, key=order), sorted(javas, key=order), strict=True):
        assert our.keys() == java.keys(), what
        for name, value in java.items():
            if name == "comment" and value == "null":  # Java reads a null of pypaimon's as this text
                assert our[name] is None, what
            elif name == "options":  # in no order
                assert json.loads(our[name] or "null") == json.loads(value or "null"), what
            elif isinstance(value, str) and _ADDRESS.search(value):
                pattern = "[0-9a-f]*".join(map(re.escape, _ADDRESS.split(value)))
                assert re.fullmatch(pattern, our[name]), f"{what}: {name}"
            else:
                assert our[name] == value, f"{what}: {name}"


@pytest.fixture(params=golden_tables(), ids=lambda table: table.id)
def golden(request: pytest.FixtureRequest) -> GoldenTable:
    table: GoldenTable = request.param
    return table


def test_every_system_table_equals_javas(golden: GoldenTable, java_oracle: JavaOracle, tmp_path: Path) -> None:
    warehouse = golden.unpack(tmp_path)
    catalog = tidelake.open_catalog(str(warehouse))
    for name in METADATA:
        differing = DIFFERING.get(name, set()) | BEYOND_ARROW.get(golden.id, set())
        javas = java_rows(java_oracle.system(warehouse, golden.identifier, name), differing)
        ours = rows_of(catalog.table(f"{golden.identifier}${name}").scan().to_arrow(), differing)
        assert_same(ours, javas, f"{golden.id}${name}")
    for name in WAREHOUSE_TABLES:
        differing = DIFFERING.get(name, set())
        javas = java_rows(java_oracle.system(warehouse, f"sys.{name}", "-"), differing)
        ours = rows_of(catalog.table(f"sys.{name}").scan().to_arrow(), differing)
        assert_same(ours, javas, f"{golden.id}: sys.{name}")
