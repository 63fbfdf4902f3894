"""Options for the start of a read have the same meaning as in Java."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False)])
NAME = "shop.t"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, java_oracle: JavaOracle) -> Path:
    """Snapshots 1 to 3 add a row each, 4 compacts, 5 adds one; the watermark of n is n * 100; tag `two` is 2."""
    warehouse = tmp_path_factory.mktemp("lake")
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "50"}
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"], options=options)
    with table.writer(commit_user="w") as writer:
        for number in (1, 2, 3, 5):
            if number == 5:
                table.compact(full=True)
            writer.write(pa.table({"id": [number]}, SCHEMA))
            writer.commit(number, watermark=number * 100)
    java_oracle.command("tag", warehouse, NAME, "two", snapshot=2)
    return warehouse


@pytest.mark.parametrize(
    "options",
    [
        {"scan.snapshot-id": "1"},
        {"scan.tag-name": "two"},
        {"scan.watermark": "150"},
        {"scan.version": "two"},
        {"scan.version": "3"},
        {"scan.version": "watermark-100"},
        {"scan.mode": "from-snapshot", "scan.snapshot-id": "2"},
        {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"},
        {"scan.mode": "compacted-full"},
        {"scan.mode": "latest-full"},
        {"scan.mode": "full"},
        {"scan.mode": "latest"},
        {"log.scan": "compacted-full"},
    ],
    ids=str,
)
def test_a_scan_with_options_equals_javas(options: Mapping[str, str], warehouse: Path, java_oracle: JavaOracle) -> None:
    ours = tidelake.open_catalog(str(warehouse)).table(NAME, options).scan().to_arrow()
    theirs = java_oracle.read(warehouse, NAME, options=options)
    assert sorted(ours["id"].to_pylist()) == sorted(row["id"] for row in theirs)


def test_the_selected_bucket_has_the_same_rows_as_in_java(warehouse: Path, java_oracle: JavaOracle) -> None:
    catalog = tidelake.open_catalog(str(warehouse))
    created = catalog.create_table("shop.b", SCHEMA, primary_key=["id"], options={"bucket": "3"})
    with created.writer() as writer:
        writer.write(pa.table({"id": range(30)}, SCHEMA))
        writer.commit()
    options = {"scan.bucket": "1"}
    table = catalog.table("shop.b", options)
    ours = sorted(table.scan().to_arrow()["id"].to_pylist())
    assert 0 < len(ours) < 30
    assert ours == sorted(row["id"] for row in java_oracle.read(warehouse, "shop.b", options=options))
    followed = [row for change in table.changes(start=1) for row in change.rows["id"].to_pylist()]
    assert sorted(followed) == ours
    assert ours == sorted(row["id"] for row in java_oracle.stream(warehouse, "shop.b", options=options))
