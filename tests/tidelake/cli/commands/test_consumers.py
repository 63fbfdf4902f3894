"""`tidelake table consumers`: lists consumers that hold back expiry, and resets them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake import TableConsumers
from tidelake.errors import BadInput


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    made = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), primary_key=["id"], options={"bucket": "1"})
    with made.writer(commit_user="test") as writer:
        for number in range(1, 5):
            writer.write(pa.table({"id": [number]}))
            writer.commit(identifier=number)
    return made


def read(table: tidelake.Table, consumer: str, end: int) -> list[int]:
    return [batch.snapshot_id for batch in table.follow(start=None, consumer=consumer, end=end)]


def test_a_reader_continues_at_its_reset_position(tmp_path: Path, table: tidelake.Table, call: Call) -> None:
    list(table.follow(start="earliest", consumer="jobs", end=3))
    listed = call("table", "consumers", "list", "db.t", "-w", tmp_path, "--json").lines
    assert listed == [{"name": "jobs", "next_snapshot_id": 4, "behind": 1}]
    assert "jobs" in call("table", "consumers", "list", "db.t", "-w", tmp_path).out
    result = call("table", "consumers", "reset", "db.t", "jobs", "--to", "2", "-w", tmp_path)
    assert (result.code, result.err) == (0, "consumer jobs reads snapshot 2 next\n")
    assert read(table, "jobs", 4) == [2, 3, 4]


def test_a_deleted_consumer_protects_no_snapshot(tmp_path: Path, table: tidelake.Table, call: Call) -> None:
    list(table.follow(start="earliest", consumer="jobs", end=1))
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    assert [snapshot.id for snapshot in table.snapshots()] == [2, 3, 4]
    assert call("table", "consumers", "delete", "db.t", "jobs", "-w", tmp_path).code == 0
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    assert [snapshot.id for snapshot in table.snapshots()] == [4]
    result = call("table", "consumers", "delete", "db.t", "jobs", "-w", tmp_path)
    assert (result.code, "no consumer 'jobs'" in result.err) == (1, True)


@pytest.mark.parametrize("to", [0, 6, 99])
def test_a_missing_snapshot_is_refused(table: tidelake.Table, to: int) -> None:
    consumers = TableConsumers(table)
    with pytest.raises(
        BadInput, match=rf"no snapshot {to}; it has snapshots 1 to 4. .*, or 5 to read only new snapshots"
    ):
        consumers.reset("jobs", to)
    consumers.reset("jobs", 5)
    assert [one.behind for one in consumers.list()] == [0]
