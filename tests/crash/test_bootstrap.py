"""A fault in any call of a bootstrap: the table has all of its rows, or none, and no other files are named."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.lakes import with_io
from tests.crash.points import Points
from tests.crash.troubles import Trouble, every_point, some_points
from tests.support.faulty_file_io import Call, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import sample
from tidelake.errors import BadInput, CommitConflict, CommitOutcomeUnknown, TidelakeError
from tidelake.storage.maintenance.verify import inspect
from tidelake.table import Table

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = [(k % 10, k) for k in range(40)]
AFTER = [(k, k + 30) for k in range(10)]
KINDS = {
    "no changelog": {"bucket": "2"},
    "with a changelog": {"bucket": "2", "changelog-producer": "lookup"},
    "dynamic buckets": {"bucket": "-1"},
}


def new_table(kind: str) -> Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    return catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=KINDS[kind])


def bootstrap(table: Table, io: FaultyFileIO) -> None:
    Table(with_io(table, io)).bootstrap(pa.table(list(zip(*ROWS, strict=True)), schema=SCHEMA))


def rows_of(table: Table) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist())


def calls_of(kind: str) -> list[Call]:
    table = new_table(kind)
    io = FaultyFileIO(table.context.io)
    bootstrap(table, io)
    return io.calls


def live_through(kind: str, number: int, trouble: Trouble) -> None:
    """A bootstrap with trouble in its number-th call; then it is tried again."""
    table = new_table(kind)
    io = FaultyFileIO(table.context.io)
    trouble.await_in(io, number)
    error: BaseException | None = None
    try:
        bootstrap(table, io)
    except (TidelakeError, FaultyIOError, ProcessDied) as raised:
        error = raised
    where = f"{kind}: {trouble.id}, call {number}: {io.calls[number : number + 1]}, {error!r}"
    found = rows_of(table)
    assert found in ([], AFTER), where
    assert error is not None or found == AFTER, where
    assert not inspect(table.context, deep=True).findings, where

    after = FaultyFileIO(table.context.io)
    trouble.continue_in(after, io)
    for _ in range(3):
        with suppress(CommitConflict, CommitOutcomeUnknown):
            if not table.snapshots() and not trouble.lands_after_death:
                bootstrap(table, after)
            elif table.snapshots():  # the first one was published
                with pytest.raises(BadInput, match="is not empty"):
                    bootstrap(table, after)
            else:
                with suppress(BadInput):  # or is published now, by a request of the dead process
                    bootstrap(table, after)
            break
    io.land()
    assert rows_of(table) == AFTER, where
    assert len(table.snapshots()) == 1, where
    if kind == "with a changelog":
        told = [row for batch in table.changes(start=1) for row in batch.rows.to_pylist()]
        assert sorted((row["k"], row["v"], row["_VALUE_KIND"]) for row in told) == [(*row, 0) for row in AFTER], where
    assert not inspect(table.context, deep=True).findings, where


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_fault_in_any_call_the_table_has_all_rows_or_none(kind: str, points: Points) -> None:
    for number, trouble in sample(list(some_points(calls_of(kind), list(KINDS).index(kind)))):
        live_through(kind, number, trouble)
        points.tried(f"bootstrap: {trouble.kind}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_at_every_call_is_survived(kind: str, points: Points) -> None:
    for number, trouble in every_point(calls_of(kind)):
        live_through(kind, number, trouble)
        points.tried(f"bootstrap: {trouble.kind}")
