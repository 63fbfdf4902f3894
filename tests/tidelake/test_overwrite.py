"""Overwrites: of all rows, of the written partitions, or of named partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.lakes import orphans
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.write.memory_budget import MemoryBudget

NAME: Final = "shop.sales"
SCHEMA: Final = pa.schema([("day", pa.string()), ("id", pa.int32()), ("v", pa.int32())])
Rows = list[tuple[str, int, int]]
BEFORE: Final[Rows] = [("mon", 1, 10), ("mon", 2, 20), ("tue", 1, 30)]


def new_table(warehouse: Path, **options: str) -> tidelake.Table:
    """With the rows BEFORE."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop", if_not_exists=True)
    table = catalog.create_table(NAME, SCHEMA, primary_key=["day", "id"], partition_by=["day"], options=options)
    write(table, BEFORE, 1)
    return table


def write(table: tidelake.Table, rows: Rows, identifier: int, **how: Any) -> int | None:
    with table.writer(commit_user="etl", **how) as writer:
        if rows:
            writer.write(pa.table(list(zip(*rows, strict=True)), names=SCHEMA.names))
        return writer.commit(identifier)


def rows_of(table: tidelake.Table, snapshot: int | None = None) -> Rows:
    return sorted(tuple(row.values()) for row in table.scan(snapshot=snapshot).to_arrow().to_pylist())


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_an_overwrite_leaves_no_file_that_no_snapshot_names(tmp_path: Path, producer: str) -> None:
    """It has no changelog, so none is written for it."""
    table = new_table(tmp_path, **{"bucket": "1", "changelog-producer": producer})
    write(table, [NEW], 2, overwrite=True)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.rescale_table(NAME, 2)
    table = catalog.table(NAME)
    assert rows_of(table) == [*BEFORE[:2], NEW]
    assert table.clean_orphans(older_than_ms=0, dry_run=True).paths == ()


@dataclass(frozen=True)
class Case:
    id: str
    overwrite: bool | Mapping[str, Any]
    written: Rows
    after: Rows
    options: Mapping[str, str] = field(default_factory=dict)


NEW: Final = ("tue", 9, 90)
CASES: Final = (
    Case("the partitions that rows are written to", True, [NEW], [*BEFORE[:2], NEW]),
    Case("nothing is written to none", True, [], BEFORE),
    Case("all partitions", True, [NEW], [NEW], {"dynamic-partition-overwrite": "false"}),
    Case("all partitions by nothing", True, [], [], {"dynamic-partition-overwrite": "false"}),
    Case("the partition named", {"day": "tue"}, [NEW], [*BEFORE[:2], NEW]),
    Case("the partition named, by nothing", {"day": "mon"}, [], BEFORE[2:]),
    Case("a partition that is not there yet", {"day": "wed"}, [("wed", 1, 1)], [*BEFORE, ("wed", 1, 1)]),
    Case("what is written twice counts once", True, [("tue", 1, 1), ("tue", 1, 2)], [*BEFORE[:2], ("tue", 1, 2)]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_overwrite_replaces_rows(case: Case, tmp_path: Path, java_oracle: JavaOracle) -> None:
    table = new_table(tmp_path, **case.options)
    write(table, case.written, 2, overwrite=case.overwrite)
    assert rows_of(table) == case.after
    in_java = [list(row.values()) for row in java_oracle.read(tmp_path, NAME)]
    assert difference(table.scan().to_arrow(), in_java) is None
    assert rows_of(table, snapshot=1) == BEFORE


@pytest.mark.parametrize("nothing", [None, False])
def test_a_writer_without_an_overwrite_adds_rows(nothing: bool | None, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, [NEW], 2, overwrite=nothing)
    assert rows_of(table) == [*BEFORE, NEW]


@pytest.mark.parametrize("unclear", [{}, "tue", 1, ["day"], (), float("nan")], ids=repr)
def test_an_ambiguous_overwrite_is_refused_with_the_explicit_form(unclear: Any, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.BadInput, match=r"overwrite=True for everything.*None for nothing"):
        table.writer(overwrite=unclear)
    assert rows_of(table) == BEFORE


def test_an_invalid_overwrite_partition_is_refused_before_writing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.BadInput, match="'id' can't select partitions"):
        table.writer(overwrite={"id": 1})


def test_truncating_with_an_empty_partition_filter_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.BadInput, match=r"truncate\(\) without partitions removes all rows"):
        table.truncate(partition={})
    assert rows_of(table) == BEFORE


def test_an_overwriting_writer_replaces_its_earlier_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with table.writer(commit_user="etl", overwrite=True) as writer:
        for number in (2, 3):
            writer.write(pa.table({"day": ["mon"], "id": [number], "v": [number]}))
            writer.commit(number)
    assert rows_of(table) == [("mon", 3, 3), BEFORE[2]]


def test_a_replayed_overwrite_is_not_applied_again(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert write(table, [NEW], 2, overwrite=True) is not None
    write(table, [("tue", 5, 5)], 3)
    assert write(table, [NEW], 3, overwrite=True) is None
    assert rows_of(table) == [*BEFORE[:2], ("tue", 5, 5), NEW]


def test_an_overwrite_gives_a_partition_another_number_of_buckets(tmp_path: Path, java_oracle: JavaOracle) -> None:
    new_table(tmp_path, bucket="1")
    catalog = tidelake.open_catalog(str(tmp_path))
    table = catalog.alter_table(NAME, [tidelake.SetOption("bucket", "3")])
    with pytest.raises(tidelake.BadInput, match="rewrite the partition with an overwrite"):
        write(table, [NEW], 2)
    many = [("tue", number, number) for number in range(20)]
    write(table, many, 2, overwrite={"day": "tue"})
    assert rows_of(table) == sorted([*BEFORE[:2], *many])
    write(table, [NEW], 3)
    assert {split.bucket for split in table.scan(filter=tidelake.col("day") == "tue").splits()} == {0, 1, 2}
    assert len(java_oracle.read(tmp_path, NAME)) == 22


def test_rows_outside_of_the_partition_named_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.BadInput, match="outside of the partition to overwrite"):
        write(table, [NEW], 2, overwrite={"day": "mon"})
    assert rows_of(table) == BEFORE


@pytest.mark.parametrize(
    ("partition", "left"),
    [
        pytest.param(None, [], id="all rows"),
        pytest.param({"day": "mon"}, BEFORE[2:], id="of a partition"),
        pytest.param({"day": "sun"}, BEFORE, id="of a partition that is not there"),
    ],
)
def test_truncating_removes_rows(partition: Mapping[str, Any] | None, left: Rows, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    snapshot_id = table.truncate(partition=partition, commit_user="etl", identifier=2)
    assert rows_of(table) == left
    assert snapshot_id == table.snapshots()[-1].id
    assert table.truncate(partition=partition, commit_user="etl", identifier=2) is None


def test_a_column_that_is_no_partition_column_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.BadInput, match="is partitioned by day; 'id' can't select partitions"):
        table.truncate(partition={"id": 1})
    assert rows_of(table) == BEFORE


async def test_the_async_api_does_the_same(tmp_path: Path) -> None:
    await asyncio.to_thread(new_table, tmp_path)
    table = await (await tidelake.aio.open_catalog(str(tmp_path))).table(NAME)
    async with table.writer(commit_user="etl", overwrite={"day": "tue"}) as writer:
        await writer.commit(2)
    assert await table.truncate(partition={"day": "mon"}, commit_user="etl", identifier=3) == 3
    assert (await (await table.scan()).to_arrow()).num_rows == 0


# ---------------------------------------------------------------- where readers don't see level 0

VECTORS: Final = {"deletion-vectors.enabled": "true"}
HIDING: Final = [
    pytest.param(VECTORS, id="deletion vectors"),
    pytest.param({**VECTORS, "changelog-producer": "lookup"}, id="deletion vectors, lookup"),
    pytest.param({"changelog-producer": "lookup"}, id="lookup"),
    pytest.param({"changelog-producer": "full-compaction"}, id="full-compaction"),
    pytest.param({"merge-engine": "first-row"}, id="first-row"),
    pytest.param({"merge-engine": "first-row", "changelog-producer": "lookup"}, id="first-row, lookup"),
    pytest.param({**VECTORS, "write-only": "true"}, id="write-only"),
    pytest.param({**VECTORS, "overwrite-upgrade": "false"}, id="files stay on the level that they were written to"),
]


@pytest.mark.parametrize("options", HIDING)
def test_all_rows_of_an_overwrite_become_visible_at_once(options: Mapping[str, str], tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"write-buffer-spillable": "false", **options})
    if "write-only" in options:
        table.compact(full=True)
    first_row = options.get("merge-engine") == "first-row"
    memory = MemoryBudget(1)  # each write becomes a file
    with table.writer(commit_user="etl", overwrite={"day": "tue"}, memory=memory) as writer:
        for n in (2, 3):  # the second commit replaces the first
            for number in (n, n + 1):
                writer.write(pa.table([["tue", "tue"], [1, number], [number, 7]], names=SCHEMA.names))
            writer.commit(n)
            new = [("tue", 1, n if first_row else n + 1), ("tue", n, 7), ("tue", n + 1, 7)]
            assert rows_of(table) == [*BEFORE[:2], *new]
            assert table.snapshots()[-1].commit_kind == "OVERWRITE"
            assert verify(table.context, deep=True) == []
            assert orphans(table.context) == set()
    reported = len(list(table.changes(start=1)))
    table.compact(full=True)
    assert rows_of(table) == [*BEFORE[:2], *new]
    assert len(list(table.changes(start=1))) == reported, "neither an overwrite nor its compaction makes changes"
