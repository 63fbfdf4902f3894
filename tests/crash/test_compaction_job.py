"""A fault in any call of a compaction job: the table is in the old or the new state, and the next job completes the
work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import pytest

import tidelake
from tests.compaction.lakes import COLUMNS, commits, content, file_counts, orphans, write
from tests.crash.points import Points
from tests.crash.table_life import NO_WAIT
from tests.crash.troubles import Trouble, every_point, some_points
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import sample
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.report import CompactionReport
from tidelake.errors import TidelakeError
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind
from tidelake.table import Table


@dataclass(frozen=True)
class JobTableKind:
    """has_rival: another job compacts one of the two partitions, once, just before our snapshot is made."""

    id: str
    key: Sequence[str]
    options: Mapping[str, str]
    request: CompactionRequest = CompactionRequest()  # noqa: RUF009 - frozen
    has_rival: bool = False


COMMITS = 2
LISTED = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}  # shows what was merged twice
KINDS = [
    JobTableKind("append", [], {"bucket": "-1", "compaction.min.file-num": "2"}),
    JobTableKind("primary key, in full", ["p", "k"], {"bucket": "1"}, CompactionRequest(full=True)),
    JobTableKind("sorted along a curve", [], {"bucket": "-1"}, CompactionRequest(order_by=("k", "v"))),
    JobTableKind("texts in a list", ["p", "k"], {"bucket": "1", **LISTED}, CompactionRequest(full=True)),
    JobTableKind("texts in a list, a rival", ["p", "k"], {"bucket": "1", **LISTED}, CompactionRequest(full=True), True),
]


class JobWorld:
    """Two partitions of two files each, in memory."""

    def __init__(self, kind: JobTableKind) -> None:
        self.kind = kind
        self.warehouse = f"memory://{uuid4()}/lake"
        self.store: FileIO = MemoryFileIO()
        catalog = FileSystemCatalog(self.store, self.warehouse)
        catalog.create_database("db")
        options = {"write-only": "true", **kind.options}
        catalog.create_table("db.t", COLUMNS, primary_key=kind.key, partition_by=["p"], options=options)
        self.table = Table(catalog.load("db.t"))
        write(self.table, *commits(COMMITS, partitions="ab"))
        self.rows = content(self.table)
        self.files = file_counts(self.table.context)

        self.rival_is_due = kind.has_rival

    def compact(self, io: FileIO) -> CompactionReport:
        """With one thread, so that calls come in one order."""
        context = FileSystemCatalog(io, self.warehouse).load("db.t")
        return compact_table(context, self.kind.request, threads=1, environment=NO_WAIT)

    def watch(self, io: FaultyFileIO) -> None:
        """The rival may act, before the fault in `io`."""
        fault: Callable[[Call], Fault | None] = io.fault

        def decide(call: Call) -> Fault | None:
            if self.rival_is_due and call.name == "create_if_absent" and call.file_name.startswith("snapshot-"):
                self.rival_is_due = False
                self.table.compact(full=True, where=tidelake.col("p") == "a")
            return fault(call)

        io.fault = decide

    def check(self, where: str) -> bool:
        """Whether the compaction is in the table."""
        assert verify(self.table.context, deep=True) == [], where
        assert content(self.table) == self.rows, where
        new = self.table.snapshots()[COMMITS:]
        assert {snapshot.commit_kind for snapshot in new} <= {CommitKind.COMPACT}, where
        assert bool(new) == (file_counts(self.table.context) != self.files), where
        return bool(new)


def calls_of_a_job(kind: JobTableKind) -> list[Call]:
    world = JobWorld(kind)
    io = FaultyFileIO(world.store)
    world.watch(io)
    report = world.compact(io)
    assert world.check("without trouble")
    assert report.lost == kind.has_rival
    assert orphans(world.table.context) == set()
    return io.calls


def live_through(kind: JobTableKind, number: int, trouble: Trouble) -> None:
    world = JobWorld(kind)
    io = FaultyFileIO(world.store)
    trouble.await_in(io, number)
    world.watch(io)
    with suppress(TidelakeError, FaultyIOError, ProcessDied):
        world.compact(io)
    where = f"{kind.id}: {trouble.id}, call {number}: {io.calls[number : number + 1]}"
    world.check(where)
    after = FaultyFileIO(world.store)
    trouble.continue_in(after, io)
    with suppress(TidelakeError):  # what lands late may take its work away
        world.compact(after)
    io.land()
    world.compact(world.store)
    assert world.check(where)


@pytest.mark.exhaustive(kept=2)
@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_a_fault_in_any_call_leaves_the_old_or_the_new_state(kind: JobTableKind, points: Points) -> None:
    """A third of the points for each kind of table; all of them take minutes."""
    third = KINDS.index(kind) % 3
    for number, trouble in sample(list(some_points(calls_of_a_job(kind)))[third::3]):
        live_through(kind, number, trouble)
        points.tried(f"compaction job: {trouble.id}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_every_fault_at_every_call_is_survived(kind: JobTableKind, points: Points) -> None:
    for number, trouble in every_point(calls_of_a_job(kind)):
        live_through(kind, number, trouble)
        points.tried(f"compaction job: {trouble.id}")
