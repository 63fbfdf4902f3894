"""A fault in any call of a conditional delete or update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tests.compaction.lakes import with_io
from tests.crash.points import Points
from tests.crash.troubles import Trouble, every_point, some_points
from tests.support.faulty_file_io import Call, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import sample
from tidelake import col
from tidelake.errors import CommitConflict, CommitOutcomeUnknown, TidelakeError
from tidelake.storage.maintenance.verify import inspect
from tidelake.table import Table

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
VECTORS = {"deletion-vectors.enabled": "true"}
Rows = list[tuple[int, int]]
Change = Callable[[Table], int | None]


def delete(table: Table) -> int | None:
    return table.delete(col("k") >= 3, commit_user="etl", identifier=7)


def update(table: Table) -> int | None:
    return table.update(col("k") >= 3, {"v": pc.field("v") + 100}, commit_user="etl", identifier=7)


@dataclass(frozen=True)
class Case:
    id: str
    change: Change
    after: Rows
    primary_key: list[str] = field(default_factory=list)
    options: Mapping[str, str] = field(default_factory=dict)


BEFORE: Rows = [(k, k) for k in range(5)]
DELETED, UPDATED = BEFORE[:3], [*BEFORE[:3], (3, 103), (4, 104)]
CASES = [
    Case("deleting from an append table", delete, DELETED, options={"bucket": "-1", **VECTORS}),
    Case("updating an append table", update, UPDATED, options={"bucket": "-1", **VECTORS}),
    Case("updating an append table in buckets", update, UPDATED, [], {"bucket": "2", "bucket-key": "k", **VECTORS}),
    Case("deleting by key", delete, DELETED, ["k"], {"bucket": "1"}),
    Case("updating by key, with deletion vectors", update, UPDATED, ["k"], {"bucket": "1", **VECTORS}),
]


def new_table(case: Case) -> Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=case.primary_key, options=case.options)
    for part in (BEFORE[:2], BEFORE[2:]):
        with table.writer() as writer:
            writer.write(pa.table(list(zip(*part, strict=True)), names=SCHEMA.names))
            writer.commit()
    return table


def rows_of(table: Table) -> Rows:
    context = table.context.with_options({"deletion-vectors.merge-on-read": "true"})
    return sorted((row["k"], row["v"]) for row in Table(context).scan().to_arrow().to_pylist())


def calls_of(case: Case) -> list[Call]:
    table = new_table(case)
    io = FaultyFileIO(table.context.io)
    case.change(Table(with_io(table, io)))
    return io.calls


def live_through(case: Case, number: int, trouble: Trouble) -> None:
    """The change with trouble in its number-th call; then it is asked for again."""
    table = new_table(case)
    io = FaultyFileIO(table.context.io)
    trouble.await_in(io, number)
    error: BaseException | None = None
    try:
        case.change(Table(with_io(table, io)))
    except (TidelakeError, FaultyIOError, ProcessDied) as raised:
        error = raised
    where = f"{case.id}: {trouble.id}, call {number}: {io.calls[number : number + 1]}, {error!r}"
    found = rows_of(table)
    assert found in (BEFORE, case.after), where
    assert error is not None or found == case.after, where
    assert not inspect(table.context, deep=True).findings, where

    after = FaultyFileIO(table.context.io)
    trouble.continue_in(after, io)
    for _ in range(3):
        with suppress(CommitConflict, CommitOutcomeUnknown):
            case.change(Table(with_io(table, after)))
            break
    io.land()
    assert rows_of(table) == case.after, where
    own = [s for s in table.snapshots() if s.commit_user == "etl" and s.commit_kind != "COMPACT"]
    assert len(own) == 1, where
    assert not inspect(table.context, deep=True).findings, where


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_after_a_fault_in_any_call_the_rows_are_the_old_or_the_new_ones(case: Case, points: Points) -> None:
    for number, trouble in sample(list(some_points(calls_of(case), CASES.index(case)))):
        live_through(case, number, trouble)
        points.tried(f"changes of rows: {trouble.kind}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_fault_at_every_call_is_survived(case: Case, points: Points) -> None:
    for number, trouble in every_point(calls_of(case)):
        live_through(case, number, trouble)
        points.tried(f"changes of rows: {trouble.kind}")
