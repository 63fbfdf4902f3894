"""Expiry on a full disk: what it deletes first to write the hint, and the state after a crash."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, ProcessDied
from tests.support.levels import sample
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry
from tidelake.storage.model.table import TableContext

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
_COMMITS = 4


def make_table(place: Path, options: Mapping[str, str] | None = None) -> tidelake.Table:
    """The same row over and over, compacted: each snapshot needs files that the next one doesn't."""
    catalog = tidelake.open_catalog(str(place))
    catalog.create_database("db")
    full = {"full-compaction.delta-commits": "1", **(options or {})}
    table = catalog.create_table("db.t", COLUMNS, primary_key=["id"], options=full)
    with table.writer(commit_user="etl") as writer:
        for number in range(1, _COMMITS + 1):
            writer.write(pa.table({"id": [1]}, COLUMNS))
            writer.commit(number)
    return table


class FullDisk(FaultyFileIO):
    """Each file that is deleted makes room for one; files in `pinned` free nothing. dies_at: the number of a call."""

    def __init__(self, table: TableContext, *, pinned: tuple[str, ...] = (), dies_at: int | None = None) -> None:
        super().__init__(table.io, self._fault)
        self._pinned = pinned
        self._dies_at = dies_at
        self._room = 0

    def _fault(self, call: Call) -> Fault | None:
        if len(self.calls) - 1 == self._dies_at:
            self.is_dead = True
            return Fault.BEFORE
        if call.name == "delete" and self.inner.exists(call.path):
            self._room += call.file_name not in self._pinned
        if call.name in ("write", "create_if_absent", "open_output"):
            if not self._room:
                raise OSError(errno.ENOSPC, "No space left on device", call.path)
            self._room -= 1
        return None


def expire(table: tidelake.Table, io: FullDisk) -> None:
    context = replace(table.context, io=io)
    expiry = SnapshotExpiry(context, retention=Retention(1, 1, 0, 50))
    while expiry.run() is not None:
        pass


def check_readable(table: tidelake.Table) -> None:
    """From the earliest on: a reader that starts there never meets a half-expired snapshot."""
    store = table.context.snapshots
    earliest, latest = store.earliest_id(), store.latest_id()
    assert earliest is not None
    assert latest == 2 * _COMMITS
    for snapshot_id in range(earliest, latest + 1):
        assert table.scan(snapshot=snapshot_id).to_arrow().num_rows == 1


@pytest.mark.parametrize("pinned", [(), ("LATEST",)], ids=["the other hint makes room", "a snapshot file does"])
def test_expiry_on_a_full_disk_completes_and_the_table_stays_readable(tmp_path: Path, pinned: tuple[str, ...]) -> None:
    table = make_table(tmp_path)
    expire(table, FullDisk(table.context, pinned=pinned))
    assert [snapshot.id for snapshot in table.snapshots()] == [2 * _COMMITS]
    hints = {path.name: path.read_text() for path in tmp_path.rglob("[EL]A*EST")}
    assert hints == {"EARLIEST": str(2 * _COMMITS), "LATEST": str(2 * _COMMITS)}
    check_readable(table)


@pytest.mark.sampled
@pytest.mark.parametrize("pinned", [(), ("LATEST",)], ids=["the other hint makes room", "a snapshot file does"])
def test_a_crash_of_expiry_on_a_full_disk_leaves_every_snapshot_from_the_earliest_complete(
    tmp_path: Path, pinned: tuple[str, ...]
) -> None:
    """At each of its calls; the next round, with as little room, does the rest."""
    make_table(tmp_path / "made")

    def copied(name: str) -> tidelake.Table:
        shutil.copytree(tmp_path / "made", tmp_path / name)
        return tidelake.open_catalog(str(tmp_path / name)).table("db.t")

    whole = copied("whole")
    io = FullDisk(whole.context, pinned=pinned)
    expire(whole, io)
    for number in sample(range(0, len(io.calls), 2)):
        table = copied(str(number))
        with suppress(ProcessDied):
            expire(table, FullDisk(table.context, pinned=pinned, dies_at=number))
        check_readable(table)
        expire(table, FullDisk(table.context, pinned=pinned))
        assert [snapshot.id for snapshot in table.snapshots()] == [2 * _COMMITS]
        check_readable(table)


def test_changelogs_to_be_decoupled_are_not_dropped_on_a_full_disk(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"changelog-producer": "input", "changelog.time-retained": "100 d"})
    with pytest.raises(OSError, match="No space left"):
        expire(table, FullDisk(table.context, pinned=("LATEST",)))
    assert len(table.snapshots()) == 2 * _COMMITS
    table.context.snapshots.hint_latest(2 * _COMMITS)
    expire(table, FullDisk(table.context))
    assert [snapshot.id for snapshot in table.snapshots()] == [2 * _COMMITS]
    assert len(list(tmp_path.rglob("changelog-[0-9]"))) == 2 * _COMMITS - 1
