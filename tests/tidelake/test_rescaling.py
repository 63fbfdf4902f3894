"""Partitions that are rescaled to another number of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.maintenance.verify.inspection import verify
from tidelake.storage.read.snapshot_reader import SnapshotReader

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.int32(), nullable=False)])
NAME = "db.t"


def new_catalog(folder: Path, **options: str) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db")
    options = {"bucket": "1", **options}
    catalog.create_table(NAME, SCHEMA, primary_key=["id", "day"], partition_by=["day"], options=options)
    return catalog


def write(catalog: tidelake.Catalog, day: int, ids: range, kind: int = 0) -> None:
    kinds = pa.array([kind] * len(ids), pa.int8())
    with catalog.table(NAME).writer() as writer:
        writer.write(pa.table({"id": list(ids), "day": pa.array([day] * len(ids), pa.int32()), "_VALUE_KIND": kinds}))
        writer.commit()


def rows(catalog: tidelake.Catalog) -> list[tuple[int, int]]:
    return sorted((row["day"], row["id"]) for row in catalog.table(NAME).scan().to_arrow().to_pylist())


def totals(catalog: tidelake.Catalog) -> set[tuple[bytes, int]]:
    context = catalog.table(NAME).context
    latest = context.snapshots.latest()
    assert latest is not None
    return {(entry.partition[-8:-4], entry.total_buckets) for entry in live_entries(context, latest)}


def one(day: int) -> bytes:
    return day.to_bytes(4, "little")


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
def test_rescaling_changes_no_rows(engine: str, tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, **{"merge-engine": engine})
    write(catalog, 1, range(50))
    if engine == "deduplicate":
        write(catalog, 1, range(5), kind=3)
    write(catalog, 2, range(10))
    catalog.table(NAME).compact(full=True)
    before = rows(catalog)
    assert catalog.rescale_table(NAME, 4) == ["day=1", "day=2"]
    assert rows(catalog) == before
    assert totals(catalog) == {(one(1), 4), (one(2), 4)}
    assert catalog.table(NAME).options["bucket"] == "4"
    assert verify(catalog.table(NAME).context, deep=True) == []
    assert catalog.rescale_table(NAME, 4) == []
    write(catalog, 1, range(100, 110))
    assert len(rows(catalog)) == len(before) + 10


def test_one_partition_is_rescaled_and_the_others_refuse_writers_until_rescaled(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path)
    write(catalog, 1, range(10))
    write(catalog, 2, range(10))
    assert catalog.rescale_table(NAME, 3, partition={"day": 1}) == ["day=1"]
    assert totals(catalog) == {(one(1), 3), (one(2), 1)}
    write(catalog, 1, range(20, 30))
    with pytest.raises(tidelake.BadInput, match="files of this partition are in 1 buckets"):
        write(catalog, 2, range(20, 30))
    assert catalog.rescale_table(NAME, 3) == ["day=2"]
    write(catalog, 2, range(20, 30))
    assert len(rows(catalog)) == 40


def test_a_partition_that_does_not_exist_is_refused_before_the_option_changes(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path)
    write(catalog, 1, range(10))
    with pytest.raises(tidelake.BadInput, match="has no partition with rows that matches: day=3"):
        catalog.rescale_table(NAME, 3, partition={"day": 3})
    assert catalog.table(NAME).context.options["bucket"] == "1"


def test_rows_written_during_a_rescale_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = new_catalog(tmp_path)
    write(catalog, 1, range(10))
    write(catalog, 2, range(10))
    stream = tidelake.open_catalog(str(tmp_path)).table(NAME).writer()
    real, reads = SnapshotReader.read, []

    def slow(reader: SnapshotReader, splits: Any) -> Iterator[pa.RecordBatch]:
        found = list(real(reader, splits))
        reads.append(splits)
        if len(reads) == 1:  # behind our back, into this partition
            stream.write(pa.table({"id": [99], "day": pa.array([1], pa.int32())}))
            stream.commit()
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotReader, "read", slow)
        assert catalog.rescale_table(NAME, 4) == ["day=1", "day=2"]
    stream.close()
    assert len(reads) == 3, "the first partition twice"
    assert (1, 99) in rows(catalog)
    assert len(rows(catalog)) == 21
    assert totals(catalog) == {(one(1), 4), (one(2), 4)}


@pytest.mark.parametrize("changes", ["rescale", "alter"])
@pytest.mark.parametrize("has_rows", [False, True], ids=["empty table", "new partition"])
def test_a_writer_of_the_old_number_adds_no_partition(has_rows: bool, changes: str, tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path)
    if has_rows:
        write(catalog, 1, range(10))
    with catalog.table(NAME).writer() as stream:
        stream.write(pa.table({"id": [1], "day": pa.array([3], pa.int32())}))
        if changes == "rescale":
            catalog.rescale_table(NAME, 4)
        else:
            catalog.alter_table(NAME, [tidelake.SetOption("bucket", "4")])
        with pytest.raises(tidelake.CommitConflict, match=r"day=3: the table has bucket = 4 since, .* for 1 buckets"):
            stream.commit()
    write(catalog, 3, range(5))
    assert (one(3), 4) in totals(catalog)


def test_a_writer_of_the_old_number_continues_where_its_number_is_that_of_the_partition(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path)
    write(catalog, 1, range(10))
    with catalog.table(NAME).writer() as stream:
        catalog.alter_table(NAME, [tidelake.SetOption("bucket", "4")])
        stream.write(pa.table({"id": [99], "day": pa.array([1], pa.int32())}))
        stream.commit()
    assert len(rows(catalog)) == 11


WAITING: dict[str, tuple[dict[str, str], bool]] = {
    "lookup": ({"changelog-producer": "lookup"}, False),
    "full-compaction": ({"changelog-producer": "full-compaction"}, True),
    "first-row": ({"merge-engine": "first-row", "changelog-producer": "lookup"}, False),
    "deletion vectors": ({"deletion-vectors.enabled": "true"}, False),
}


@pytest.mark.parametrize(("options", "full"), WAITING.values(), ids=WAITING)
def test_changes_that_wait_for_a_compaction_are_not_lost(options: dict[str, str], full: bool, tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, **options, **{"write-only": "true"})
    write(catalog, 1, range(10))
    with pytest.raises(tidelake.BadInput, match=r"of day=1 wait for .*, and a rescale would lose them\. (Compact|Run)"):
        catalog.rescale_table(NAME, 4)
    assert catalog.table(NAME).options["bucket"] == "1", "nothing is changed"
    catalog.table(NAME).compact(full=full)
    assert catalog.rescale_table(NAME, 4) == ["day=1"]
    assert len(rows(catalog)) == 10
    if "changelog-producer" in options:
        table = catalog.table(NAME)
        changes = [row for batch in table.changes(start=1) for row in batch.rows.to_pylist()]
        assert sorted(row["id"] for row in changes) == list(range(10))


def test_a_table_with_an_old_history_that_expired_is_rescaled(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path)
    for number in range(5):
        write(catalog, 1, range(number, number + 3))
    catalog.table(NAME).expire(retain_max=1, retain_min=1)
    catalog.rescale_table(NAME, 2)
    assert len(rows(catalog)) == 7


def test_postponed_rows_stay_postponed_while_buckets_are_rescaled(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, bucket="-2", **{"postpone.batch-write-fixed-bucket": "false"})
    write(catalog, 1, range(10))
    catalog.table(NAME).compact()
    write(catalog, 1, range(10, 20))
    assert catalog.rescale_table(NAME, 5) == ["day=1"]
    assert len(rows(catalog)) == 10
    assert totals(catalog) == {(one(1), 5), (one(1), -2)}
    catalog.table(NAME).compact()
    assert len(rows(catalog)) == 20


def test_invisible_rows_stop_a_rescale(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, **{"deletion-vectors.enabled": "true", "write-only": "true"})
    write(catalog, 1, range(10))
    with pytest.raises(tidelake.BadInput, match="Compact the table first"):
        catalog.rescale_table(NAME, 2)


def test_what_cannot_be_rescaled_is_refused(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, bucket="-1")
    with pytest.raises(tidelake.BadInput, match="number of buckets grows"):
        catalog.rescale_table(NAME, 2)
    with pytest.raises(tidelake.BadInput, match="give a number above 0"):
        catalog.rescale_table(NAME, 0)


def test_the_commands_rename_and_rescale(call: Call, tmp_path: Path) -> None:
    where = ("-w", tmp_path)
    assert call("database", "create", "db", *where).code == 0
    assert call("database", "create", "db", *where).code == 1
    assert call("database", "create", "db", "--if-not-exists", *where).code == 0
    columns = ("--column", "id:BIGINT NOT NULL", "--primary-key", "id", "--option", "bucket=1")
    assert call("table", "create", NAME, *columns, *where).code == 0
    assert call("table", "rename", NAME, "db.u", *where).code == 0
    with tidelake.open_catalog(str(tmp_path)).table("db.u").writer() as writer:
        writer.write(pa.table({"id": [1, 2, 3]}))
        writer.commit()
    result = call("table", "rescale", "db.u", "--bucket", "2", "--json", *where)
    assert result.document == {"table": "db.u", "bucket": 2, "partitions": [""]}
    assert call("database", "list", "--json", *where).document == ["db"]
    assert call("database", "drop", "db", *where).code == 1
    assert call("database", "drop", "db", "--cascade", *where).code == 3
    assert call("database", "drop", "db", "--cascade", "--yes", *where).code == 0
    assert call("database", "list", "--json", *where).document == []
