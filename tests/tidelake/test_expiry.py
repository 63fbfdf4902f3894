"""Writers expire old snapshots after their commits; `Table.expire` does it at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.maintenance.verify import inspect

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
FEW = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"}


def new_table(tmp_path: Path, **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    return catalog.create_table("db.t", COLUMNS, primary_key=["id"], options=FEW | options)


def commit(table: tidelake.Table, count: int) -> None:
    with table.writer() as writer:
        for number in range(count):
            writer.write(pa.table({"id": [number]}, schema=COLUMNS))
            writer.commit()


def test_a_closed_writer_has_expired_snapshots_by_the_options(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    commit(table, 8)
    assert len(table.snapshots()) == 3
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(8))
    report = inspect(table.context, deep=True, orphans_older_than_ms=-1_000_000)
    assert (report.findings, report.orphans and report.orphans.paths) == ((), ())


def test_a_lagging_consumer_protects_unread_snapshots(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"write-only": "true"})
    commit(table, 2)
    follower = table.follower(start=2, consumer="slow")
    assert list(follower.step() or ())
    commit(table, 6)
    assert table.expire().snapshots == 2
    assert [snapshot.id for snapshot in table.snapshots()] == [3, 4, 5, 6, 7, 8]
    assert list(follower.step() or ())


def test_numbers_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.BadInput, match="at least 5 and at most 2"):
        table.expire(retain_min=5, retain_max=2)
