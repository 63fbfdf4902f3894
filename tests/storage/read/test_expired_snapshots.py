"""A snapshot that expires during its read raises SnapshotExpired. Only damage is reported as damage."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tidelake import SnapshotExpired, Table
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.read.snapshot_reader import SnapshotReader

NAME: Final = "db.t"
OPTIONS: Final = {"changelog-producer": "input", "bucket": "2", "write-only": "true", "source.split.target-size": "1 b"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Six snapshots; two buckets, so that a scan opens one file after the other."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    table = catalog.create_table(
        NAME, pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"], options=OPTIONS
    )
    for number in range(1, 7):
        with table.writer(commit_user="etl", overwrite=True) as writer:  # so that no snapshot names the old files
            writer.write(pa.table({"id": range(40), "v": [number] * 40}))
            writer.commit(number)
    return table


def expire(table: Table) -> None:
    assert table.expire(retain_min=1, retain_max=1, retain_ms=0).snapshots == 5
    assert [snapshot.id for snapshot in table.snapshots()] == [6]


def read_a_bit(rows: Iterator[Any]) -> Iterator[Any]:
    next(rows)
    return rows


def a_scan(table: Table) -> Callable[[], object]:
    return table.scan(snapshot=2).to_arrow


def a_planned_scan(table: Table) -> Callable[[], object]:
    scan = table.scan(snapshot=2)
    splits = scan.splits()
    return lambda: scan.to_arrow(splits)


def a_scan_that_is_read_in_part(table: Table) -> Callable[[], object]:
    rows = read_a_bit(table.scan(snapshot=2).to_batches())
    return lambda: list(rows)


def a_split_that_another_process_reads(table: Table) -> Callable[[], object]:
    context, splits = pickle.loads(pickle.dumps((table.context, table.scan(snapshot=2).splits())))
    reader = SnapshotReader(context, ("id", "v"))
    return lambda: list(reader.read(splits))


@pytest.mark.parametrize(
    "begin", [a_scan, a_planned_scan, a_scan_that_is_read_in_part, a_split_that_another_process_reads]
)
def test_a_scan_whose_snapshot_expires_raises_snapshot_expired(
    begin: Callable[[Table], Callable[[], object]], table: Table
) -> None:
    resume = begin(table)
    expire(table)
    with pytest.raises(
        SnapshotExpired, match=r"db\.t: snapshot 2 no longer exists.*its snapshots are 6 to 6 now.*Start again"
    ) as error:
        resume()
    assert (error.value.table, error.value.snapshot_id) == (NAME, 2)
    assert table.scan().to_arrow().num_rows == 40


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda t: t.scan(snapshot=2), id="a scan of it"),
        pytest.param(lambda t: list(t.changes(start=2)), id="its changes"),
        pytest.param(lambda t: list(t.changes(start=2, end=2)), id="its changes alone"),
        pytest.param(lambda t: next(t.follow(start=2)), id="following from it"),
    ],
)
def test_an_expired_snapshot_is_not_bad_input(read: Callable[[Table], object], table: Table) -> None:
    expire(table)
    with pytest.raises(SnapshotExpired, match="snapshot 2 no longer exists"):
        read(table)


def test_changes_that_expire_during_the_read_raise_snapshot_expired(table: Table) -> None:
    changes = read_a_bit(table.changes(start=2))
    expire(table)
    with pytest.raises(SnapshotExpired, match=r"snapshot [23] no longer exists"):
        list(changes)


def test_a_follower_that_falls_behind_raises_and_can_restart(table: Table) -> None:
    follower = table.follower(start=2)
    first = follower.step()
    assert first is not None
    list(first)
    expire(table)
    with pytest.raises(SnapshotExpired, match="snapshot 3 no longer exists"):
        follower.step()
    again = table.follower(start="earliest").step()
    assert again is not None
    assert {change.snapshot_id for change in again} == {6}


def test_a_tagged_snapshot_stays_readable_and_its_damage_is_reported_as_corrupt(table: Table) -> None:
    snapshot = table.snapshots()[1]
    TagStore(table.context.io, table.context.paths).create("kept", snapshot, now=datetime(2026, 1, 1))
    scan = table.scan(tag="kept")
    expire(table)
    assert scan.to_arrow()["v"].to_pylist() == [2] * 40
    remove_a_data_file(table, "kept")
    with pytest.raises(tidelake.CorruptFile, match="no file"):
        table.scan(tag="kept").to_arrow()


def test_a_missing_file_of_an_existing_snapshot_is_corrupt(table: Table) -> None:
    remove_a_data_file(table, None)
    with pytest.raises(tidelake.CorruptFile, match="no file"):
        table.scan().to_arrow()


def remove_a_data_file(table: Table, tag: str | None) -> None:
    split = table.scan(tag=tag).splits()[0]
    (path,) = Path(table.location).rglob(split.files[0].file_name)
    path.unlink()


async def test_an_async_reader_raises_the_same_error(table: Table) -> None:
    scan = await tidelake.aio.Table(table).scan(snapshot=2)
    await asyncio.to_thread(expire, table)
    with pytest.raises(SnapshotExpired):
        await scan.to_arrow()


def test_the_error_pickles() -> None:
    error = pickle.loads(pickle.dumps(SnapshotExpired("db.t", 7, "its snapshots are 8 to 9 now")))
    assert (error.table, error.snapshot_id, error.there) == ("db.t", 7, "its snapshots are 8 to 9 now")
