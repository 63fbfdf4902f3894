"""Flushes of several buckets go out side by side if the files are far away."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.gathering_file_io import GatheringFileIO
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

BUCKETS = 3  # fewer than are flushed together as small ones


@pytest.mark.parametrize("primary_key", [["id"], []], ids=["primary key", "append"])
def test_the_files_of_all_buckets_are_put_together(primary_key: list[str]) -> None:
    warehouse = f"memory://{uuid4().hex}"
    io = GatheringFileIO(MemoryFileIO(), {})
    catalog = FileSystemCatalog(io, warehouse)
    catalog.create_database("db")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    options = {"bucket": str(BUCKETS), "bucket-key": "id", "write-only": "true"}
    catalog.create_table("db.t", columns, primary_key=primary_key, options=options)
    table = Table(catalog.load("db.t"))
    io.gather(BUCKETS, "data")  # none of them is answered before all of them wait
    with table.writer(commit_user="test") as writer:
        writer.write(pa.table({"id": pa.array(range(90), pa.int64()), "v": ["x"] * 90}, columns))
        writer.commit(identifier=1)
    io.gather(1, "data")
    assert table.scan().to_arrow().num_rows == 90
