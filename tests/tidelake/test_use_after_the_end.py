"""Objects that outlive their resource: a closed writer, a fork, a dropped or recreated table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot, SnapshotStore

COLUMNS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False)])
OTHER_COLUMNS: Final = pa.schema([pa.field("name", pa.int64(), nullable=False)])


def make_table(place: Path, columns: pa.Schema = COLUMNS) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(place))
    catalog.create_database("db", if_not_exists=True)
    return catalog.create_table("db.t", columns, primary_key=columns.names)


def recreate(place: Path, columns: pa.Schema = COLUMNS) -> tidelake.Table:
    made_ms = tidelake.open_catalog(str(place)).table("db.t").context.schema.time_ms
    tidelake.open_catalog(str(place)).drop_table("db.t")
    while time.time_ns() // 1_000_000 == made_ms:  # tables are distinguished by the millisecond of their creation
        time.sleep(0.001)
    return make_table(place, columns)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, COLUMNS)


def commit(table: tidelake.Table, identifier: int, *values: int) -> int | None:
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table([list(values)], table.schema))
        return writer.commit(identifier)


def values_of(table: tidelake.Table) -> list[int]:
    return sorted(table.scan().to_arrow()[0].to_pylist())


def files_of(place: Path) -> list[str]:
    return [path.name for path in place.rglob("data-*")]


# ---------------------------------------------------------------- closed


def test_a_closed_writer_refuses_rows_and_commits(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with pytest.warns(ResourceWarning), table.writer(commit_user="etl") as writer:
        writer.write(rows(1, 2))
    acts: list[Callable[[], object]] = [lambda: writer.write(rows(3)), lambda: writer.commit(1)]
    for act in acts:
        with pytest.raises(tidelake.BadInput, match=r"db\.t: this writer is closed, .* Open a new writer"):
            act()
    writer.close()
    assert commit(table, 1, 1, 2) == 1, "the honest replay of identifier 1"
    assert values_of(table) == [1, 2]


# ---------------------------------------------------------------- forked

_FORK: Final = """
import os, sys
import pyarrow as pa
import tidelake

table = tidelake.open_catalog(sys.argv[1]).table("db.t")
rows = lambda *ids: pa.table({"id": pa.array(ids, pa.int64())})
writer = table.writer(commit_user="etl")
writer.write(rows(1))
reading, writing = os.pipe()
if os.fork() == 0:
    reported = []
    for act in (lambda: writer.write(rows(2)), lambda: writer.commit(1), writer.close):
        try:
            reported.append(repr(act()))
        except tidelake.TidelakeError as error:
            reported.append(str(error))
    os.write(writing, "\\n".join(reported).encode())
    os._exit(0)
os.wait()
os.close(writing)
print(os.read(reading, 10_000).decode())
writer.write(rows(3))
print(writer.commit(1))
writer.close()
"""


def test_a_writer_is_refused_in_a_forked_process_and_continues_in_its_own(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    written, committed, closed, of_parent = done.stdout.splitlines()
    for reported in (written, committed):
        assert "db.t: a writer was opened in process" in reported
        assert "forked from it. Nothing was done. Open a new one in each process" in reported
    assert (closed, of_parent) == ("None", "1")
    assert values_of(table) == [1, 3]
    assert verify(table.context, deep=True) == []


# ---------------------------------------------------------------- dropped, or created again

DROPPED: Final = r"db\.t was dropped or renamed since it was opened"
RECREATED: Final = r"db\.t was dropped since it was opened, and another table was created with its name"


@pytest.mark.parametrize("first", [0, 1], ids=["an empty table", "a table that the writer committed to"])
@pytest.mark.parametrize("others", [0, 1, 2], ids=["no commit", "one commit", "two commits"])
def test_a_writer_does_not_commit_to_a_recreated_table(tmp_path: Path, first: int, others: int) -> None:
    """However many snapshots the new one has: as many as the old one had, fewer or more."""
    table = make_table(tmp_path)
    with table.writer(commit_user="etl") as writer:
        for number in range(1, first + 1):
            writer.write(rows(number))
            writer.commit(number)
        writer.write(rows(10))
        new = recreate(tmp_path)
        for number in range(1, others + 1):
            commit(new, number, 20 + number)
        for _ in range(2):  # asking again changes nothing
            with pytest.raises(tidelake.CommitConflict, match=f"{RECREATED}|was replaced|no longer exists"):
                writer.commit(9)
    assert values_of(new) == [20 + number for number in range(1, others + 1)]
    assert len(files_of(tmp_path)) == others, "what it had written is gone"
    assert verify(new.context) == []


def test_a_writer_does_not_commit_to_a_table_that_was_dropped(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with table.writer(commit_user="etl") as writer:
        writer.write(rows(1))
        tidelake.open_catalog(str(tmp_path)).drop_table("db.t")
        with pytest.raises(tidelake.CommitConflict, match=DROPPED):
            writer.commit(1)
    assert tidelake.open_catalog(str(tmp_path)).list_tables("db") == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_table_recreated_during_the_first_commit_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look and the publication: snapshot-1 is free in the new one too."""
    table = make_table(tmp_path)
    publish = SnapshotStore.publish

    def recreate_first(store: SnapshotStore, snapshot: Snapshot) -> bool:
        if snapshot.id == FIRST_SNAPSHOT_ID:
            recreate(tmp_path)
        return publish(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "publish", recreate_first)
    with pytest.raises(tidelake.CommitConflict, match=RECREATED):
        commit(table, 1, 1)
    assert tidelake.open_catalog(str(tmp_path)).table("db.t").snapshots() == []


def _truncate(table: tidelake.Table) -> object:
    return table.truncate()


def _expire(table: tidelake.Table) -> object:
    return SnapshotExpiry(table.context, retention=Retention(1, 1, 0, 50)).run(3)


@pytest.mark.parametrize("act", [_truncate, _expire], ids=["truncate", "expire"])
def test_maintenance_does_not_touch_a_recreated_table(tmp_path: Path, act: Callable[[tidelake.Table], Any]) -> None:
    table = make_table(tmp_path)
    commit(table, 1, 1)
    new = recreate(tmp_path)
    for number in (1, 2, 3):
        commit(new, number, 20 + number)
    with pytest.raises(tidelake.CommitConflict, match=RECREATED):
        act(table)
    assert values_of(new) == [21, 22, 23]
    assert len(new.snapshots()) == 3


def test_a_reader_does_not_read_rows_of_a_recreated_table(tmp_path: Path) -> None:
    """Under the old schema they would be read as other columns, or as nulls."""
    table = make_table(tmp_path)
    commit(table, 1, 1)
    follower = table.follower(start=2)
    assert follower.step() is None
    new = recreate(tmp_path, OTHER_COLUMNS)
    for number in (1, 2):
        commit(new, number, 20 + number)
    for read in (
        table.scan,
        lambda: table.scan(snapshot=1),
        lambda: list(table.changes(start=1)),
        lambda: list(follower.step() or ()),
    ):
        with pytest.raises(tidelake.BadInput, match=rf"{RECREATED}\. Open the table again"):
            read()
    assert values_of(new) == [21, 22]


def test_a_table_whose_schema_changed_is_the_same_table(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with table.writer(commit_user="etl") as writer:
        writer.write(rows(1))
        tidelake.open_catalog(str(tmp_path)).alter_table("db.t", [tidelake.AddColumn("more", "INT")])
        assert writer.commit(1) == 1
    assert values_of(table) == [1]
    assert os.listdir(tmp_path / "db.db/t/snapshot")
