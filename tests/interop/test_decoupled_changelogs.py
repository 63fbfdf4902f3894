"""Decoupled changelogs: Java streams ours, and we follow Java's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake import Table
from tidelake.storage.commit.expire.expire_now import expire_now
from tidelake.storage.model.format import RowKind

NAME = "db.t"
COLUMNS = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())])
AGES = {"snapshot.time-retained": "0 s", "changelog.time-retained": "0 s"}
Told = list[tuple[int, str, int, str]]  # snapshot, row kind, k, v


def new_table(warehouse: Path, producer: str) -> Table:
    """The newest two snapshots stay, and changelogs up to the fifth."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("db")
    options = {
        "bucket": "1",
        "changelog-producer": producer,
        "write-only": "true",
        "snapshot.num-retained.min": "2",
        "snapshot.num-retained.max": "2",
        "changelog.num-retained.min": "5",
        "changelog.num-retained.max": "5",
    }
    return catalog.create_table(NAME, COLUMNS, primary_key=["k"], options=options)


def ours(table: Table, start: int) -> Told:
    return sorted(
        (change.snapshot_id, RowKind(row["_VALUE_KIND"]).symbol, row["k"], row["v"])
        for change in table.changes(start=start)
        for row in change.rows.to_pylist()
    )


def javas(oracle: JavaOracle, warehouse: Path, start: int) -> Told:
    rows = oracle.stream(warehouse, NAME, start=start)
    return sorted((row["_snapshot"], row["_kind"], row["k"], row["v"]) for row in rows)


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("expires", ["we", "java"])
def test_decoupled_changelogs_read_the_same_after_expiry_by_either(
    tmp_path: Path, java_oracle: JavaOracle, producer: str, expires: str
) -> None:
    table = new_table(tmp_path, producer)
    for number in range(1, 9):
        if number % 2:
            with table.writer() as writer:
                writer.write(pa.table({"k": pa.array([1, number], pa.int32()), "v": [f"a{number}", "b"]}))
                writer.commit()
        else:
            java_oracle.write(tmp_path, NAME, [{"k": 1, "v": f"j{number}"}, {"k": 2, "v": "x", "_kind": "-D"}])
    before = ours(table, 1)
    assert before == javas(java_oracle, tmp_path, 1)
    if expires == "we":
        expire_now(table.context.with_options(AGES))
    else:
        java_oracle.command("expire", tmp_path, NAME, retain_max=2, retain_min=2, changelog_max=5, changelog_min=5)
    assert [snapshot.id for snapshot in table.snapshots()] == [7, 8]
    kept = [change for change in before if change[0] >= 4]
    assert ours(table, 4) == javas(java_oracle, tmp_path, 4) == kept
    assert table.follower(start="earliest").next_snapshot_id == 4


@pytest.mark.parametrize("active", ["main", "branch"])
def test_expiry_on_one_side_of_a_java_branch_keeps_the_other_complete(
    tmp_path: Path, java_oracle: JavaOracle, active: str
) -> None:
    main = new_table(tmp_path, "input")
    java_oracle.write(tmp_path, NAME, [{"k": 1, "v": "a"}])
    java_oracle.command("tag", tmp_path, NAME, "g", snapshot=1)
    java_oracle.command("branch", tmp_path, NAME, "b", tag="g")
    branch = tidelake.open_catalog(str(tmp_path)).table(f"{NAME}$branch_b")
    writing, resting = (main, branch) if active == "main" else (branch, main)
    for number in range(5, 14):
        with writing.writer() as writer:
            writer.write(pa.table({"k": pa.array([number], pa.int32()), "v": ["b"]}))
            writer.commit()
        expire_now(writing.context.with_options(AGES))
    other = "b" if active == "main" else None
    assert java_oracle.read(tmp_path, NAME, branch=other) == [{"k": 1, "v": "a"}]
    assert len(java_oracle.stream(tmp_path, NAME, start=1, branch=other)) == 1
    assert ours(resting, 1) == [(1, "+I", 1, "a")]
    assert resting.scan().to_arrow().num_rows == 1
    assert java_oracle.read(tmp_path, NAME, tag="g") == [{"k": 1, "v": "a"}]
