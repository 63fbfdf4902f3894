"""Expiry next to commits: when it runs, its cost for them, and how its errors are handled."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest

from tests.storage.model.snapshots.tables import FakeTime, committer, make_table
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, ProcessDied
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.table import TableContext

AT_ONCE = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3", "snapshot.time-retained": "36500 d"}


@pytest.fixture
def io() -> FaultyFileIO:
    return FaultyFileIO(MemoryFileIO())


def new_table(io: FaultyFileIO, **options: str) -> TableContext:
    return make_table(
        io, f"memory://{uuid.uuid4()}/t", options=AT_ONCE | {k.replace("_", "-"): v for k, v in options.items()}
    )


def commit(table: TableContext, count: int) -> int:
    """Empty snapshots; the id of the last."""
    commits = committer(table)
    ids = [commits.commit(Committable(identifier)) for identifier in range(1, count + 1)]
    assert ids[-1] is not None
    return ids[-1]


def ids(table: TableContext) -> list[int]:
    return table.snapshots.ids()


def test_the_worker_expires_snapshots_after_a_commit(io: FaultyFileIO) -> None:
    worker = MaintenanceWorker()
    tables = [new_table(io), new_table(io)]
    for table in tables:
        committed = worker.watch(table)
        committed(commit(table, 9))
    worker.close(finish=True)
    assert [ids(table) for table in tables] == [[7, 8, 9], [7, 8, 9]]


def test_a_write_only_table_is_not_maintained(io: FaultyFileIO) -> None:
    worker = MaintenanceWorker()
    table = new_table(io, write_only="true")
    worker.watch(table)(commit(table, 9))
    worker.close(finish=True)
    assert len(ids(table)) == 9


def test_pinned_snapshots_and_later_ones_are_kept(io: FaultyFileIO) -> None:
    worker = MaintenanceWorker()
    table = new_table(io)
    worker.watch(table, pins=lambda: [5])(commit(table, 9))
    worker.close(finish=True)
    assert ids(table) == [5, 6, 7, 8, 9]


def test_an_error_fails_no_commit_is_logged_once_and_is_retried(
    io: FaultyFileIO, caplog: pytest.LogCaptureFixture
) -> None:
    time = FakeTime()
    worker = MaintenanceWorker(now_ms=lambda: time.now_ms)
    table = new_table(io)
    committed = worker.watch(table)
    latest = commit(table, 9)
    tried = threading.Semaphore(0)

    def fail(call: Call) -> Fault | None:
        if call.name != "delete":
            return None
        tried.release()
        return Fault.BEFORE

    io.fault = fail
    for _ in range(3):
        committed(latest)
        assert tried.acquire(timeout=60)
        while worker.is_busy:
            pass
        committed(latest)  # too soon
        assert not worker.is_busy
        time.now_ms += 60_000
    io.fault = lambda _: None
    committed(latest)
    worker.close(finish=True)
    assert ids(table) == [7, 8, 9]
    assert len([record for record in caplog.records if "expiry_failed" in record.message]) == 1


@pytest.mark.parametrize("was_to_finish", [False, True], ids=["at once", "hurried later"])
def test_closing_without_finishing_leaves_a_round_to_the_next_one(io: FaultyFileIO, was_to_finish: bool) -> None:
    worker = MaintenanceWorker()
    table = new_table(io)
    committed = worker.watch(table)
    latest = commit(table, 9)
    reached, resume = threading.Event(), threading.Event()

    def wait_at_the_hint(call: Call) -> None:
        if call.file_name == "EARLIEST" and call.name == "write":
            reached.set()
            assert resume.wait(60)

    io.fault = wait_at_the_hint
    committed(latest)
    assert reached.wait(60)
    closing = threading.Thread(target=worker.close, kwargs={"finish": was_to_finish})
    closing.start()
    while not worker.is_closing:
        pass
    if was_to_finish:
        worker.cancel()
    resume.set()
    closing.join(60)
    assert len(ids(table)) == 9
    SnapshotExpiry(table).run()
    assert ids(table) == [7, 8, 9]


# ---------------------------------------------------------------- what it costs


def test_without_expirable_snapshots_a_commit_makes_no_call(io: FaultyFileIO) -> None:
    time = FakeTime()
    table = new_table(io)
    latest = commit(table, 8)
    retention = Retention(num_min=2, num_max=100, time_ms=3_600_000, limit=50)
    expiry = SnapshotExpiry(table, retention=retention, now_ms=lambda: time.now_ms)
    assert expiry.is_due(latest)
    assert expiry.run(latest) is None
    io.calls.clear()
    assert not any(expiry.is_due(latest + more) for more in range(90))
    time.now_ms += 3_600_000 + 60_000
    assert expiry.is_due(latest)
    assert io.calls == []


def test_the_cost_of_a_round_does_not_grow_with_retained_snapshots(io: FaultyFileIO) -> None:
    table = new_table(io)
    time = FakeTime()
    costs = []
    for staying in (20, 120):
        latest = commit(table, staying + 10) if staying == 20 else more(table, 110)
        retention = Retention(num_min=staying, num_max=staying, time_ms=0, limit=5)
        expiry = SnapshotExpiry(table, retention=retention, now_ms=lambda: time.now_ms)
        first = expiry.run(latest)
        assert first is not None
        io.calls.clear()
        second = expiry.run(latest)
        assert second is not None
        assert second.snapshots == 5
        costs.append(len(io.calls))
    assert costs[1] <= costs[0]
    assert costs[0] / 5 < 16  # calls for a snapshot: five reads, and what is deleted


def test_a_branch_without_shared_files_is_read_once(io: FaultyFileIO) -> None:
    time = FakeTime()
    costs = []
    for has_branch in (False, True):
        table = new_table(io)
        if has_branch:
            paths = table.paths.for_branch("dev")
            io.write(paths.schema(0), io.read(table.paths.schema(0)))
            commit(TableContext.open(io, table.location, table.name, branch="dev"), 40)
        latest = commit(table, 30)
        retention = Retention(num_min=2, num_max=2, time_ms=0, limit=5)
        expiry = SnapshotExpiry(table, retention=retention, now_ms=lambda: time.now_ms)
        assert expiry.run(latest) is not None
        io.calls.clear()
        second = expiry.run(latest)
        assert second is not None
        assert second.snapshots == 5
        costs.append(len(io.calls))
    assert costs[1] <= costs[0] + 6


def more(table: TableContext, count: int) -> int:
    commits = committer(table)
    for identifier in range(100, 100 + count):
        latest = commits.commit(Committable(identifier))
    assert latest is not None
    return latest


def test_tables_of_a_store_have_their_rounds_side_by_side_and_each_table_one_at_a_time(
    io: FaultyFileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, tables = MaintenanceWorker(), [new_table(io) for _ in range(4)]
    committed = [worker.watch(table) for table in tables]
    latest = [commit(table, 9) for table in tables]
    meeting, lock = threading.Barrier(len(tables), timeout=30), threading.Lock()
    running, most, run = Counter[str](), Counter[str](), SnapshotExpiry.run

    def watched(expiry: SnapshotExpiry, latest_id: int | None = None) -> object:
        table = expiry._context.location
        with lock:
            is_first = table not in most
            running[table] += 1
            most[table] = max(most[table], running[table])
        try:
            if is_first:
                meeting.wait()
            return run(expiry, latest_id)
        finally:
            with lock:
                running[table] -= 1

    monkeypatch.setattr(SnapshotExpiry, "run", watched)
    for of_table, snapshot_id in zip(committed, latest, strict=True):
        of_table(snapshot_id)
        of_table(snapshot_id)  # while the first round runs
    worker.close(finish=True)
    assert most == {table.location: 1 for table in tables}
    assert [ids(table) for table in tables] == [[7, 8, 9]] * len(tables)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_round_whose_thread_dies_blocks_no_close(io: FaultyFileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, table, died = MaintenanceWorker(), new_table(io), threading.Event()
    committed, latest = worker.watch(table), commit(table, 9)

    def die(expiry: SnapshotExpiry, latest_id: int | None = None) -> object:
        died.set()
        raise ProcessDied

    monkeypatch.setattr(SnapshotExpiry, "run", die)
    committed(latest)
    assert died.wait(30)
    closing = threading.Thread(target=lambda: worker.close(finish=True), daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    assert ids(table) == list(range(1, 10))
