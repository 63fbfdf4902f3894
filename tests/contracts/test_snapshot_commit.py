"""The contract of storage/model/snapshots/snapshot_commit.py, checked for the commit of the file system, for the commit
under a database lock, and for a catalog that stores the ids itself. The last one is defined here and resembles a REST
catalog.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.storage.model.snapshots.tables import added, committer, latest, make_table, partition
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress
from tidelake.storage.catalog.jdbc.database_lock import LockSettings, LockTable
from tidelake.storage.catalog.jdbc.paimon_tables import make_tables
from tidelake.storage.catalog.locked_commits import LockedCommits
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.file_system_commit import FileSystemSnapshotCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import PartitionStatistics, SnapshotCommit, Statistics
from tidelake.storage.model.table import TableContext


@dataclass
class Server:
    """Knows the newest snapshot of each table and branch, and lays the files down for readers."""

    keeps_partitions = False

    newest: dict[tuple[str, str], Snapshot] = field(default_factory=dict)
    statistics: list[PartitionStatistics] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, context: TableContext) -> SnapshotCommit:
        return _ServerCommit(self, context)


class _ServerCommit:
    def __init__(self, server: Server, context: TableContext) -> None:
        self._server = server
        self._context = context
        self._branch = context.location, context.branch

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        with self._server.lock:
            newest = self._server.newest.get(self._branch)
            if newest == snapshot:
                return True
            if (newest.uuid if newest else None) != (base.uuid if base else None):
                return False
            self._server.newest[self._branch] = snapshot
            self._server.statistics += statistics()
            return self._context.snapshots.publish(snapshot)

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        return True  # the server shows nothing else


@dataclass(frozen=True, slots=True)
class Branch:
    """An empty table whose catalog commits in one of the three ways."""

    table: TableContext

    def commit(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        return self.new_commit().commit(base, snapshot, lambda: ())

    def new_commit(self) -> SnapshotCommit:
        """As another process would have it."""
        assert self.table.snapshot_commit is not None
        return self.table.snapshot_commit(replace(self.table))


def _local(folder: Path) -> tuple[FileIO, str]:
    return LocalFileIO(), f"{folder}/d.db/t"


def _memory(_: Path) -> tuple[FileIO, str]:
    return MemoryFileIO(), f"memory://{uuid.uuid4()}/t"


@pytest.fixture(params=[_local, _memory], ids=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileIO, str]:
    make: Callable[[Path], tuple[FileIO, str]] = request.param
    return make(tmp_path)


def _locks_in_a_database(folder: Path) -> LockedCommits:
    address = DatabaseAddress.of({"uri": f"jdbc:sqlite:{folder}/catalog.db"})
    make_tables(address, 255)
    return LockedCommits(LockTable(address, "jdbc", LockSettings(sleep_ms_max=100, timeout_ms=30_000)))


@pytest.fixture(
    params=[lambda _: FileSystemSnapshotCommit, _locks_in_a_database, lambda _: Server()],
    ids=["file system", "under a lock in a database", "a catalog that keeps snapshots"],
)
def branch(request: pytest.FixtureRequest, place: tuple[FileIO, str], tmp_path: Path) -> Branch:
    io, location = place
    return Branch(replace(make_table(FaultyFileIO(io), location), snapshot_commit=request.param(tmp_path)))


def snapshot(snapshot_id: int, user: str = "etl") -> Snapshot:
    return Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list="manifest-list-0",
        delta_manifest_list="manifest-list-1",
        commit_user=user,
        commit_identifier=snapshot_id,
        commit_kind=CommitKind.APPEND,
        time_ms=1_700_000_000_000 + snapshot_id,
        total_record_count=0,
        delta_record_count=0,
        uuid=f"{user}-{snapshot_id}",
    )


FIRST, SECOND = snapshot(1), snapshot(2)


def test_a_snapshot_on_its_base_is_committed_and_readers_find_it(branch: Branch) -> None:
    assert branch.commit(None, FIRST)
    assert branch.commit(FIRST, SECOND)
    assert replace(branch.table).snapshots.all() == [FIRST, SECOND]
    assert replace(branch.table).snapshots.latest() == SECOND


def test_of_two_snapshots_with_one_id_only_the_first_is_committed(branch: Branch) -> None:
    branch.commit(None, FIRST)
    assert branch.commit(FIRST, SECOND)
    assert not branch.commit(FIRST, snapshot(2, "late"))
    assert branch.table.snapshots.all() == [FIRST, SECOND]


def test_a_snapshot_handed_over_twice_is_committed_once(branch: Branch) -> None:
    assert branch.commit(None, FIRST)
    assert branch.commit(None, FIRST)
    assert branch.table.snapshots.all() == [FIRST]


def test_of_many_at_once_exactly_one_is_committed(branch: Branch) -> None:
    branch.commit(None, FIRST)
    rivals = [snapshot(2, f"writer-{number}") for number in range(8)]
    with ThreadPoolExecutor(len(rivals)) as threads:
        answers = list(threads.map(lambda rival: branch.commit(FIRST, rival), rivals))
    assert answers.count(True) == 1
    assert branch.table.snapshots.get(2) == rivals[answers.index(True)]


def test_an_id_that_was_used_and_expired_is_not_used_again(branch: Branch) -> None:
    bases = None, FIRST, SECOND, snapshot(3)
    for base, following in zip(bases, (FIRST, SECOND, snapshot(3), snapshot(4)), strict=True):
        assert branch.commit(base, following)
    for expired in (1, 2, 3):
        branch.table.snapshots.delete_snapshot_file(expired)
    assert not branch.commit(FIRST, snapshot(2, "slept"))
    assert branch.table.snapshots.all() == [snapshot(4)]


def test_a_snapshot_published_despite_an_error_is_reported_as_committed(branch: Branch) -> None:
    branch.commit(None, FIRST)
    io = branch.table.io
    assert isinstance(io, FaultyFileIO)
    io.fault = _lost_answer_of_the_snapshot
    with pytest.raises(OSError, match="snapshot-2"):
        branch.commit(FIRST, SECOND)
    io.fault = lambda _: None
    assert branch.table.snapshots.find(2) == SECOND
    assert branch.new_commit().is_committed(FIRST, SECOND)
    assert branch.table.snapshots.latest() == SECOND


def test_each_branch_has_its_own_snapshot_ids(branch: Branch) -> None:
    paths = branch.table.paths.for_branch("dev")
    SchemaStore(branch.table.io, paths).publish(branch.table.schema)
    dev = Branch(replace(branch.table, branch="dev"))
    assert branch.commit(None, FIRST)
    assert dev.commit(None, snapshot(1, "of-dev"))
    assert branch.table.snapshots.all() == [FIRST]
    assert dev.table.snapshots.all() == [snapshot(1, "of-dev")]


def test_a_table_commits_through_its_snapshot_commit(branch: Branch) -> None:
    handed_over: list[int] = []

    class Observed:
        keeps_partitions = False

        def __call__(self, context: TableContext) -> SnapshotCommit:
            assert branch.table.snapshot_commit is not None
            return _Observed(branch.table.snapshot_commit(context), handed_over)

    commit = committer(replace(branch.table, snapshot_commit=Observed()))
    commit.commit(Committable(1, [added("a")]))
    commit.commit(Committable(2, [added("b")]))
    assert handed_over == [1, 2]
    assert latest(branch.table).total_record_count == 2


def test_a_catalog_receives_the_statistics_of_each_partition() -> None:
    server = Server()
    table = make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", partitioned=True)
    messages = [added("a", "b", in_partition=partition("x")), added("c", in_partition=partition("y"))]
    committer(replace(table, snapshot_commit=server)).commit(Committable(1, messages))
    gained = {
        stats.partition: (stats.record_count, stats.file_count, stats.file_size_bytes) for stats in server.statistics
    }
    assert gained == {partition("x"): (2, 2, 200), partition("y"): (1, 1, 100)}


def test_a_table_that_was_pickled_commits_the_same_way(tmp_path: Path) -> None:
    table = replace(make_table(LocalFileIO(), f"{tmp_path}/t"), snapshot_commit=_locks_in_a_database(tmp_path))
    table.snapshots.latest()  # its stores stay behind
    there = pickle.loads(pickle.dumps(table))
    assert there == table
    committer(there).commit(Committable(1, [added("a")]))
    assert latest(table).id == 1


class _Observed:
    def __init__(self, inner: SnapshotCommit, handed_over: list[int]) -> None:
        self._inner = inner
        self._handed_over = handed_over

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        self._handed_over.append(snapshot.id)
        return self._inner.commit(base, snapshot, statistics)

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        return self._inner.is_committed(base, snapshot)


def _lost_answer_of_the_snapshot(call: Call) -> Fault | None:
    return Fault.AFTER if call.name == "create_if_absent" and call.file_name == "snapshot-2" else None
