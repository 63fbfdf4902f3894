"""After any history of a table of any merge engine, files and readers have the rows of row-by-row merging.

Deterministic: compactions beside the writer run when the machine lets them, a process dies in a call of its FileIO.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, ClassVar, Final
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tidelake
from tests.compaction.lakes import orphans
from tests.crash.table_life import NO_WAIT
from tests.stateful.naive_tree import NaiveMerge, NaiveTree, key_of
from tests.stateful.quiet_compaction import Turns, watched
from tests.support import merge_engines
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.merge_engines import ENGINES, Engine, Rows
from tests.support.row_merge import Record
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.errors import CommitConflict, TidelakeError
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter
from tidelake.table import Table

NAME: Final = "db.t"
USER: Final = "etl"
SCHEMA: Final = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        *(field.with_nullable(field.name != "k") for field in merge_engines.SCHEMA if field.name != merge_engines.KIND),
    ]
)
WITH_KIND: Final = SCHEMA.append(pa.field(merge_engines.KIND, pa.int8()))

SOME_ROWS: Final = st.sampled_from([1, 1, 6, 25, 150])
# often; and small runs without the large ones, so that all levels fill
OFTEN_COMPACTED: Final = {
    "num-sorted-run.compaction-trigger": "2",
    "num-levels": "5",
    "file.format": "avro",  # without the large footers that make all files one size
    "compaction.max-size-amplification-percent": "1000000",
}
LAYOUTS: Final[tuple[Mapping[str, str], ...]] = (
    {"bucket": "1"},
    {"bucket": "1", "file.format": "parquet", "compaction.max-size-amplification-percent": "200"},
    {"bucket": "1", "target-file-row-num": "5", "compaction.small-file-ratio": "0"},
    {"bucket": "2", "num-sorted-run.compaction-trigger": "3"},
    {"bucket": "1", "data-file.thin-mode": "true", "num-sorted-run.stop-trigger": "2"},
    {"bucket": "2", "compaction.size-ratio": "50", "manifest.merge-min-count": "3", "num-levels": "6"},
)
# bytes that a writer may hold before rows go to disk: at once, now and then, never; as files of level 0, or aside
BUDGETS: Final = (1, 2_000, 2**20)


class EngineMachine(RuleBasedStateMachine):
    engine: ClassVar[Engine]
    writer: TableWriter
    committer: TableCommit
    uncommitted: list[Record]

    @initialize(
        layout=st.sampled_from(LAYOUTS),
        parted=st.booleans(),
        looks_up=st.booleans(),
        keys=st.sampled_from([12, 100]),
        is_troubled=st.booleans(),
        budget_bytes=st.sampled_from(BUDGETS),
        spills=st.booleans(),
        seed=st.integers(0, 2**32),
    )
    def create(
        self,
        layout: Mapping[str, str],
        parted: bool,
        looks_up: bool,
        keys: int,
        is_troubled: bool,
        budget_bytes: int,
        spills: bool,
        seed: int,
    ) -> None:
        options = {
            "bucket-key": "k",
            "bucket-function.type": "mod",
            "write-buffer-spillable": str(spills).lower(),
            "snapshot.num-retained.min": "1000",
            "force-lookup": str(looks_up).lower(),
            **OFTEN_COMPACTED,
            **layout,
            **self.engine.options,
        }
        self.warehouse = f"memory://{uuid4().hex}/lake"
        catalog = tidelake.open_catalog(self.warehouse)
        catalog.create_database("db")
        self.table: Table = catalog.create_table(
            NAME, SCHEMA, primary_key=["p", "k"], partition_by=["p"] if parted else [], options=options
        )
        self.context = self._context(MemoryFileIO())
        self.model = NaiveTree(self.context, self.engine, looks_up and self.engine.name != "first-row")
        self.buckets = int(options["bucket"])
        self.budget_bytes = budget_bytes
        self.dice = Random(seed)
        self.batches = {p: Rows(self.engine, self.dice, keys) for p in ("x", "y/ü")}
        self.history: list[Record] = []
        self.identifier = 0
        self.is_troubled = is_troubled
        self.spill_directory = tempfile.mkdtemp(prefix="tidelake-stateful-")
        self._open()
        if keys > 12:  # a large run on the highest level, below which smaller ones come and go
            for _ in range(2):
                self.write(300)
            self.commit()
            self.job(full=True)

    # ------------------------------------------------------------ writing

    @rule(count=SOME_ROWS)
    def write(self, count: int) -> None:
        p = self.dice.choice(list(self.batches))
        rows = [{"p": p, **row} for row in self.batches[p].rows(count)]
        for start in range(0, count, 8):  # several batches, so that a small budget writes down several times
            batch = rows[start : start + 8]
            self.uncommitted += self.model.write(batch, self.buckets)
            self.writer.write(pa.Table.from_pylist(batch, WITH_KIND))

    @rule(count=SOME_ROWS, ran=st.booleans())
    def write_and_commit(self, count: int, ran: bool) -> None:
        """ran: what is being compacted has ended by then."""
        self.write(count)
        if ran:
            self.turns.run_all()
        self.commit()

    @rule()
    def commit(self) -> None:
        """A writer whose base snapshot expired must start again: its rows were not committed."""
        self.identifier += 1
        committable = Committable(self.identifier, self.writer.prepare_commit(self.identifier))
        try:
            snapshot_id = self.committer.commit(committable)
        except CommitConflict as conflict:
            if "has expired since" not in str(conflict):
                raise
            self.committer.abort(committable.messages)
            self.reopen()
            return
        assert snapshot_id is not None
        self.writer.committed(snapshot_id)
        self.history += self.uncommitted
        self.uncommitted = []

    @rule()
    def compactions_run(self) -> None:
        self.turns.run_all()

    @rule()
    def reopen(self) -> None:
        self.writer.abort()
        self._open()

    # ------------------------------------------------------------ others

    @rule(full=st.booleans())
    def job(self, full: bool) -> None:
        compact_table(self.context, CompactionRequest(full=full), threads=1, environment=NO_WAIT)

    @rule(full=st.booleans(), count=SOME_ROWS)
    def job_meets_writer(self, full: bool, count: int) -> None:
        """The writer commits rows, and what it compacted, when the job's work is done and not yet published."""
        io = FaultyFileIO(MemoryFileIO())
        todo: list[Callable[[], None]] = [lambda: self.write_and_commit(count, True)]

        def first_the_writer(call: Call) -> None:
            if call.name == "create_if_absent" and todo:
                todo.pop()()

        io.fault = first_the_writer
        compact_table(self._context(io), CompactionRequest(full=full), threads=1, environment=NO_WAIT)

    @rule(kept=st.integers(1, 3))
    def expire(self, kept: int) -> None:
        self.model.look()
        self.table.expire(retain_min=1, retain_max=kept, retain_ms=0)

    # ------------------------------------------------------------ trouble

    @precondition(lambda self: self.is_troubled)
    @rule(number=st.integers(0, 60), done=st.booleans(), count=SOME_ROWS, dies=st.booleans())
    def trouble_in_a_commit(self, number: int, done: bool, count: int, dies: bool) -> None:
        """A call fails, or the process dies in it. done: after the call did its work. Another process continues."""
        last = self.identifier
        with self._trouble_in(self.io, number, done, dies):
            self.write_and_commit(count, True)
        newest = TableCommit(self.context, USER).latest_of_user()
        if self.uncommitted and newest is not None and newest.commit_identifier > last:
            self.history += self.uncommitted
            self.uncommitted = []
        with suppress(ProcessDied):
            self.writer.abort()
        self._open()

    @precondition(lambda self: self.is_troubled)
    @rule(number=st.integers(0, 60), done=st.booleans(), full=st.booleans(), dies=st.booleans())
    def trouble_in_a_job(self, number: int, done: bool, full: bool, dies: bool) -> None:
        io = FaultyFileIO(MemoryFileIO())
        with self._trouble_in(io, number, done, dies):
            compact_table(self._context(io), CompactionRequest(full=full), threads=1, environment=NO_WAIT)

    @contextmanager
    def _trouble_in(self, io: FaultyFileIO, number: int, done: bool, dies: bool) -> Iterator[None]:
        """Errors are fine once it came."""
        last = len(io.calls) + number
        (io.crash_call if dies else io.fail_call)(number, Fault.AFTER if done else Fault.BEFORE)
        try:
            yield
        except (ProcessDied, FaultyIOError, TidelakeError):
            if len(io.calls) <= last:
                raise
        io.fault = lambda _: None

    # ------------------------------------------------------------ what must hold

    @invariant()
    @precondition(lambda self: hasattr(self, "model"))
    def readers_see_what_was_committed(self) -> None:
        before = self.model.last_snapshot
        self.model.look()
        if self.model.last_snapshot == before:
            return
        found = reported(self.table.scan().to_arrow().to_pylist())
        assert found == reported(self.model.rows())
        assert verify(self.context) == []
        if self.engine.is_associative:
            history = NaiveMerge(self.engine)(self.history).values()
            expected = reported(record.row for record in history if not record.retracts)
            assert found == expected or (self.model.hides_rows and set(found) <= set(expected))

    def teardown(self) -> None:
        if not hasattr(self, "writer"):
            return
        self.writer.abort()
        shutil.rmtree(self.spill_directory)
        assert verify(self.context, deep=True) == []
        if not self.is_troubled:
            assert orphans(self.context) == set()

    # ------------------------------------------------------------ processes

    def _open(self) -> None:
        self.io = FaultyFileIO(MemoryFileIO())
        self.turns = Turns()
        self.model.pending.clear()
        self.uncommitted = []
        for p, batches in self.batches.items():
            batches.start_over(record.row for record in self._still_added(p))
        context = self._context(self.io)
        self.writer = TableWriter(
            context,
            memory=MemoryBudget(self.budget_bytes),
            spill_directory=self.spill_directory,
            compactor_factory=watched(self.model, self.turns),
        )
        self.committer = TableCommit(
            context, USER, environment=NO_WAIT, on_lost_compaction=self.writer.restart_compaction
        )

    def _still_added(self, p: str) -> Iterator[Record]:
        """Rows of a partition that were committed, and not taken back."""
        added: dict[str, list[Record]] = {}
        for record in self.history:
            same = added.setdefault(repr((key_of(record), record.row)), [])
            if not record.retracts:
                same.append(record)
            elif same:
                same.pop()
        return (record for same in added.values() for record in same if record.row["p"] == p)

    def _context(self, io: FileIO) -> TableContext:
        return FileSystemCatalog(io, self.warehouse).load(NAME)


def reported(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


# ---------------------------------------------------------------- a machine an engine

MACHINES: Final = {
    engine.about: type(f"Engine{number}Machine", (EngineMachine,), {"engine": engine})
    for number, engine in enumerate(ENGINES)
}
_PATIENT: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
# A failure is shown as it was found: to make it small takes minutes, which the long run has.
_SHORT: Final = settings(_PATIENT, max_examples=3, stateful_step_count=15, phases=[Phase.reuse, Phase.generate])
_LONG: Final = settings(_PATIENT, max_examples=40, stateful_step_count=40)


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets are flushed one after the other, so that calls of the FileIO come in one order."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("about", MACHINES)
def test_files_and_readers_agree_with_merging_row_by_row(about: str) -> None:
    run_state_machine_as_test(MACHINES[about], settings=_SHORT)


def test_a_reinserted_row_is_newer_than_a_delete_dropped_by_an_earlier_compaction_of_its_commit() -> None:
    """Its group is older than the delete's: read alone, it would be another row."""
    machine = MACHINES["a group removes"]()
    machine.create(
        seed=856454877,
        is_troubled=False,
        parted=False,
        layout={"bucket": "1", "target-file-row-num": "5", "compaction.small-file-ratio": "0"},
        keys=12,
        budget_bytes=2000,
        spills=False,
        looks_up=True,
    )
    machine.compactions_run()
    machine.write_and_commit(count=150, ran=True)
    machine.write(count=25)
    machine.reopen()
    machine.job_meets_writer(count=25, full=True)
    machine.commit()
    machine.write_and_commit(count=150, ran=False)
    machine.readers_see_what_was_committed()
    machine.teardown()


@pytest.mark.interop
def test_two_compactions_of_one_commit_to_two_levels_equal_one_compaction() -> None:
    machine = MACHINES["groups with functions, one removes"]()
    machine.create(
        seed=122,
        is_troubled=True,
        parted=True,
        layout={"bucket": "1", "data-file.thin-mode": "true", "num-sorted-run.stop-trigger": "2"},
        keys=100,
        budget_bytes=1,
        spills=False,
        looks_up=True,
    )
    machine.write(count=1)
    machine.write_and_commit(count=150, ran=False)
    machine.readers_see_what_was_committed()
    machine.teardown()


@pytest.mark.interop
def test_two_compactions_of_one_commit_may_both_keep_a_delete_of_one_key() -> None:
    machine = MACHINES["groups with functions, one removes"]()
    machine.create(
        seed=34238,
        is_troubled=False,
        parted=True,
        layout={"bucket": "1"},
        keys=12,
        budget_bytes=1,
        spills=False,
        looks_up=False,
    )
    steps = "25 6c 150c 6 150 1c 1c 25 1c 1 6 25 6 150c"  # c: the writer's compactions have ended by the commit
    for step in steps.split():
        count, ran = int(step.rstrip("c")), step.endswith("c")
        machine.write_and_commit(count=count, ran=ran)
        machine.readers_see_what_was_committed()
    machine.teardown()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("about", MACHINES)
def test_files_and_readers_agree_with_merging_row_by_row_for_thousands_of_steps(about: str) -> None:
    run_state_machine_as_test(MACHINES[about], settings=_LONG)
