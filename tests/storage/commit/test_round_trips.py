"""What a commit asks of an object store, in which order, and what follows from each answer.

A writer that has committed the newest snapshot asks nothing before it commits the next one.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.model.snapshots.tables import (
    added,
    committer,
    data_file,
    latest,
    live_names,
    make_table,
    snapshots,
)
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError
from tests.support.staged_file_io import StagedCall, StagedFileIO
from tidelake.errors import CommitConflict, CommitOutcomeUnknown
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.maintenance.rollback import roll_back
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.table import TableContext


def rows_only(number: int) -> CommitMessage:
    return added(f"new-{number}")


def with_compaction(number: int) -> CommitMessage:
    """New rows, and a compaction of those of the commit before."""
    return CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            new_files=(data_file(f"new-{number}"),),
            compacted=CompactResult(before=(data_file(f"new-{number - 1}"),), after=(data_file(f"merged-{number}"),)),
        ),
    )


def place() -> str:
    return f"memory://{uuid.uuid4()}/t"


KINDS = "LATEST|snapshot|manifest-list|manifest|schema"


def kind_of(call: StagedCall | Call) -> str:
    """What a call is about, such as `read snapshot`."""
    kind = re.match(KINDS, call.path.rpartition("/")[2])
    return f"{call.name} {'?' if kind is None else kind[0]}"


def of_kind(calls: Sequence[StagedCall | Call]) -> Counter[str]:
    return Counter(map(kind_of, calls))


# Our last snapshot and the schema are asked for while the manifests go out.
MANIFESTS = {"read snapshot": 1, "exists schema": 1, "open_output manifest": 1, "open_output manifest-list": 2}
CREATION = {"create_if_absent snapshot": 1}

STAGES: dict[str, tuple[Callable[[int], CommitMessage], list[dict[str, int]]]] = {
    "rows": (rows_only, [MANIFESTS, CREATION, {"read snapshot": 1}]),
    "rows and a compaction": (
        with_compaction,
        [
            MANIFESTS,
            {**CREATION, "open_output manifest": 1, "open_output manifest-list": 2},
            CREATION,
            {"read snapshot": 2},
        ],
    ),
}


def all_requests(stages: Sequence[dict[str, int]]) -> Counter[str]:
    return sum(map(Counter, stages), Counter({"write LATEST": 1}))


@pytest.mark.parametrize("case", STAGES)
def test_a_commit_sends_few_requests_and_waits_for_few_of_them(case: str) -> None:
    """All requests of a stage are sent before one of them is answered."""
    message, stages = STAGES[case]
    io = StagedFileIO(MemoryFileIO(), kind_of)
    table = make_table(io, place())
    commit = committer(table)
    commit.commit(Committable(1, [rows_only(1)]))
    commit.close()
    io.calls.clear()
    io.expect(stages)
    commit.commit(Committable(2, [message(2)]))
    commit.close()
    assert of_kind(io.calls) == all_requests(stages)
    assert not io.left


@pytest.mark.parametrize("case", STAGES)
def test_on_a_local_disk_the_same_calls_follow_one_another_in_the_callers_thread(case: str, tmp_path: Path) -> None:
    message, stages = STAGES[case]
    io = FaultyFileIO(LocalFileIO())
    table = make_table(io, f"{tmp_path}/t")
    commit = committer(table)
    commit.commit(Committable(1, [rows_only(1)]))
    io.calls.clear()
    commit.commit(Committable(2, [message(2)]))
    assert of_kind(io.calls) == all_requests(stages)


def test_the_first_commit_of_a_writer_looks_at_the_table() -> None:
    io = FaultyFileIO(MemoryFileIO())
    table = make_table(io, place())
    committer(table, "other").commit(Committable(1, [added("theirs")]))
    io.calls.clear()
    committer(table).commit(Committable(1, [added("ours")]))
    assert of_kind(io.calls)["read LATEST"] == 1
    assert live_names(table) == ["ours", "theirs"]


def test_a_writer_with_company_looks_before_it_writes_until_it_is_alone_again() -> None:
    io = FaultyFileIO(MemoryFileIO())
    table = make_table(io, place())
    ours, theirs = committer(table), committer(replace(table, io=io.inner), "other")
    looks = []
    for number, has_company in enumerate([False, False, True, True, False, False, False], 1):
        if has_company:
            theirs.commit(Committable(number, [added(f"theirs-{number}")]))
        io.calls.clear()
        ours.commit(Committable(number, [added(f"ours-{number}")]))
        looks.append((of_kind(io.calls)["read LATEST"], of_kind(io.calls)["create_if_absent snapshot"]))
    assert looks == [(1, 1), (0, 1), (1, 2), (1, 1), (1, 1), (0, 1), (0, 1)]
    assert [snapshot.id for snapshot in snapshots(table)] == list(range(1, 10))


# ---------------------------------------------------------------- the table changed since our last commit


def roll_table_back(table: TableContext) -> None:
    roll_back(table, table.snapshots.get(1))


def replace_our_snapshot(table: TableContext) -> None:
    newest = latest(table)
    table.io.write(table.paths.snapshot(newest.id), replace(newest, uuid="theirs").to_json().encode())


def drop_table(table: TableContext) -> None:
    table.io.delete_directory(table.location)


def recreate_table(table: TableContext) -> None:
    drop_table(table)
    other = make_table(table.io, table.location, options={"bucket": "-1", "snapshot.num-retained.max": "7"})
    committer(other, "other").commit(Committable(1, [added("theirs")]))


CHANGES = {
    "rolled back": (roll_table_back, "snapshot 2.*no longer exists"),
    "one of ours replaced": (replace_our_snapshot, "was replaced by one of"),
    "dropped": (drop_table, "no longer exists|was dropped"),
    "dropped and created again": (recreate_table, "no longer exists|was dropped"),
}


@pytest.mark.parametrize("message", [rows_only, with_compaction], ids=["rows", "rows and a compaction"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changed_since_our_last_commit_gets_no_snapshot(
    change: str, message: Callable[[int], CommitMessage]
) -> None:
    happen, error = CHANGES[change]
    table = make_table(MemoryFileIO(), place())
    commit = committer(table)
    for number in (1, 2):
        commit.commit(Committable(number, [rows_only(number)]))
    happen(replace(table))
    ids = table.snapshots.ids()
    with pytest.raises(CommitConflict, match=error):
        commit.commit(Committable(3, [message(3)]))
    assert table.snapshots.ids() == ids


@pytest.mark.parametrize("message", [rows_only, with_compaction], ids=["rows", "rows and a compaction"])
def test_a_table_recreated_in_the_moment_before_publishing_keeps_none_of_our_snapshots(
    message: Callable[[int], CommitMessage],
) -> None:
    io = FaultyFileIO(MemoryFileIO())
    table = make_table(io, place())
    others = replace(table, io=io.inner)
    commit = committer(table)
    for number in (1, 2):
        commit.commit(Committable(number, [rows_only(number)]))
    commit.close()

    def recreate(call: Call) -> None:
        if call.name == "create_if_absent" and call.file_name == "snapshot-3":
            io.fault = lambda _: None
            recreate_table(others)

    io.fault = recreate
    with pytest.raises(CommitConflict):
        commit.commit(Committable(3, [message(3)]))
    commit.close()
    assert live_names(replace(others)) == ["theirs"]
    assert others.snapshots.ids() == [1]


@pytest.mark.parametrize("message", [rows_only, with_compaction], ids=["rows", "rows and a compaction"])
def test_a_writer_that_slept_until_its_ids_expired_publishes_on_top_of_the_newest(
    message: Callable[[int], CommitMessage],
) -> None:
    io = FaultyFileIO(MemoryFileIO())
    table = make_table(io, place())
    others = replace(table, io=io.inner)
    commit = committer(table)
    commit.commit(Committable(1, [rows_only(1)]))
    commit.commit(Committable(2, [rows_only(2)]))

    def others_continue(call: Call) -> None:
        if call.name == "create_if_absent" and call.file_name == "snapshot-3":
            io.fault = lambda _: None
            for number in range(1, 7):
                committer(others, "other").commit(Committable(number, [added(f"theirs-{number}")]))
            for expired in range(1, 7):
                io.inner.delete(table.paths.snapshot(expired))

    io.fault = others_continue
    newest = commit.commit(Committable(3, [message(3)]))
    assert others.snapshots.ids() == list(range(7, (newest or 0) + 1))
    assert {"new-3", "theirs-6"} <= set(live_names(replace(others)))


def test_a_new_version_of_the_schema_is_the_one_of_the_next_snapshot() -> None:
    table = make_table(MemoryFileIO(), place())
    commit = committer(table)
    commit.commit(Committable(1, [rows_only(1)]))
    commit.commit(Committable(2, [rows_only(2)]))
    table.schemas.publish(replace(table.schema, id=1, comment="newer"))
    commit.commit(Committable(3, [with_compaction(3)]))
    assert [snapshot.schema_id for snapshot in snapshots(table)] == [0, 0, 1, 1]


# ---------------------------------------------------------------- the two snapshots of a commit


def committed_once(io: FileIO = MemoryFileIO()) -> tuple[FaultyFileIO, TableContext, TableCommit]:  # noqa: B008
    faulty = FaultyFileIO(io)
    table = make_table(faulty, place())
    commit = committer(table)
    for number in (1, 2):
        commit.commit(Committable(number, [rows_only(number)]))
    commit.close()
    return faulty, table, commit


def kinds_of(table: TableContext) -> list[CommitKind]:
    return [snapshot.commit_kind for snapshot in snapshots(table) if snapshot.commit_identifier == 3]


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.LATE], ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("snapshot_id", [3, 4])
def test_each_snapshot_is_published_once_if_the_answer_to_its_creation_is_lost(snapshot_id: int, fault: Fault) -> None:
    io, table, commit = committed_once()

    def lose(call: Call) -> Fault | None:
        if call.name == "create_if_absent" and call.file_name == f"snapshot-{snapshot_id}":
            io.fault = lambda _: None
            return fault
        return None

    io.fault = lose
    assert commit.commit(Committable(3, [with_compaction(3)])) == 4
    io.land()  # a request that comes too late finds its id taken
    assert kinds_of(table) == [CommitKind.APPEND, CommitKind.COMPACT]
    assert live_names(table) == ["merged-3", "new-1", "new-3"]
    assert commit.commit(Committable(4, [rows_only(4)])) == 5


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.HANG], ids=lambda fault: fault.name.lower())
def test_an_error_of_the_confirmation_is_no_error_of_the_commit(fault: Fault) -> None:
    io, table, commit = committed_once()
    created = []

    def lose(call: Call) -> Fault | None:
        if call.name == "create_if_absent":
            created.append(call.file_name)
        elif len(created) == 2 and call.name == "read" and call.file_name == "snapshot-2":
            io.fault = lambda _: None
            return fault
        return None

    io.fault = lose
    assert commit.commit(Committable(3, [with_compaction(3)])) == 4
    assert created == ["snapshot-3", "snapshot-4"]
    assert kinds_of(table) == [CommitKind.APPEND, CommitKind.COMPACT]


def test_an_id_taken_between_the_two_snapshots_lets_the_compaction_follow_the_other_commit() -> None:
    io, table, commit = committed_once()

    def take(call: Call) -> None:
        if call.name == "create_if_absent" and call.file_name == "snapshot-4":
            io.fault = lambda _: None
            committer(replace(table, io=io.inner), "other").commit(Committable(1, [added("theirs")]))

    io.fault = take
    assert commit.commit(Committable(3, [with_compaction(3)])) == 5
    assert [snapshot.commit_user for snapshot in snapshots(table)[-3:]] == ["etl", "other", "etl"]
    assert live_names(table) == ["merged-3", "new-1", "new-3", "theirs"]


def test_files_of_lost_attempts_are_deleted() -> None:
    io, table, commit = committed_once()

    def take(call: Call) -> None:
        if call.name == "create_if_absent" and call.file_name == "snapshot-3":
            io.fault = lambda _: None
            committer(replace(table, io=io.inner), "other").commit(Committable(1, [added("theirs")]))

    io.fault = take
    commit.commit(Committable(3, [with_compaction(3)]))
    stored = {entry.name for entry in table.io.list_directory(table.paths.manifest_directory)}
    written = {call.file_name for call in io.calls if call.name == "open_output"}
    deleted = {call.file_name for call in io.calls if call.name == "delete"}
    assert deleted <= written
    assert stored & written == written - deleted


@pytest.mark.sampled
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.LATE], ids=lambda fault: fault.name.lower())
def test_each_request_lost_or_late_leaves_rows_that_are_committed_once(fault: Fault) -> None:
    io, _, commit = committed_once()
    io.calls.clear()
    commit.commit(Committable(3, [with_compaction(3)]))
    commit.close()
    for number in range(len(io.calls)):
        io, table, commit = committed_once()
        io.fail_call(number, fault)
        with suppress(FaultyIOError, CommitOutcomeUnknown):
            commit.commit(Committable(3, [with_compaction(3)]))
        commit.close()
        io.fault = lambda _: None
        io.land()
        commit.commit(Committable(3, [with_compaction(3)]))
        assert live_names(table) == ["merged-3", "new-1", "new-3"], f"call {number}"
        assert kinds_of(table) == [CommitKind.APPEND, CommitKind.COMPACT], f"call {number}"
