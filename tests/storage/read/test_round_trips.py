"""Reads of a table that is far away: what doesn't depend on one another is asked side by side, and nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.gathering_file_io import GatheringFileIO
from tidelake.errors import BadInput
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.read.predicate import col
from tidelake.table import Table

NAME = "db.t"
FILES = 10
INDEXED = {
    "bucket": "-1",
    "file-index.bloom-filter.columns": "id",
    "file-index.bloom-filter.id.items": "100000",
    "file-index.in-manifest-threshold": "1 b",
}


def lake(options: Mapping[str, str] | None = None, *, primary_key: bool = False) -> str:
    """Make a table of ten commits, one file each, and return its warehouse."""
    warehouse = f"memory://{uuid4().hex}"
    catalog = FileSystemCatalog(MemoryFileIO(), warehouse)
    catalog.create_database("db")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    keys = ["id"] if primary_key else []
    catalog.create_table(NAME, columns, primary_key=keys, options={"write-only": "true", **(options or {})})
    table = Table(catalog.load(NAME))
    for number in range(FILES):
        with table.writer(commit_user="test") as writer:
            ids = list(range(number, 10 * FILES, FILES))
            writer.write(pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]}, columns))
            writer.commit(identifier=number + 1)
    return warehouse


def opened(warehouse: str, together: Mapping[str, int]) -> tuple[Table, GatheringFileIO]:
    io = GatheringFileIO(MemoryFileIO(), together)
    return Table(FileSystemCatalog(io, warehouse).load(NAME)), io


@pytest.mark.parametrize("primary_key", [False, True], ids=["append table", "merge of ten runs"])
def test_a_cold_scan_asks_side_by_side_for_lists_for_manifests_and_for_files(primary_key: bool) -> None:
    warehouse = lake({"bucket": "1" if primary_key else "-1"}, primary_key=primary_key)
    table, io = opened(warehouse, {"manifest-list": 2, "manifest": FILES, "data": FILES})
    assert table.scan().to_arrow().num_rows == 10 * FILES
    asked = Counter(io.kinds())
    assert asked == {
        "list schema": 1,
        "schema": 2,  # once beside the list, and once after the snapshot was read: is it still the same table?
        "LATEST": 1,
        "is there a snapshot": 1,
        "snapshot": 1,
        "manifest-list": 2,
        "manifest": FILES,
        "data": FILES,
    }


def cold(warehouse: str, together: Mapping[str, int]) -> tuple[Table, GatheringFileIO]:
    """Open the table, and gather all requests that go out side by side before its files are read."""
    io = GatheringFileIO(MemoryFileIO(), {"manifest": FILES, **together})
    io.gather(2, "schema", "list schema")
    table = Table(FileSystemCatalog(io, warehouse).load(NAME))
    io.gather(2, "snapshot", "is there a snapshot")
    io.gather(3, "schema", "manifest-list")
    return table, io


def test_a_cold_scan_takes_six_round_trips() -> None:
    table, io = cold(lake({"bucket": "-1"}), {"data": FILES})
    assert table.scan().to_arrow().num_rows == 10 * FILES
    assert io.round_trips == 6


def test_a_cold_lookup_by_an_index_takes_seven_round_trips() -> None:
    table, io = cold(lake(INDEXED), {"file index": FILES})
    assert table.scan(filter=col("id") == 55).to_arrow()["v"].to_pylist() == ["v55"]
    assert io.round_trips == 7


def test_schema_and_list_of_schemas_are_asked_for_together() -> None:
    warehouse = lake()
    io = GatheringFileIO(MemoryFileIO(), {})
    io.gather(2, "schema", "list schema")
    assert FileSystemCatalog(io, warehouse).load(NAME).schema.names == ("id", "v")


def test_the_snapshot_is_read_while_its_successor_is_looked_for() -> None:
    table, io = opened(lake(), {})
    io.gather(2, "snapshot", "is there a snapshot")
    assert table.scan().snapshot_id == FILES


def test_the_next_scan_of_a_table_takes_one_round_trip_before_its_files() -> None:
    table, io = opened(lake({"bucket": "-1"}), {})
    table.scan().to_arrow()
    io.calls.clear()
    before = io.round_trips
    io.gather(3, "snapshot", "is there a snapshot", "LATEST")
    io.gather(FILES, "data")
    assert table.scan().to_arrow().num_rows == 10 * FILES
    assert io.round_trips - before == 2
    assert Counter(io.kinds()) == {"snapshot": 1, "is there a snapshot": 1, "LATEST": 1, "data": FILES}


def test_a_lookup_asks_side_by_side_for_the_indexes_of_all_files() -> None:
    table, io = opened(lake(INDEXED), {"file index": FILES})
    found = table.scan(filter=col("id") == 55).to_arrow()
    assert found.to_pydict() == {"id": [55], "v": ["v55"]}
    assert io.kinds().count("data") == 1


# ---------------------------------------------------------------- what was asked once is not believed for ever


def test_a_rolled_back_snapshot_that_was_written_again_is_read_again() -> None:
    warehouse = lake({"bucket": "-1"})
    table, _ = opened(warehouse, {})
    assert table.scan().to_arrow().num_rows == 10 * FILES
    other = Table(FileSystemCatalog(MemoryFileIO(), warehouse).load(NAME))
    other.rollback(snapshot=FILES - 1)
    with other.writer(commit_user="other") as writer:
        writer.write(pa.table({"id": pa.array([1_000], pa.int64()), "v": ["new"]}))
        assert writer.commit(identifier=1) == FILES
    rows = table.scan().to_arrow()
    assert rows.num_rows == 10 * (FILES - 1) + 1
    assert 1_000 in rows["id"].to_pylist()


def test_a_rolled_back_table_has_its_earlier_rows() -> None:
    warehouse = lake({"bucket": "-1"})
    table, _ = opened(warehouse, {})
    table.scan().to_arrow()
    Table(FileSystemCatalog(MemoryFileIO(), warehouse).load(NAME)).rollback(snapshot=4)
    assert table.scan().snapshot_id == 4
    assert table.scan().to_arrow().num_rows == 4 * 10


def test_a_table_that_was_dropped_and_created_again_is_refused() -> None:
    warehouse = lake()
    table, _ = opened(warehouse, {})
    table.scan().to_arrow()
    catalog = FileSystemCatalog(MemoryFileIO(), warehouse)
    columns = table.schema
    catalog.drop_table(NAME)
    catalog.create_table(NAME, columns)
    with pytest.raises(BadInput, match="was dropped since it was opened"):
        table.scan()


def test_a_commit_of_another_writer_is_seen_at_once() -> None:
    warehouse = lake({"bucket": "-1"})
    table, _ = opened(warehouse, {})
    table.scan().to_arrow()
    other = Table(FileSystemCatalog(MemoryFileIO(), warehouse).load(NAME))
    for identifier in (1, 2):
        with other.writer(commit_user="other") as writer:
            writer.write(pa.table({"id": pa.array([identifier], pa.int64()), "v": ["new"]}))
            writer.commit(identifier=identifier)
        assert table.scan().snapshot_id == FILES + identifier
