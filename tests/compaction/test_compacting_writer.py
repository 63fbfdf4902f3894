"""When a writer compacts, when it waits, and what happens to the result of a useless compaction."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.invariants import check_tree
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tests.support.levels import sample
from tidelake.compaction.cancellation import CompactionCancelled, IsCancelled
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.scheduler import CompactionScheduler, ScheduledTask
from tidelake.errors import CorruptFile
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.manifests.snapshot_files import delta_entries
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.compactor import Compactor, RestoredBucket
from tidelake.storage.write.memory_budget import MemoryBudget, MemoryOwner
from tidelake.storage.write.table_writer import TableWriter

T = TypeVar("T")

SCHEMA: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
KEYS: Final = 20


class GatedScheduler(CompactionScheduler):
    """Compactions begin when the test opens the gate, and can be stopped before."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate = threading.Event()
        self.submitted = threading.Event()

    def submit(self, table: str, work: Callable[[IsCancelled], T], nbytes: int = 0) -> ScheduledTask[T]:
        def gated(is_cancelled: IsCancelled) -> T:
            while not self.gate.wait(0.01):
                if is_cancelled():
                    raise CompactionCancelled
            return work(is_cancelled)

        task = super().submit(table, gated)
        self.submitted.set()
        return task


class CountingBudget(MemoryBudget):
    """A memory budget that knows how many buckets are open."""

    def __init__(self) -> None:
        super().__init__(1 << 28)
        self.owners = set[MemoryOwner]()

    def register(self, owner: MemoryOwner) -> None:
        super().register(owner)
        self.owners.add(owner)

    def unregister(self, owner: MemoryOwner) -> None:
        super().unregister(owner)
        self.owners.discard(owner)


class Streaming:
    """A writer of a table with one bucket, and its commits."""

    def __init__(self, context: TableContext, scheduler: CompactionScheduler | None = None) -> None:
        self.context = context
        self.scheduler = scheduler or CompactionScheduler(1)
        self.memory = CountingBudget()
        factory = compact_manager_factory(self.scheduler)
        self.writer = TableWriter(context, memory=self.memory, compactor_factory=factory)
        self.committer = TableCommit(context, "etl", on_lost_compaction=self.writer.restart_compaction)
        self.identifier = 0

    def write(self, identifier: int) -> None:
        """Every key again."""
        self.writer.write(rows_of(identifier))

    def commit(self, identifier: int, *, between: Callable[[], object] = lambda: None) -> int | None:
        """between: happens when everything is prepared and nothing published."""
        messages = self.writer.prepare_commit(identifier)
        between()
        snapshot_id = self.committer.commit(Committable(identifier, messages))
        if snapshot_id is None:
            self.writer.dropped()
        else:
            self.writer.committed(snapshot_id)
        return snapshot_id

    def put(self, first: int, last: int) -> None:
        for identifier in range(first, last + 1):
            self.write(identifier)
            self.commit(identifier)


def rows_of(identifier: int) -> pa.Table:
    return pa.table({"k": range(KEYS), "v": [f"{identifier}"] * KEYS}, SCHEMA)


def make_table(warehouse: Path, options: Mapping[str, str] | None = None) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("db")
    return catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", **(options or {})})


def kinds(table: tidelake.Table) -> list[str]:
    """Of all snapshots, with their identifiers."""
    short = {CommitKind.APPEND: "", CommitKind.COMPACT: "c"}
    return [
        f"{'*' if s.commit_identifier == BATCH_COMMIT_IDENTIFIER else s.commit_identifier}{short[s.commit_kind]}"
        for s in table.snapshots()
    ]


def check_rows(table: tidelake.Table, identifier: int) -> None:
    assert table.scan().to_arrow().sort_by("k").to_pydict() == rows_of(identifier).to_pydict()
    check_tree(table.context)


def levels(table: tidelake.Table) -> list[int]:
    return [run.level for tree in check_tree(table.context).values() for run in tree.runs]


def stored(table: tidelake.Table) -> set[str]:
    return {path.name for path in Path(table.location).glob("bucket-*/*")}


def in_snapshots(table: tidelake.Table) -> set[str]:
    return {entry.file.file_name for s in table.snapshots() for entry in delta_entries(table.context, s)}


# ---------------------------------------------------------------- when


def test_a_result_joins_the_commit_after_its_compaction(tmp_path: Path) -> None:
    table, scheduler = make_table(tmp_path), GatedScheduler()
    streaming = Streaming(table.context, scheduler)
    streaming.put(1, 6)
    assert kinds(table) == ["1", "2", "3", "4", "5", "6"]
    scheduler.gate.set()
    scheduler.submit("other", lambda _: None).result()  # so the one before has ended
    streaming.put(7, 7)
    assert kinds(table)[6:] == ["7", "7c"]
    assert table.snapshots()[-1].properties == {"tidelake.compaction.reason": "size amplification"}
    assert levels(table) == [0, 0, 5]
    check_rows(table, 7)
    assert stored(table) == in_snapshots(table)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"write-only": "true"}, ["1", "2", "3", "4"], id="write-only leaves it to a job"),
        pytest.param(
            {"commit.force-compact": "true", "num-sorted-run.compaction-trigger": "2"},
            ["1", "2", "2c", "3", "3c", "4", "4c"],
            id="forced: a commit waits for what it made due",
        ),
        pytest.param(
            {"full-compaction.delta-commits": "2"}, ["1", "2", "2c", "3", "4", "4c"], id="in full, every other commit"
        ),
        pytest.param(
            {"full-compaction.delta-commits": "1"},
            ["1", "1c", "2", "2c", "3", "3c", "4", "4c"],
            id="in full at every commit",
        ),
        pytest.param(
            {"force-lookup": "true"}, ["1", "1c", "2", "2c", "3", "3c", "4", "4c"], id="looked up: level 0 goes up"
        ),
        pytest.param({"force-lookup": "true", "write-only": "true"}, ["1", "2", "3", "4"], id="write-only says more"),
    ],
)
def test_options_decide_which_commits_compact(tmp_path: Path, options: dict[str, str], expected: list[str]) -> None:
    table = make_table(tmp_path, options)
    Streaming(table.context).put(1, 4)
    assert kinds(table) == expected
    check_rows(table, 4)
    assert stored(table) == in_snapshots(table)


def test_a_one_off_commit_waits_for_the_compaction_it_triggered(tmp_path: Path) -> None:
    """No later one of this writer may come that could take the result."""
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "2"})
    for number in range(3):
        with table.writer() as writer:
            writer.write(rows_of(number))
            writer.commit()
    assert kinds(table) == ["*", "*", "*c", "*", "*c"]
    check_rows(table, 2)


def test_a_full_compaction_includes_buckets_of_earlier_writers(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"full-compaction.delta-commits": "3"})
    Streaming(table.context).put(1, 2)
    again = Streaming(table.context)
    again.commit(3)
    assert kinds(table) == ["1", "2", "3", "3c"]
    assert levels(table) == [5]
    check_rows(table, 2)


def test_a_full_compaction_starts_after_the_running_one(tmp_path: Path) -> None:
    table, scheduler = make_table(tmp_path, {"full-compaction.delta-commits": "7"}), GatedScheduler()
    streaming = Streaming(table.context, scheduler)
    streaming.put(1, 6)
    opener = threading.Timer(0, scheduler.gate.set)
    opener.start()
    streaming.put(7, 7)
    opener.join()
    assert kinds(table) == ["1", "2", "3", "4", "5", "6", "7", "7c"]
    assert levels(table) == [5]
    check_rows(table, 7)
    assert stored(table) == in_snapshots(table)


def test_writing_waits_when_too_many_runs_accumulate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "3"}
    table, scheduler = make_table(tmp_path, options), GatedScheduler()
    streaming = Streaming(table.context, scheduler)
    streaming.put(1, 4)  # four runs are one too many: the next flush must wait
    order = []

    def continue_writing() -> None:
        streaming.put(5, 5)
        order.append("written")

    writing = threading.Thread(target=continue_writing)
    with caplog.at_level(logging.INFO):
        writing.start()
        order.append("compacted")
        scheduler.gate.set()
        writing.join()
    assert order == ["compacted", "written"]
    (line,) = [record.getMessage() for record in caplog.records if "waited for compaction" in record.getMessage()]
    assert "num-sorted-run.stop-trigger" in line
    check_rows(table, 5)


def test_a_bucket_is_closed_when_its_compaction_is_committed(tmp_path: Path) -> None:
    table, scheduler = make_table(tmp_path), GatedScheduler()
    streaming = Streaming(table.context, scheduler)
    streaming.put(1, 5)
    streaming.commit(6)
    assert len(streaming.memory.owners) == 1
    scheduler.gate.set()
    scheduler.submit("other", lambda _: None).result()
    streaming.commit(7)
    streaming.commit(8)
    assert not streaming.memory.owners
    streaming.put(9, 9)
    assert kinds(table) == ["1", "2", "3", "4", "5", "6", "7", "7c", "8", "9"]
    check_rows(table, 9)


def test_writers_and_jobs_log_compactions_in_the_same_form(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "3", "commit.force-compact": "true"})
    with caplog.at_level(logging.INFO):
        Streaming(table.context).put(1, 4)
        table.compact(full=True)
    records = [record for record in caplog.records if record.getMessage().startswith("compacted ")]
    by_writer, by_job = (getattr(record, FIELDS) for record in records)
    assert (by_writer["table"], by_writer["files_before"], by_writer["files_after"]) == ("db.t", 3, 1)
    assert (by_job["table"], by_job["files_before"], by_job["files_after"]) == ("db.t", 2, 1)
    assert by_job.keys() == by_writer.keys() | {"snapshot"}


# ---------------------------------------------------------------- what is thrown away


def test_a_compaction_that_lost_a_race_is_discarded_and_writing_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "3", "commit.force-compact": "true"})
    streaming = Streaming(table.context)
    streaming.put(1, 2)
    streaming.write(3)
    streaming.commit(3, between=lambda: table.compact(full=True))  # another process compacts the same files
    assert kinds(table) == ["1", "2", "*c", "3"]
    check_rows(table, 3)
    assert stored(table) == in_snapshots(table)
    assert "compaction discarded" in caplog.text
    streaming.put(4, 6)
    assert kinds(table)[4:] == ["4", "4c", "5", "6", "6c"]
    check_rows(table, 6)


def test_files_compacted_by_others_and_expired_cause_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "3", "commit.force-compact": "true"})
    streaming = Streaming(table.context)
    streaming.put(1, 2)
    table.compact(full=True)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    streaming.put(3, 3)  # its compaction would read the files of 1 and 2
    assert "another job compacted the same files" in caplog.text
    streaming.put(4, 6)
    assert kinds(table) == ["*c", "3", "4", "4c", "5", "6", "6c"]
    check_rows(table, 6)
    assert stored(table) <= in_snapshots(table)


def test_a_file_missing_without_a_known_reason_fails_the_writer(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "2", "commit.force-compact": "true"})
    streaming = Streaming(table.context)
    streaming.put(1, 1)
    for name in stored(table):
        (Path(table.location) / "bucket-0" / name).unlink()
    streaming.write(2)
    with pytest.raises(CorruptFile, match="found no file"):
        streaming.commit(2)


def test_a_replayed_commit_drops_its_files_and_compaction_continues(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "2", "commit.force-compact": "true"})
    Streaming(table.context).put(1, 3)
    again = Streaming(table.context)
    again.write(3)
    assert again.commit(3) is None
    again.put(4, 6)
    assert kinds(table) == ["1", "2", "2c", "3", "3c", "4", "4c", "5", "5c", "6", "6c"]
    check_rows(table, 6)


@pytest.mark.parametrize("state", ["waits", "has ended", "is taken"])
def test_aborting_deletes_all_files_of_a_compaction(tmp_path: Path, state: str) -> None:
    table, scheduler = make_table(tmp_path), GatedScheduler()
    streaming = Streaming(table.context, scheduler)
    streaming.put(1, 5)
    if state != "waits":
        scheduler.gate.set()
        scheduler.submit("other", lambda _: None).result()
    if state == "is taken":
        streaming.write(6)
        streaming.memory.limit_bytes = 1
        streaming.memory.rebalance()
        streaming.write(7)
    streaming.writer.abort()
    assert stored(table) == in_snapshots(table)
    check_rows(table, 5)


def test_cancelling_compactions_releases_a_commit_that_waits_for_one(tmp_path: Path) -> None:
    table, scheduler = make_table(tmp_path, {"commit.force-compact": "true"}), GatedScheduler()
    streaming = Streaming(table.context, scheduler)
    streaming.put(1, 4)
    committing = threading.Thread(target=lambda: streaming.put(5, 5))
    committing.start()
    assert scheduler.submitted.wait(30)  # and never begun
    streaming.writer.cancel_compactions()
    committing.join()
    streaming.put(6, 6)
    assert kinds(table) == ["1", "2", "3", "4", "5", "6"]
    check_rows(table, 6)
    assert stored(table) == in_snapshots(table)


def test_cancelling_compactions_also_reaches_a_bucket_that_is_being_opened(tmp_path: Path) -> None:
    Streaming(make_table(tmp_path).context, GatedScheduler()).put(1, 4)
    table = tidelake.open_catalog(str(tmp_path)).table("db.t", {"commit.force-compact": "true"})
    compactor_factory = compact_manager_factory(GatedScheduler())  # a caller that waits for these never returns

    def hurried(context: TableContext, key: BucketId, bucket: RestoredBucket) -> Compactor | None:
        compactor = compactor_factory(context, key, bucket)
        writer.cancel_compactions()
        return compactor

    writer = TableWriter(table.context, compactor_factory=hurried)
    writer.write(rows_of(5))
    (message,) = writer.prepare_commit(5)
    assert message.increment.new_files
    assert not message.increment.compacted.before
    writer.abort()


def test_a_failed_compaction_fails_the_writer_and_leaves_no_files(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "2", "commit.force-compact": "true"})
    io = FaultyFileIO(table.context.io)
    streaming = Streaming(replace(table.context, io=io))
    streaming.put(1, 1)
    streaming.write(2)
    io.fault = lambda call: Fault.BEFORE if call.name == "open_input" else None
    with pytest.raises(OSError, match="injected, before open_input"):
        streaming.commit(2)
    io.fault = lambda _: None
    with pytest.raises(tidelake.TidelakeError, match="this writer failed before"):
        streaming.write(3)
    streaming.writer.abort()
    assert stored(table) == in_snapshots(table)
    check_rows(table, 1)


def test_files_of_a_newer_schema_are_not_compacted_by_an_older_writer(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"sequence.field": "v", "num-sorted-run.compaction-trigger": "2"})
    catalog = tidelake.open_catalog(str(tmp_path))
    old = Streaming(table.context)
    catalog.alter_table("db.t", [tidelake.AddColumn("added", pa.int32())])
    with catalog.table("db.t").writer() as newer:
        newer.write(rows_of(1).append_column("added", pa.array([7] * KEYS, pa.int32())))
        newer.commit()
    old.put(0, 0)
    old.commit(1)
    assert not [kind for kind in kinds(table) if "c" in kind]
    assert set(catalog.table("db.t").scan().to_arrow()["added"].to_pylist()) == {7}


# ---------------------------------------------------------------- crashes


@pytest.mark.sampled
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER], ids=["not done", "done and not told"])
def test_a_crash_in_any_call_of_a_compacting_commit_leaves_the_old_or_the_new_rows(
    tmp_path: Path, fault: Fault
) -> None:
    """The next writer repeats the commit, and continues to compact."""
    options = {"num-sorted-run.compaction-trigger": "3", "commit.force-compact": "true", "commit.max-retries": "0"}
    Streaming(make_table(tmp_path / "before", options).context).put(1, 2)

    def copied(name: str) -> tuple[tidelake.Table, FaultyFileIO]:
        shutil.copytree(tmp_path / "before", tmp_path / name)
        table = tidelake.open_catalog(str(tmp_path / name)).table("db.t")
        return table, FaultyFileIO(table.context.io)

    table, io = copied("whole")
    Streaming(replace(table.context, io=io)).put(3, 3)
    calls = len(io.calls)
    assert calls > 15, "calls of writing, compacting and publishing twice"
    for call in sample(range(calls)):
        table, io = copied(str(call))
        crashing = Streaming(replace(table.context, io=io))
        io.fail_from(call, fault)
        with suppress(Exception):  # whatever the call's failure became on its way
            crashing.put(3, 3)
        seen = table.scan().to_arrow()["v"].to_pylist()
        assert set(seen) in ({"2"}, {"3"}), f"call {call}"
        assert len(seen) == KEYS
        check_tree(table.context)
        again = Streaming(table.context)
        again.put(3, 4)
        check_rows(table, 4)
