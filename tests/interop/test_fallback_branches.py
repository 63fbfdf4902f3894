"""Partitions missing in a branch are read from another one, as in Java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tests.support.levels import rounds
from tests.support.line_server import Refused
from tidelake import AddColumn, SetOption, UnsupportedFeature, col

NAME: Final = "db.t"
SCHEMA: Final = pa.schema([pa.field("p", pa.string(), False), pa.field("k", pa.int32(), False), ("v", pa.string())])
Row = tuple[str, int, str]


@dataclass
class Lake:
    """A partitioned table with a branch, `fb`."""

    warehouse: Path
    java: JavaOracle
    option: str = "scan.fallback-branch"
    primary_key: Sequence[str] = ("p", "k")

    def __post_init__(self) -> None:
        catalog = tidelake.open_catalog(str(self.warehouse))
        catalog.create_database("db")
        key = list(self.primary_key)
        catalog.create_table(NAME, SCHEMA, primary_key=key, partition_by=["p"], options={"bucket": "1"} if key else {})

    def table(self, branch: str | None = None, **options: str) -> tidelake.Table:
        name = NAME if branch is None else f"{NAME}$branch_{branch}"
        return tidelake.open_catalog(str(self.warehouse)).table(
            name, {key.replace("_", "."): value for key, value in options.items()}
        )

    def alter(self, *changes: SetOption | AddColumn, branch: str | None = None) -> None:
        name = NAME if branch is None else f"{NAME}$branch_{branch}"
        tidelake.open_catalog(str(self.warehouse)).alter_table(name, list(changes))

    def write(self, rows: Sequence[Row], branch: str | None = None) -> None:
        with self.table(branch).writer() as writer:
            writer.write(pa.table(list(zip(*rows, strict=True)), schema=SCHEMA))
            writer.commit()

    def branch(self) -> None:
        self.table().create_branch("fb")
        self.alter(SetOption(self.option, "fb"))

    def ours(self, **scan: Any) -> list[dict[str, Any]]:
        return ordered(self.table().scan(**scan).to_arrow().to_pylist())

    def javas(self, where: Any = None, **options: str) -> list[dict[str, Any]]:
        named = {key.replace("_", "."): value for key, value in options.items()}
        return ordered(self.java.read(self.warehouse, NAME, where=where, options=named))


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(row) for row in rows), key=str)


CONDITIONS: Final[list[tuple[Any, Any]]] = [
    (None, None),
    (col("p") == "b", ["=", "p", "b"]),
    (col("v") == "fb", ["=", "v", "fb"]),
    (col("k") == 1, ["=", "k", 1]),
    ((col("p") == "a") | (col("v") == "fb"), ["or", ["=", "p", "a"], ["=", "v", "fb"]]),
    (col("p").is_in(["b", "c"]) & (col("k") == 2), ["and", ["in", "p", ["b", "c"]], ["=", "k", 2]]),
]


@pytest.mark.sampled
@pytest.mark.parametrize("option", ["scan.fallback-branch", "scan.primary-branch"])
@pytest.mark.parametrize("key", [("p", "k"), ()], ids=["primary key", "append table"])
def test_a_partition_is_read_from_one_branch_as_in_java(
    option: str, key: Sequence[str], tmp_path: Path, java_oracle: JavaOracle
) -> None:
    for seed in range(rounds(5)):
        dice = Random(seed)
        lake = Lake(tmp_path / str(seed), java_oracle, option, key)
        lake.branch()
        for number in range(4):
            branch = dice.choice([None, "fb"])
            rows = [(p, k, f"{branch or 'main'}{number}") for p in dice.sample("abcd", 2) for k in (1, 2)]
            lake.write(rows, branch)
        for ours, javas in CONDITIONS:
            assert lake.ours(filter=ours) == lake.javas(javas), (seed, ours)
        for name in ("partitions", "audit_log", "binlog", "ro"):
            table = tidelake.open_catalog(str(lake.warehouse)).table(f"{NAME}${name}")
            skipped = {"last_update_time"}
            found, reported = (
                ordered([{n: v for n, v in row.items() if n not in skipped} for row in rows])
                for rows in (table.scan().to_arrow().to_pylist(), java_oracle.system(lake.warehouse, NAME, name))
            )
            assert found == reported, (seed, name)
        for snapshot in lake.table().snapshots():
            wanted = lake.javas(**{"scan_snapshot-id": str(snapshot.id)})
            assert lake.ours(snapshot=snapshot.id) == wanted, (seed, snapshot.id)


def test_a_tag_and_a_time_select_states_of_both_branches(tmp_path: Path, java_oracle: JavaOracle) -> None:
    lake = Lake(tmp_path, java_oracle)
    lake.branch()
    lake.write([("a", 1, "main")])
    lake.write([("a", 1, "fb"), ("b", 1, "fb")], "fb")
    for branch in (None, "fb"):
        lake.table(branch).create_tag("t")
    (before,) = lake.table("fb").snapshots()
    lake.write([("c", 1, "main")])
    lake.write([("d", 1, "fb")], "fb")
    both = [{"p": "a", "k": 1, "v": "main"}, {"p": "b", "k": 1, "v": "fb"}]
    assert lake.ours(tag="t") == ordered(both)
    assert (
        lake.ours(as_of=before.time_ms) == lake.javas(**{"scan_timestamp-millis": str(before.time_ms)}) == ordered(both)
    )
    assert len(lake.ours()) == len(lake.javas()) == 4
    lake.table().create_tag("of main")
    with pytest.raises(tidelake.BadInput, match=r"branch 'fb'.*has no tag 'of main'"):
        lake.ours(tag="of main")
    with pytest.raises(Refused):
        java_oracle.read(tmp_path, NAME, tag="of main")


def test_changes_and_writes_use_only_the_branch_itself(tmp_path: Path, java_oracle: JavaOracle) -> None:
    lake = Lake(tmp_path, java_oracle)
    lake.branch()
    lake.write([("a", 1, "main")])
    lake.write([("b", 1, "fb")], "fb")
    assert [row["v"] for row in java_oracle.stream(tmp_path, NAME)] == ["main"]
    assert [v for batch in lake.table().changes(start=1) for v in batch.rows["v"].to_pylist()] == ["main"]
    with pytest.raises(UnsupportedFeature, match=r"which is read from branch fb"):
        lake.table().delete(col("p") == "b")
    assert lake.table("fb").delete(col("p") == "b") is not None
    assert [row["p"] for row in lake.ours()] == [row["p"] for row in lake.javas()] == ["a"]


def test_tables_that_java_refuses_are_refused(tmp_path: Path, java_oracle: JavaOracle) -> None:
    lake = Lake(tmp_path, java_oracle)
    lake.branch()
    nowhere, both = (
        {"set": {"key": f"scan.{which}-branch", "value": name}}
        for which, name in (("fallback", "x"), ("primary", "fb"))
    )
    for change, ours, message in [
        (nowhere, SetOption("scan.fallback-branch", "x"), "this branch does not exist"),
        (both, SetOption("scan.primary-branch", "fb"), "can't both be set"),
    ]:
        with pytest.raises(tidelake.BadInput, match=message):
            lake.alter(ours)
        with pytest.raises(Refused):
            java_oracle.alter(tmp_path, NAME, change)
    lake.alter(AddColumn("w", "INT"))
    with pytest.raises(tidelake.BadInput, match="whose columns differ"):
        lake.ours()
    with pytest.raises(Refused, match="does not have the same row type"):
        lake.javas()
    lake.alter(AddColumn("w", "INT"), branch="fb")
    assert lake.ours() == lake.javas() == []


def test_a_read_that_only_one_branch_can_answer_is_refused(tmp_path: Path, java_oracle: JavaOracle) -> None:
    lake = Lake(tmp_path, java_oracle)
    lake.branch()
    lake.write([("a", 1, "main")])
    with pytest.raises(tidelake.UnsupportedFeature, match=r"scan.fallback-branch = fb.*the changes in a range"):
        lake.table().scan(between=(0, 1))
    with pytest.raises(tidelake.UnsupportedFeature, match="files by their time"):
        lake.table(**{"scan_mode": "from-file-creation-time", "scan_file-creation-time-millis": "1"}).scan()
    assert lake.table(**{"scan_fallback-branch": ""}).scan(between=(0, 1)).to_arrow().num_rows == 1


def test_the_explained_scan_lists_files_of_both(tmp_path: Path, java_oracle: JavaOracle) -> None:
    lake = Lake(tmp_path, java_oracle)
    lake.branch()
    lake.write([("a", 1, "main")])
    lake.write([("a", 1, "fb"), ("b", 1, "fb")], "fb")
    explained = lake.table().scan(filter=col("k") == 7).explain()
    assert [(file.partition, str(file.left_out)) for file in explained] == [("p=a", "key range"), ("p=b", "key range")]
