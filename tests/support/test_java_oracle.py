"""Other tests rely on the oracle: rows that it writes are read back, and its refusals contain the reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.cases import GoldenTable, golden_expected, golden_table
from tests.support.expected import difference, json_rows
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused

COLUMNS: list[dict[str, Any]] = [
    {"name": "k", "type": "INT", "nullable": False},
    {"name": "s", "type": "STRING"},
    {"name": "b", "type": "BYTES"},
    {"name": "f", "type": "FLOAT"},
    {"name": "d", "type": "DECIMAL(20, 3)"},
    {"name": "day", "type": "DATE"},
    {"name": "t", "type": "TIME(3)"},
    {"name": "ts", "type": "TIMESTAMP(6)"},
    {"name": "ltz", "type": "TIMESTAMP(3) WITH LOCAL TIME ZONE"},
    {"name": "m", "type": {"type": "MAP", "key": "STRING", "value": "INT"}},
    {"name": "a", "type": {"type": "ARRAY", "element": "DOUBLE"}},
    {"name": "r", "type": {"type": "ROW", "fields": [{"name": "x", "type": "INT"}, {"name": "y", "type": "STRING"}]}},
]
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), False),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("f", pa.float32()),
        ("d", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("t", pa.time32("ms")),
        ("ts", pa.timestamp("us")),
        ("ltz", pa.timestamp("ms", tz="UTC")),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("a", pa.list_(pa.float64())),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {
            "k": 1,
            "s": "line\u2028separator",
            "b": b"\x00\xff",
            "f": 0.1,
            "d": Decimal("12345678901234567.890"),
            "day": date(1, 1, 1),
            "t": time(23, 59, 59, 999000),
            "ts": datetime(1969, 12, 31, 23, 59, 59, 999999),
            "ltz": datetime(2024, 5, 14, 12, 34, 56, 789000, UTC),
            "m": [("b", None), ("a", 1)],
            "a": [float("nan"), -0.0, float("inf"), None],
            "r": {"x": None, "y": ""},
        },
        {"k": 2},
    ],
    SCHEMA,
)


def test_rows_are_read_back_from_java(java_oracle: JavaOracle, tmp_path: Path) -> None:
    java_oracle.create(tmp_path, "d.t", COLUMNS, primary_keys=["k"], options={"bucket": "2"})
    assert java_oracle.write(tmp_path, "d.t", json_rows(ROWS)) == 1
    rows = java_oracle.read(tmp_path, "d.t")
    assert difference(ROWS, [list(row.values()) for row in rows]) is None


def test_a_table_lives_through_commits_compaction_and_time_travel(java_oracle: JavaOracle, tmp_path: Path) -> None:
    java_oracle.create(tmp_path, "d.t", COLUMNS[:2], primary_keys=["k"], options={"bucket": "1"})
    java_oracle.write(tmp_path, "d.t", [{"k": 1, "s": "a"}, {"k": 2, "s": "b"}], commit_user="u", commit_id=5)
    java_oracle.tag(tmp_path, "d.t", "first")
    java_oracle.branch(tmp_path, "d.t", "dev", tag="first")
    java_oracle.write(tmp_path, "d.t", [{"_kind": "-D", "k": 1, "s": "a"}])
    assert java_oracle.compact(tmp_path, "d.t", full=True) == 3
    java_oracle.write(tmp_path, "d.t", [{"k": 9, "s": "dev"}], branch="dev")
    java_oracle.alter(tmp_path, "d.t", {"add": {"name": "n", "type": "INT"}})

    assert java_oracle.read(tmp_path, "d.t") == [{"k": 2, "s": "b", "n": None}]
    assert len(java_oracle.read(tmp_path, "d.t", snapshot=1)) == 2
    assert len(java_oracle.read(tmp_path, "d.t", tag="first")) == 2
    assert {row["k"] for row in java_oracle.read(tmp_path, "d.t", branch="dev")} == {1, 2, 9}
    assert [row["_kind"] for row in java_oracle.stream(tmp_path, "d.t", start=2, end=2)] == ["-D"]
    snapshots = java_oracle.system(tmp_path, "d.t", "snapshots")
    assert [(row["commit_user"], row["commit_identifier"]) for row in snapshots[:1]] == [("u", 5)]
    assert java_oracle.rollback(tmp_path, "d.t", snapshot=1) == 1


def test_a_refusal_carries_java_s_message_and_the_next_call_works(java_oracle: JavaOracle, tmp_path: Path) -> None:
    java_oracle.create(tmp_path, "d.t", COLUMNS[:1])
    with pytest.raises(Refused, match="Tag 'nope' doesn't exist"):
        java_oracle.read(tmp_path, "d.t", tag="nope")
    assert java_oracle.read(tmp_path, "d.t") == []


@pytest.mark.parametrize(
    "table", [golden_table("java/rollback_expire"), golden_table("java/types_parquet")], ids=lambda t: t.id
)
def test_java_reads_an_unpacked_golden_table_as_expected(
    java_oracle: JavaOracle, table: GoldenTable, tmp_path: Path
) -> None:
    warehouse = table.unpack(tmp_path)
    assert java_oracle.expected(warehouse, table.identifier) == golden_expected(warehouse, table.name)
