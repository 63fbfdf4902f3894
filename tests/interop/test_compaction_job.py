"""Our compaction job on tables that Java and pypaimon write, and their work on its result."""

from __future__ import annotations

from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.interop.conftest import NewTable
from tests.interop.layouts import Layout, append, primary_key
from tests.interop.shared_table import NAME, Reader, SharedTable, changes
from tidelake.storage.model.format import CommitKind

WRITE_ONLY: Final = {
    "write-only": "true",
    "num-sorted-run.compaction-trigger": "3",
    "snapshot.num-retained.min": "100",
}

KEYED: Final = (
    primary_key("one bucket"),
    primary_key(
        "partitioned, orc, two buckets", ["boolean"], partition=["int"], options={"bucket": "2", "file.format": "orc"}
    ),
    primary_key(
        "text keys, avro below parquet", key=["string", "tinyint"], options={"file.format.per.level": "0:avro"}
    ),
)
APPENDED: Final = (
    append("append, partitioned", ["int", "string", "timestamp_us"], ["boolean"]),
    append(
        "append in buckets, avro", ["k", "string"], options={"bucket": "2", "bucket-key": "k", "file.format": "avro"}
    ),
)


def make(new_table: NewTable, layout: Layout) -> SharedTable:
    options = {**layout.options, **WRITE_ONLY}
    return new_table(layout.columns, primary_key=layout.key, partition_by=layout.partition, options=options)


def rows(layout: Layout, turn: int) -> pa.Table:
    chance = Random(turn)
    numbers = chance.choices(range(40), k=20)
    kinds = chance.choices([0, 2, 3], weights=[2, 4, 2], k=len(numbers)) if layout.key else None
    return layout.rows(numbers, kinds, turn=turn)


def levels(table: SharedTable) -> set[int]:
    return {int(file["level"]) for file in table.java.system(table.warehouse, NAME, "files")}


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", [*KEYED, *APPENDED], ids=lambda layout: layout.id)
def test_a_table_that_java_and_we_write_is_compacted_by_our_job(layout: Layout, new_table: NewTable) -> None:
    """Minor, then in full, then on from what Java compacted; every snapshot, and what it changed, is as Java says."""
    table = make(new_table, layout)
    for turn in range(4):
        table.java_writes(rows(layout, turn))
        table.write(rows(layout, 10 + turn), identifier=turn)
        if turn % 2:
            assert table.ours.compact().buckets
            table.check([Reader.JAVA])
    table.ours.compact(full=True)
    if layout.key:
        assert 0 not in levels(table)
    table.java_writes(rows(layout, 20))
    table.java_compacts(full=True)
    table.java_writes(rows(layout, 21))
    table.ours.compact(full=True)
    table.check()
    table.check_history()
    assert {s.commit_kind for s in table.ours.snapshots()} == {CommitKind.APPEND, CommitKind.COMPACT}


def test_level_0_that_pypaimon_wrote_is_compacted(new_table: NewTable) -> None:
    layout = primary_key("pypaimon's", ["int", "string"], options={"bucket": "2"})
    table = make(new_table, layout)
    for turn in range(6):
        batch = layout.rows(range(turn, 30 + turn), turn=turn)
        table.pypaimon.write(table.warehouse, NAME, batch)
        table.model.write(changes(batch))
    report = table.ours.compact(full=True)
    assert sum(one.files_before for one in report.buckets) == 12
    table.check()
    assert levels(table) == {3}


def test_buckets_that_an_index_assigns_are_compacted_and_keep_their_index(new_table: NewTable) -> None:
    """Compaction does not choose buckets. Java continues to write with its index."""
    layout = primary_key("dynamic buckets", ["int"], options={"bucket": "-1", "dynamic-bucket.target-row-num": "8"})
    table = make(new_table, layout)
    for turn in range(4):
        table.java_writes(rows(layout, turn))
    assert {one.bucket for one in table.ours.compact(full=True).buckets} > {0}
    table.check([Reader.JAVA])
    table.java_writes(rows(layout, 5))
    table.check([Reader.JAVA])


@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert"])
def test_java_reads_sorted_rows_and_its_followers_see_no_changes(strategy: str, new_table: NewTable) -> None:
    layout = append("sorted", ["int", "string", "double", "date"], ["boolean"])
    table = make(new_table, layout)
    for turn in range(3):
        table.java_writes(rows(layout, turn))
    table.ours.compact(order_by=["string", "int", "date"], strategy=strategy)
    table.check()
    table.check_history()
    newest = table.ours.snapshots()[-1]
    assert newest.commit_kind is CommitKind.COMPACT
    assert table.java.stream(table.warehouse, NAME, start=newest.id) == []
    table.java_writes(rows(layout, 3))
    table.java_compacts()
    table.check()


def test_java_picks_the_same_small_files(new_table: NewTable) -> None:
    """Each makes of the same commits files of the same row counts."""
    layout = append("small files", ["int", "string"], ["boolean"], options={"compaction.min.file-num": "3"})
    made = []
    for folder in ("ours", "java"):
        table = new_table(
            layout.columns, partition_by=layout.partition, options={**layout.options, **WRITE_ONLY}, folder=folder
        )
        for turn in range(5):
            table.java_writes(rows(layout, turn))
        if folder == "ours":
            table.ours.compact()
        else:
            table.java_compacts()
        files = table.java.system(table.warehouse, NAME, "files")
        made.append(sorted((file["partition"], file["record_count"]) for file in files))
        table.check([Reader.JAVA])
    assert made[0] == made[1]
