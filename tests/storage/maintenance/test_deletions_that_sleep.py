"""A process that deletes files sleeps between two of its calls, as a suspended machine does. Meanwhile others commit,
and all snapshots that it knows of expire. When it goes on, it deletes nothing that a newer snapshot, a tag or a branch
needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.catalog import Catalog
from tidelake.errors import CorruptFile
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.orphans import clean_orphans
from tidelake.storage.maintenance.verify import inspect
from tidelake.table import Table

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
OPTIONS = {
    "bucket": "1",
    "write-only": "true",
    "changelog-producer": "input",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
}
LATER_MS = 4_000_000_000_000  # every file is old by then

JOBS: dict[str, Callable[[Table], object]] = {
    "delete a tag": lambda table: table.delete_tag("tag2"),
    "delete a branch": lambda table: table.delete_branch("side"),
    "expire snapshots": lambda table: table.expire(),
    "clean orphans": lambda table: clean_orphans(table.context, now_ms=LATER_MS),
}


def a_table() -> tuple[Table, Table, FaultyFileIO]:
    """The table as the job sees it, and as all others do. It has snapshots, tags and a branch of a tag."""
    memory = MemoryFileIO()
    faulty = FaultyFileIO(memory)
    warehouse = f"memory://{uuid4()}/lake"
    others = Catalog(FileSystemCatalog(memory, warehouse))
    others.create_database("d")
    table = others.create_table("d.t", COLUMNS, primary_key=["k"], options=OPTIONS)
    for number in range(4):
        write(table, number)
        if number in (0, 2):
            table.create_tag(f"tag{number}")
    table.create_branch("side", tag="tag0")
    write(table, 4)
    table.expire()
    return Catalog(FileSystemCatalog(faulty, warehouse)).table("d.t"), table, faulty


def write(table: Table, key: int) -> None:
    table.upsert([{"k": key, "v": key}, {"k": 1000, "v": key}])


SLOW = ("clean orphans", "delete a tag")  # they make many calls


@pytest.mark.parametrize("job", [pytest.param(job, marks=pytest.mark.interop if job in SLOW else ()) for job in JOBS])
def test_a_deletion_that_sleeps_deletes_nothing_that_is_needed(job: str) -> None:
    before_call = 0
    while sleeps(job, before_call):
        before_call += 1
    assert before_call > 1


def sleeps(job: str, before_call: int) -> bool:
    """Let the job sleep before one of its calls. Returns whether it made so many."""
    seen, table, io = a_table()
    first, slept = len(io.calls), []

    def go_on_without_it(call: Call) -> Fault | None:
        if len(io.calls) - 1 == first + before_call:
            slept.append(call)
            for number in (10, 11, 12):
                write(table, number)
            table.expire()
        return None

    io.fault = go_on_without_it
    JOBS[job](seen)
    assert inspect(table.context).problems == [], slept
    late = [10, 11, 12] if slept else []
    assert table.scan().to_arrow()["k"].to_pylist() == [0, 1, 2, 3, 4, *late, 1000], slept
    assert table.scan(tag="tag0").to_arrow()["k"].to_pylist() == [0, 1000], slept
    return bool(slept)


@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_tag_that_was_created_while_its_snapshot_expired_can_be_deleted(branch: str) -> None:
    """Its creator was killed before it saw that. Until then expiry can't know what the tag keeps."""
    fresh, table, io = a_table()
    name = "d.t" if branch == "main" else "d.t$branch_side"
    paths = table.context.paths.for_branch(branch)
    late = table.snapshots()[0]
    kept = io.inner.read(table.context.paths.snapshot(late.id))
    write(table, 7)
    write(table, 8)
    table.expire()
    io.inner.write(paths.tag("late"), kept)
    write(table, 9)
    with pytest.raises(CorruptFile, match=f"`tidelake table tag delete '?{re.escape(name)}'? late`"):
        fresh.expire()
    Catalog(FileSystemCatalog(io, table.location.removesuffix("/d.db/t"))).table(name).delete_tag("late")
    fresh.expire()
    assert inspect(table.context).problems == []


def test_a_branch_that_is_being_created_while_its_snapshot_expires_stops_no_expiry() -> None:
    """Its creator sleeps: it has copied the snapshot, and not looked yet whether the files are still there."""
    fresh, table, io = a_table()
    late = table.snapshots()[0]
    kept = io.inner.read(table.context.paths.snapshot(late.id))
    write(table, 7)
    write(table, 8)
    table.expire()
    io.inner.write(table.context.paths.for_branch("late").snapshot(late.id), kept)
    write(table, 9)
    fresh.expire()
    assert fresh.snapshots()[0].id > late.id + 2
    assert inspect(table.context).problems == []
