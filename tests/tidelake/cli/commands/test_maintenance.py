"""`tidelake table expire` and `verify`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.consumers import TableConsumers

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """shop.t with five snapshots."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", COLUMNS, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
    with table.writer() as writer:
        for number in range(5):
            writer.write(pa.table({"id": [number]}, schema=COLUMNS))
            writer.commit()
    return tmp_path / "lake"


def snapshots(lake: Path) -> list[int]:
    return [snapshot.id for snapshot in tidelake.open_catalog(str(lake)).table("shop.t").snapshots()]


def test_expire_keeps_snapshots_by_the_options(lake: Path, call: Call) -> None:
    result = call("table", "expire", "shop.t", "-w", lake)
    assert (result.code, snapshots(lake)) == (0, [1, 2, 3, 4, 5])
    assert "0 snapshots of shop.t were deleted" in result.out


def test_expire_arguments_override_the_options(lake: Path, call: Call) -> None:
    arguments = ("table", "expire", "shop.t", "-w", lake, "--retain-min", "2", "--retain-time", "0 s", "--json")
    assert call(*arguments, "--dry-run").document == {"first": 1, "last": 3, "snapshots": 3}
    assert snapshots(lake) == [1, 2, 3, 4, 5]
    assert call(*arguments).document == {"snapshots": 3, "changelogs": 0, "data_files": 0, "metadata_files": 6}
    assert snapshots(lake) == [4, 5]
    assert call(*arguments, "--dry-run").document == {"snapshots": 0}


def test_expire_names_the_consumers_that_protect_snapshots(lake: Path, call: Call) -> None:
    """Such as those of Spark queries whose checkpoint directories were given up."""
    consumers = TableConsumers(tidelake.open_catalog(str(lake)).table("shop.t"))
    consumers.reset("spark-given-up", 2)
    consumers.reset("spark-at-the-end", 5)
    arguments = ("table", "expire", "shop.t", "-w", lake, "--retain-min", "1", "--retain-time", "0 s")
    held_by = [{"consumer": "spark-given-up", "next_snapshot_id": 2}]
    planned = call(*arguments, "--dry-run", "--json").document
    assert planned == {"first": 1, "last": 1, "snapshots": 1, "held_by": held_by}
    result = call(*arguments)
    assert "consumers keep other snapshots: spark-given-up (reads 2 next)" in result.out
    assert f"tidelake table consumers delete shop.t CONSUMER -w {lake}" in result.out
    assert snapshots(lake) == [2, 3, 4, 5]
    call("table", "consumers", "delete", "shop.t", "spark-given-up", "-w", lake)
    assert "held_by" not in call(*arguments, "--json").document
    assert snapshots(lake) == [5]


@pytest.mark.parametrize("option", ["expire --retain-time", "verify --orphans-older-than"])
def test_an_invalid_duration_is_a_usage_error(lake: Path, call: Call, option: str) -> None:
    verb, name = option.split()
    result = call("table", verb, "shop.t", "-w", lake, name, "soon")
    assert result.code == 2
    assert f"{name} 'soon'" in result.err


def test_a_sound_table_is_reported_as_sound(lake: Path, call: Call) -> None:
    result = call("table", "verify", "shop.t", "-w", lake, "--deep")
    assert result.code == 0
    assert result.out.splitlines()[-1] == "sound"
    document = call("table", "verify", "shop.t", "-w", lake, "--json").document
    assert document["sound"] is True
    assert (document["snapshots"], document["dataFiles"], document["findings"]) == (5, 5, [])


def test_a_finding_is_printed_with_its_remedy_and_exit_code_1(lake: Path, call: Call) -> None:
    missing = min(lake.glob("shop.db/t/bucket-0/data-*"))
    missing.unlink()
    result = call("table", "verify", "shop.t", "-w", lake)
    assert result.code == 1
    assert str(missing) in result.out
    assert "Restore the file" in result.out
    as_json = call("table", "verify", "shop.t", "-w", lake, "--json")
    assert as_json.code == 1
    (finding,) = as_json.document["findings"]
    assert (finding["check"], finding["severity"]) == ("file-missing", "problem")


def test_one_snapshot_can_be_verified(lake: Path, call: Call) -> None:
    assert call("table", "verify", "shop.t", "-w", lake, "--snapshot", "2", "--json").document["dataFiles"] == 2
    result = call("table", "verify", "shop.t", "-w", lake, "--snapshot", "9")
    assert result.code == 1
    assert "has no snapshot 9" in result.err


def test_orphans_are_counted(lake: Path, call: Call) -> None:
    (lake / "shop.db/t/bucket-0/data-stray.parquet").write_bytes(bytes(7))
    assert "0 orphan files (0 bytes), and 1 younger" in call("table", "verify", "shop.t", "-w", lake).out
    aged = call("table", "verify", "shop.t", "-w", lake, "--orphans-older-than", "0 s", "--json").document["orphans"]
    assert (aged["files"], aged["bytes"]) == (1, 7)


def test_old_partitions_expire_and_complete_ones_are_marked_done(call: Call, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([("k", pa.int32()), ("p", pa.string())])
    table = catalog.create_table("db.t", schema, partition_by=["p"], options={"partition.expiration-time": "9 d"})
    with table.writer() as writer:
        writer.write(pa.table({"k": [1, 2], "p": ["2020-01-01", "new"]}, schema))
        writer.commit(1)
    at = ["db.t", "-w", str(tmp_path)]
    assert (
        call("table", "mark-done", *at, "--partition", "p=new").out
        == "p=new\n1 partitions of db.t were marked as done\n"
    )
    result = call("table", "expire-partitions", *at, "--dry-run")
    assert result.out == "p=2020-01-01\n1 partitions of db.t would be dropped\n"
    assert json.loads(call("table", "expire-partitions", *at, "--json").out) == {"partitions": ["p=2020-01-01"]}
    assert table.scan().to_arrow().to_pylist() == [{"k": 2, "p": "new"}]
    assert call("table", "expire-partitions", *at, "--older-than", "x").code == 2
