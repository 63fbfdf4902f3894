"""Commits with concurrent commits, failing stores, paused writers and lost answers."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.model.snapshots.tables import (
    FakeTime,
    added,
    committer,
    data_file,
    latest,
    live_names,
    make_table,
    partition,
    snapshots,
)
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError
from tests.support.levels import sample
from tidelake.errors import (
    BadInput,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptFile,
    UnsupportedFeature,
    WriterFenced,
)
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.commit_request import CommitRequest
from tidelake.storage.commit.conflict_check import CheckedChanges, ConflictCheck
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import table_manifests
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.table import TableContext


@pytest.fixture
def io() -> FaultyFileIO:
    return FaultyFileIO(MemoryFileIO())


@pytest.fixture
def table(io: FaultyFileIO) -> TableContext:
    return make_table(io, f"memory://{uuid.uuid4()}/t")


def seen_by_others(table: TableContext) -> TableContext:
    """The same table through a store that never fails."""
    io = table.io
    assert isinstance(io, FaultyFileIO)
    return replace(table, io=io.inner)


def store_of(table: TableContext) -> SnapshotStore:
    others = seen_by_others(table)
    return others.snapshots


def on_create(action: Callable[[Call], Fault | None]) -> Callable[[Call], Fault | None]:
    """Something that happens when a snapshot is about to be created."""
    return lambda call: action(call) if creates_snapshot(call) else None


def creates_snapshot(call: Call) -> bool:
    return call.name == "create_if_absent" and call.file_name.startswith("snapshot-")


def once(action: Callable[[], None]) -> Callable[[Call], Fault | None]:
    done: list[bool] = []

    def run(_: Call) -> None:
        if not done:
            done.append(True)
            action()

    return on_create(run)


# ---------------------------------------------------------------- losing the race


def test_a_lost_race_is_retried_on_top_of_the_winner(table: TableContext, io: FaultyFileIO) -> None:
    time = FakeTime()
    other = committer(seen_by_others(table), "other")
    io.fault = once(lambda: _ignore(other.commit(Committable(1, [added("theirs")]))))
    assert committer(table, time=time).commit(Committable(1, [added("ours")])) == 2
    assert live_names(table) == ["ours", "theirs"]
    assert time.slept_ms == [11.0]  # the shortest wait, and half of a fifth of it


def test_metadata_of_a_lost_attempt_is_deleted(table: TableContext, io: FaultyFileIO) -> None:
    other = committer(seen_by_others(table), "other")
    io.fault = once(lambda: _ignore(other.commit(Committable(1, [added("theirs")]))))
    committer(table).commit(Committable(1, [added("ours")]))
    assert metadata_files(table) == named_by_snapshots(table)


def test_waits_double_up_to_a_maximum_until_the_commit_gives_up(table: TableContext, io: FaultyFileIO) -> None:
    time = FakeTime()
    other = committer(seen_by_others(table), "other")
    io.fault = on_create(
        lambda _: _ignore(other.commit(Committable(BATCH_COMMIT_IDENTIFIER, [added(str(uuid.uuid4()))])))
    )
    with pytest.raises(CommitConflict, match="first 11 times in a row, and nothing of this commit was published"):
        committer(table, time=time).commit(Committable(1, [added("ours")]))
    assert time.slept_ms == [11.0 * min(2**retry, 1000) for retry in range(10)]
    assert "ours" not in live_names(table)
    assert metadata_files(table) == named_by_snapshots(table)


def test_commit_timeout_ends_the_attempts(io: FaultyFileIO) -> None:
    table = make_table(io, f"memory://{uuid.uuid4()}/t", options={"commit.timeout": "50 ms"})
    time = FakeTime()
    other = committer(seen_by_others(table), "other")
    io.fault = on_create(
        lambda _: _ignore(other.commit(Committable(BATCH_COMMIT_IDENTIFIER, [added(str(uuid.uuid4()))])))
    )
    with pytest.raises(CommitConflict, match="nothing of this commit was published"):
        committer(table, time=time).commit(Committable(1, [added("ours")]))
    assert time.slept_ms == [11.0, 22.0, 44.0]


def test_an_overwrite_also_replaces_rows_committed_while_it_lost_the_race(io: FaultyFileIO) -> None:
    table = make_table(io, f"memory://{uuid.uuid4()}/t", partitioned=True)
    other = committer(seen_by_others(table), "other")
    x, y = partition("x"), partition("y")
    other.commit(Committable(1, [added("x1", in_partition=x), added("y1", in_partition=y)]))
    io.fault = once(lambda: _ignore(other.commit(Committable(2, [added("x2", in_partition=x)]))))
    committer(table).overwrite(Committable(1, [added("x3", in_partition=x)]))
    assert live_names(table) == ["x3", "y1"]


def test_a_compaction_that_lost_the_race_is_checked_against_the_winner(io: FaultyFileIO) -> None:
    table = make_table(io, f"memory://{uuid.uuid4()}/t", primary_key=True)
    other = committer(seen_by_others(table), "other")
    other.commit(Committable(1, [added("a")]))
    compaction = CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            compacted=CompactResult(
                before=(data_file("a", keys=(0, 0)),), after=(data_file("b", level=5, keys=(0, 0)),)
            )
        ),
    )
    io.fault = once(lambda: _ignore(other.truncate()))
    with pytest.raises(CommitConflict, match=r"file a .*has already removed it"):
        committer(table).commit(Committable(BATCH_COMMIT_IDENTIFIER, [compaction]))
    assert live_names(table) == []


@pytest.mark.parametrize("writers", [8])
def test_racing_writers_each_get_a_snapshot_and_nothing_is_lost(tmp_path: Path, writers: int) -> None:
    """Real threads on a real disk, with real waits; each through its own view of the table."""
    location, commits_each = str(tmp_path / "t"), 5
    make_table(LocalFileIO(), location, options={"commit.max-retries": "1000", "commit.max-retry-wait": "20 ms"})
    barrier = threading.Barrier(writers)

    def write(writer: int) -> list[int | None]:
        commit = TableCommit(TableContext.open(LocalFileIO(), location, "db.t"), f"writer-{writer}")
        barrier.wait()
        return [commit.commit(Committable(n, [added(f"{writer}-{n}")])) for n in range(commits_each)]

    with ThreadPoolExecutor(writers) as threads:
        published = [i for ids in threads.map(write, range(writers)) for i in ids]
    table = TableContext.open(LocalFileIO(), location, "db.t")
    assert sorted(i for i in published if i is not None) == list(range(1, writers * commits_each + 1))
    assert live_names(table) == sorted(f"{w}-{n}" for w in range(writers) for n in range(commits_each))
    assert latest(table).total_record_count == writers * commits_each


# ---------------------------------------------------------------- unknown outcomes


def test_a_commit_that_landed_but_was_reported_failed_is_not_committed_twice(
    table: TableContext, io: FaultyFileIO
) -> None:
    io.fault = on_create(lambda _: Fault.AFTER)
    assert committer(table).commit(Committable(1, [added("a")])) == 1
    assert len(snapshots(seen_by_others(table))) == 1


def test_a_landed_commit_is_found_below_newer_snapshots(table: TableContext, io: FaultyFileIO) -> None:
    time = FakeTime()
    other = committer(seen_by_others(table), "other")

    def others_continue(wait_ms: float) -> None:
        time.slept_ms.append(wait_ms)
        other.commit(Committable(len(time.slept_ms), [added("theirs")]))

    io.fault = on_create(lambda _: Fault.AFTER)
    environment = replace(time.environment(), sleep_ms=others_continue)
    commit = TableCommit(table, "etl", environment=environment)
    assert commit.commit(Committable(1, [added("ours")])) == 1
    assert [s.commit_user for s in snapshots(seen_by_others(table))] == ["etl", "other"]


def test_a_commit_that_certainly_failed_is_retried(table: TableContext, io: FaultyFileIO) -> None:
    faults = iter([Fault.BEFORE, None])
    io.fault = on_create(lambda _: next(faults))
    assert committer(table).commit(Committable(1, [added("a")])) == 1
    assert live_names(table) == ["a"]


def test_a_failed_commit_whose_id_was_taken_is_retried(table: TableContext, io: FaultyFileIO) -> None:
    other = committer(seen_by_others(table), "other")
    faults = iter([Fault.BEFORE, None])

    def fail(_: Call) -> Fault | None:
        fault = next(faults)
        if fault is not None:
            other.commit(Committable(1, [added("theirs")]))
        return fault

    io.fault = on_create(fail)
    assert committer(table).commit(Committable(1, [added("ours")])) == 2
    assert live_names(table) == ["ours", "theirs"]
    assert metadata_files(table) == named_by_snapshots(table)


def test_without_any_answer_the_outcome_is_unknown_and_files_are_kept(table: TableContext, io: FaultyFileIO) -> None:
    io.fault = on_create(lambda _: Fault.BEFORE)
    with pytest.raises(CommitOutcomeUnknown, match="'etl', identifier 1, may or may not have been published"):
        committer(table).commit(Committable(1, [added("a")]))
    assert not any(call.name == "delete" for call in io.calls)


@pytest.mark.parametrize("is_interrupted", [False, True], ids=["the answer is lost", "it is interrupted"])
def test_a_repeated_commit_whose_first_attempt_may_have_expired_is_not_published_again(
    table: TableContext, io: FaultyFileIO, is_interrupted: bool
) -> None:
    """Its files may have been compacted and deleted since, and its rows would be there twice."""
    other, ours = committer(seen_by_others(table), "other"), committer(table)

    def lose_answer_and_table(call: Call) -> Fault | None:
        published = any(map(creates_snapshot, io.calls[:-1]))
        if published and is_interrupted:
            raise KeyboardInterrupt
        return (
            Fault.BEFORE if published else None if is_interrupted else Fault.AFTER if creates_snapshot(call) else None
        )

    io.fault = lose_answer_and_table
    with pytest.raises(KeyboardInterrupt if is_interrupted else CommitOutcomeUnknown):
        ours.commit(Committable(1, [added("a")]))

    def interrupt(_: Call) -> None:
        raise KeyboardInterrupt

    io.fault = interrupt  # a repetition that is interrupted forgets nothing
    with pytest.raises(KeyboardInterrupt):
        ours.commit(Committable(1, [added("a")]))
    io.fault = lambda _: None
    other.commit(Committable(1, [added("theirs")]))
    expire_below(table, 2)
    for _ in range(2):
        with pytest.raises(CommitOutcomeUnknown, match="snapshot 1 expired before it was known"):
            ours.commit(Committable(1, [added("a")]))
    assert live_names(table) == ["a", "theirs"]
    assert ours.commit(Committable(2, [added("b")])) == 3


def test_an_unknown_outcome_is_resolved_by_committing_again(table: TableContext, io: FaultyFileIO) -> None:
    def lose_answer_and_table(call: Call) -> Fault | None:
        published = any(map(creates_snapshot, io.calls[:-1]))
        return Fault.BEFORE if published else Fault.AFTER if creates_snapshot(call) else None

    io.fault = lose_answer_and_table
    with pytest.raises(CommitOutcomeUnknown):
        committer(table).commit(Committable(1, [added("a")]))
    io.fault = lambda _: None
    assert committer(table).commit(Committable(1, [added("a")])) is None
    assert live_names(table) == ["a"]


def test_a_store_retry_that_finds_its_own_file_counts_as_published(table: TableContext, io: FaultyFileIO) -> None:
    """As object store clients do: the first answer got lost, the second says that the name is taken."""
    create = io.create_if_absent

    def ask_twice(path: str, data: bytes) -> bool:
        create(path, data)
        return create(path, data)

    io.create_if_absent = ask_twice  # type: ignore[method-assign]
    assert committer(table).commit(Committable(1, [added("a")])) == 1
    assert live_names(table) == ["a"]
    assert metadata_files(table) == named_by_snapshots(table)


@pytest.mark.parametrize(
    "lands_at",
    [
        pytest.param("exists", id="before we look"),
        pytest.param("open_output", id="after we looked"),
        pytest.param("create_if_absent", id="just before our second try"),
    ],
)
def test_a_late_landed_commit_is_recognised_and_not_repeated(
    table: TableContext, io: FaultyFileIO, lands_at: str
) -> None:
    def fault(call: Call) -> Fault | None:
        created = [c for c in io.calls if creates_snapshot(c)]
        if creates_snapshot(call) and len(created) == 1:
            return Fault.LATE
        if created and call.name == lands_at:
            io.land()
        return None

    io.fault = fault
    assert committer(table).commit(Committable(1, [added("a")])) == 1
    assert live_names(table) == ["a"]
    assert len(snapshots(seen_by_others(table))) == 1
    assert metadata_files(table) == named_by_snapshots(table)


def test_a_silent_store_ends_the_commit_at_its_timeout_without_deleting_files(io: FaultyFileIO) -> None:
    table = make_table(io, f"memory://{uuid.uuid4()}/t", options={"commit.timeout": "3 min"})
    time = FakeTime()
    started_ms = time.now_ms
    io.on_hang = lambda: time.sleep(60_000)  # as long as a client waits for an answer
    io.fault = on_create(lambda _: Fault.HANG)
    with pytest.raises(CommitOutcomeUnknown, match=r"may or may not have been published \(.*hang create_if_absent"):
        committer(table, time=time).commit(Committable(1, [added("a")]))
    assert 180_000 < time.now_ms - started_ms < 250_000
    assert not any(call.name == "delete" for call in io.calls)


def test_a_conflict_after_an_unknown_attempt_keeps_the_outcome_unknown(table: TableContext, io: FaultyFileIO) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))

    def fail_and_drop_the_table(_: Call) -> Fault:
        table.io.delete_directory(table.paths.snapshot_directory)
        return Fault.BEFORE

    io.fault = on_create(fail_and_drop_the_table)
    with pytest.raises(CommitOutcomeUnknown, match="the table was rolled back, dropped or created again"):
        commit.commit(Committable(2, [added("b")]))


def test_a_one_off_commit_with_a_lost_answer_is_published_once_after_any_failure() -> None:
    """Only the snapshot itself distinguishes it from another one-off commit. A file listed twice would be a
    CorruptFile.
    """
    for number in range(12):
        io, table = prepared()
        calls_after: list[Call] = []

        def fault(call: Call, calls_after: list[Call] = calls_after, number: int = number) -> Fault | None:
            if calls_after or creates_snapshot(call):
                calls_after.append(call)
            at = len(calls_after) - 2
            return Fault.AFTER if at == -1 else Fault.BEFORE if at == number else None

        io.fault = fault
        new = added("new", in_partition=partition("x"))
        with suppress(CommitOutcomeUnknown):
            assert committer(table).commit(Committable(BATCH_COMMIT_IDENTIFIER, [new])) == 4
        assert live_names(seen_by_others(table)) == ["new", *OLD], f"failed at {calls_after}"


def test_a_full_disk_leaves_the_table_unchanged_and_no_orphans(table: TableContext, io: FaultyFileIO) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    outputs = itertools.count()
    io.fault = lambda call: Fault.BEFORE if call.name == "open_output" and next(outputs) == 2 else None
    with pytest.raises(FaultyIOError):
        commit.commit(Committable(2, [added("b")]))
    assert metadata_files(table) == named_by_snapshots(table)
    assert commit.commit(Committable(2, [added("b")])) == 2


def test_a_store_without_exclusive_creation_is_refused_at_once(table: TableContext, io: FaultyFileIO) -> None:
    def refuse(_: Call) -> None:
        raise UnsupportedFeature("this store", "it has no conditional put", "Use another")

    io.fault = on_create(refuse)
    with pytest.raises(UnsupportedFeature):
        committer(table).commit(Committable(1, [added("a")]))
    assert metadata_files(table) == set()


def test_two_processes_that_replay_one_identifier_publish_it_once(table: TableContext, io: FaultyFileIO) -> None:
    twin = committer(seen_by_others(table), "etl")
    io.fault = once(lambda: _ignore(twin.commit(Committable(1, [added("a")]))))
    assert committer(table).commit(Committable(1, [added("a")])) is None
    assert live_names(table) == ["a"]


def test_a_process_overtaken_by_another_of_its_user_is_refused(table: TableContext) -> None:
    slow, quick = committer(table), committer(seen_by_others(table), "etl")
    slow.commit(Committable(1, [added("a")]))
    quick.commit(Committable(2, [added("b")]))
    quick.commit(Committable(3, [added("c")]))
    with pytest.raises(BadInput, match="identifier 2 is below 3"):
        slow.commit(Committable(2, [added("b")]))


# ---------------------------------------------------------------- a crash at any call


def prepared() -> tuple[FaultyFileIO, TableContext]:
    """A table of three files whose next commit joins manifests."""
    io = FaultyFileIO(MemoryFileIO())
    table = make_table(io, f"memory://{uuid.uuid4()}/t", partitioned=True, options={"manifest.merge-min-count": "3"})
    commit = committer(seen_by_others(table))
    for number in range(1, 4):
        commit.commit(Committable(number, [added(f"old-{number}", in_partition=partition("x"))]))
    io.calls.clear()
    return io, table


def _appended_and_compacted() -> CommitMessage:
    return CommitMessage(
        BucketId(partition("x"), 0),
        CommitIncrement(
            new_files=(data_file("new"),),
            changelog_files=(data_file("changes"),),
            compacted=CompactResult(
                before=(data_file("old-1"), data_file("new")), after=(data_file("merged", rows=2),)
            ),
        ),
    )


def append(table: TableContext) -> object:
    return committer(table).commit(Committable(100, [_appended_and_compacted()]))


def append_again(table: TableContext) -> object:
    """The same in a writer that has committed the newest snapshot. No call of its first commit fails."""
    io, commit = table.io, committer(table)
    if isinstance(io, FaultyFileIO):
        fault, calls, io.fault = io.fault, len(io.calls), lambda _: None
        commit.commit(Committable(99, [added("early", in_partition=partition("x"))]))
        table.snapshots.settle_hint()
        io.fault = fault
        del io.calls[calls:]
    return commit.commit(Committable(100, [_appended_and_compacted()]))


def overwrite(table: TableContext) -> object:
    return committer(table).overwrite(Committable(100, [added("new", in_partition=partition("x"))]), {"p": "x"})


OLD = ["old-1", "old-2", "old-3"]
EARLY = ["early", *OLD]


@pytest.mark.sampled
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize(
    ("run", "states"),
    [
        pytest.param(append, [OLD, ["new", *OLD], ["merged", *OLD[1:]]], id="append and compact"),
        pytest.param(
            append_again, [EARLY, ["early", "new", *OLD], ["early", "merged", *OLD[1:]]], id="append and compact, again"
        ),
        pytest.param(overwrite, [OLD, ["new"]], id="overwrite"),
    ],
)
def test_a_failure_at_any_call_leaves_a_valid_state_and_a_replay_completes(
    run: Callable[[TableContext], object], states: list[list[str]], fault: Fault
) -> None:
    """Also a failure for good: from that call on the store answers nothing more."""
    io, table = prepared()
    run(table)
    assert len(manifests_of(table)) < 5, "manifests were to be joined"
    for number, is_for_good in sample(list(itertools.product(range(len(io.calls)), (False, True)))):
        io, table = prepared()
        (io.fail_from if is_for_good else io.fail_call)(number, fault)
        failed = False
        try:
            run(table)
        except (FaultyIOError, CommitOutcomeUnknown):
            failed = True
        others = seen_by_others(table)
        where = f"call {number} of {io.calls}"
        assert live_names(others) in states, where
        assert named_by_snapshots(table) <= metadata_files(table), where
        if not failed:
            assert live_names(others) == states[-1], where
        run(others)
        kinds = [s.commit_kind for s in snapshots(others) if s.commit_identifier == 100]
        assert kinds in ([CommitKind.APPEND], [CommitKind.APPEND, CommitKind.COMPACT], [CommitKind.OVERWRITE]), where
        assert live_names(others) in states[1:], where


def manifests_of(table: TableContext) -> list[str]:
    others = seen_by_others(table)
    return [meta.file_name for meta in table_manifests(ManifestStore(others), latest(others))]


# ---------------------------------------------------------------- absent is not yet next


def expire_below(table: TableContext, snapshot_id: int) -> None:
    for gone in range(1, snapshot_id):
        store_of(table).delete_snapshot_file(gone)


@pytest.mark.parametrize("has_base", [True, False], ids=["on a snapshot", "on an empty table"])
def test_a_writer_paused_until_its_id_expired_does_not_publish_below_the_earliest(
    table: TableContext, io: FaultyFileIO, has_base: bool
) -> None:
    other = committer(seen_by_others(table), "other")
    if has_base:
        other.commit(Committable(0, [added("first")]))

    def others_continue() -> None:
        for number in range(1, 8):
            other.commit(Committable(number, [added(f"theirs-{number}")]))
        expire_below(table, 6)

    io.fault = once(others_continue)
    newest = 8 if has_base else 7
    assert committer(table).commit(Committable(1, [added("ours")])) == newest + 1
    assert store_of(table).ids() == list(range(6, newest + 2))
    table.snapshots.settle_hint()
    assert [c.nbytes for c in io.calls if c.name == "write" and c.file_name == "LATEST"] == [1]
    assert "ours" in live_names(table)


@pytest.mark.parametrize("slept", [False, True], ids=["built on ours", "built on the one that expired"])
def test_after_its_base_expired_the_next_snapshot_decides_the_outcome(
    table: TableContext, io: FaultyFileIO, slept: bool
) -> None:
    """In both cases the base has expired when we check after publishing, and the next id is taken."""
    other = committer(seen_by_others(table), "other")
    other.commit(Committable(0, [added("first")]))

    def take_next_and_expire() -> None:
        other.commit(Committable(1, [added("theirs-1")]))
        if slept:
            other.commit(Committable(2, [added("theirs-2")]))
        expire_below(table, 3 if slept else 2)

    def fault(call: Call) -> None:
        created = [c for c in io.calls if creates_snapshot(c)]
        before_ours = creates_snapshot(call) and len(created) == 1
        after_ours = call.name == "read" and call.file_name == "snapshot-1" and len(created) == 1
        if (before_ours if slept else after_ours) and "theirs-1" not in live_names(seen_by_others(table)):
            take_next_and_expire()

    io.fault = fault
    assert committer(table).commit(Committable(1, [added("ours")])) == (4 if slept else 2)
    assert store_of(table).ids() == ([3, 4] if slept else [2, 3])
    assert {"ours", "theirs-1"} <= set(live_names(table))


@pytest.mark.parametrize("is_compacted", [False, True], ids=["its file is in the table", "its file was compacted"])
def test_a_commit_that_expired_before_it_was_verified_is_known_as_long_as_the_table_has_its_file(
    is_compacted: bool,
) -> None:
    io, table = prepared()
    other = committer(seen_by_others(table), "other")

    def fault(call: Call) -> None:
        created = any(map(creates_snapshot, io.calls))
        if created and call.name == "read" and call.file_name == "snapshot-3" and store_of(table).exists(3):
            for number in range(3):
                other.commit(Committable(number, [added(f"theirs-{number}", in_partition=partition("x"))]))
            if is_compacted:
                other.commit(Committable(3, [_compacted("ours", "theirs-0")]))
                other.commit(Committable(4, [added("theirs-4", in_partition=partition("x"))]))
            expire_below(table, store_of(table).ids()[-1])

    io.fault = fault
    ours = committer(table)
    if is_compacted:
        with pytest.raises(CommitOutcomeUnknown, match="snapshot 4 was published, but expired before"):
            ours.commit(Committable(100, [added("ours", in_partition=partition("x"))]))
    else:
        assert ours.commit(Committable(100, [added("ours", in_partition=partition("x"))])) == 4
        assert "ours" in live_names(table)
    assert named_by_snapshots(table) <= metadata_files(table)


def _compacted(*before: str) -> CommitMessage:
    result = CompactResult(before=tuple(map(data_file, before)), after=(data_file("larger", rows=len(before)),))
    return CommitMessage(BucketId(partition("x"), 0), CommitIncrement(compacted=result))


def test_a_compaction_that_came_too_late_does_not_withdraw_the_rows_before_it() -> None:
    """The writer slept between its rows and their compaction: others used its id, and the snapshots expired.

    1 to 3 old   4 our rows   5 to 7 of others   →   1 to 6 expire   →   our compaction: 5, withdrawn, then 8
    """
    io, table = prepared()
    others = seen_by_others(table)
    other = committer(others, "other")
    slept: list[Call] = []

    def fault(call: Call) -> None:
        if creates_snapshot(call) and call.file_name == "snapshot-5" and not slept:
            slept.append(call)
            for number in range(3):
                other.commit(Committable(number, [added(f"theirs-{number}", in_partition=partition("x"))]))
            expire_below(table, 7)

    io.fault = fault
    assert committer(table).commit(Committable(100, [_appended_and_compacted()])) == 8
    assert slept
    assert store_of(table).ids() == [7, 8]
    assert set(live_names(table)) == {"merged", "old-2", "old-3", "theirs-0", "theirs-1", "theirs-2"}
    assert named_by_snapshots(table) <= metadata_files(table)


def test_a_stale_listing_does_not_make_a_first_snapshot_look_late(
    table: TableContext, io: FaultyFileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no base to prove it by, and what the directory shows is older than our own file."""
    monkeypatch.setattr(io, "list_directory", lambda path: [])
    commit = committer(table)
    assert commit.commit(Committable(1, [added("a")])) == 1
    assert committer(table, "other").commit(Committable(1, [added("b")])) == 2
    assert live_names(table) == ["a", "b"]


# ---------------------------------------------------------------- hints


HINTS = [None, b"", b"?", b"1", b"2", b"4", b"99", b"-1", b"3" * 30, b"\xff\xfe", bytes(8)]


@pytest.mark.parametrize("earliest", HINTS, ids=repr)
@pytest.mark.parametrize("latest_hint", HINTS, ids=repr)
def test_wrong_missing_or_torn_hints_have_no_effect(
    table: TableContext, latest_hint: bytes | None, earliest: bytes | None
) -> None:
    """For reading, recovering, replaying and committing. The table holds snapshots 2 to 4."""
    commit = committer(table)
    for number in range(1, 5):
        commit.commit(Committable(number, [added(f"a{number}")]))
    store_of(table).delete_snapshot_file(1)

    def spoil() -> None:
        for path, data in ((table.paths.latest_hint, latest_hint), (table.paths.earliest_hint, earliest)):
            table.io.delete(path) if data is None else table.io.write(path, data)

    spoil()
    assert live_names(table) == ["a1", "a2", "a3", "a4"]
    assert store_of(table).latest_id() == 4
    assert store_of(table).earliest_id() == (4 if earliest == b"4" else 2)  # expiry may have begun with 2 and 3
    newest = committer(table).latest_of_user()
    assert newest is not None
    assert newest.commit_identifier == 4
    assert committer(table).commit(Committable(4, [added("a4")])) is None
    for publish in (commit, committer(table)):
        spoil()
        identifier = latest(table).commit_identifier + 1
        assert publish.commit(Committable(identifier, [added(f"a{identifier}")])) == identifier
    assert live_names(table) == [f"a{number}" for number in range(1, 7)]


# ---------------------------------------------------------------- seen snapshots that changed


def test_a_replaced_own_snapshot_is_detected(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    replaced = replace(latest(table), commit_user="java", uuid="another")
    table.io.write(table.paths.snapshot(1), replaced.to_json().encode())
    with pytest.raises(CommitConflict, match="snapshot 1, which this writer committed, was replaced by one of java"):
        commit.commit(Committable(2, [added("b")]))


def test_a_replaced_own_snapshot_is_detected_below_newer_ones(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    replaced = replace(latest(table), commit_user="java", uuid="another")
    table.io.write(table.paths.snapshot(1), replaced.to_json().encode())
    committer(table, "java").commit(Committable(1, [added("theirs")]))
    with pytest.raises(CommitConflict, match="was replaced by one of java"):
        commit.commit(Committable(2, [added("b")]))


def test_a_rollback_is_detected(table: TableContext) -> None:
    commit = committer(table)
    for number in range(1, 4):
        commit.commit(Committable(number, [added(f"a{number}")]))
    table.io.write(table.paths.latest_hint, b"1")
    for gone in (3, 2):
        store_of(table).delete_snapshot_file(gone)
    with pytest.raises(
        CommitConflict, match=r"snapshot 3 of etl no longer exists \(the latest is 1 now\): the table was rolled back"
    ):
        commit.commit(Committable(4, [added("b")]))
    assert committer(table).commit(Committable(4, [added("b")])) == 2


def test_a_recreated_table_is_detected(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    table.io.delete_directory(table.paths.snapshot_directory)
    with pytest.raises(CommitConflict, match="the table has no snapshot now"):
        commit.commit(Committable(2, [added("b")]))


def test_expiry_of_seen_snapshots_does_not_stop_a_commit(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    other = committer(table, "other")
    for number in range(5):
        other.commit(Committable(number, [added(f"b{number}")]))
    expire_below(table, 5)
    assert commit.commit(Committable(2, [added("c")])) == 7


@pytest.mark.parametrize("has_expired", [True, False], ids=["others went on", "the file is lost"])
def test_a_base_that_expires_while_it_is_read_is_replaced_by_a_newer_one(
    table: TableContext, monkeypatch: pytest.MonkeyPatch, has_expired: bool
) -> None:
    other = committer(table, "other")
    other.commit(Committable(1, [added("theirs")]))
    right, calls = ConflictCheck.check, 0

    def check(self: ConflictCheck, request: CommitRequest, base: Snapshot | None, schema_id: int) -> CheckedChanges:
        nonlocal calls
        calls += request.committable.identifier == 9
        if calls == 1:
            calls += 1
            if has_expired:
                other.commit(Committable(2, [added("theirs, too")]))
                expire_below(table, 2)
            raise CorruptFile("manifest-list-1", "a metadata file that a snapshot references", "no file")
        return right(self, request, base, schema_id)

    monkeypatch.setattr(ConflictCheck, "check", check)
    ours = committer(table)
    if not has_expired:
        with pytest.raises(CorruptFile):
            ours.commit(Committable(9, [added("ours")]))
        return
    assert ours.commit(Committable(9, [added("ours")])) == 3
    assert live_names(table) == ["ours", "theirs", "theirs, too"]


# ---------------------------------------------------------------- the guard


def fence(epoch: int) -> Callable[[Sequence[Snapshot]], None]:
    """The fence of a pipeline: a higher epoch in a snapshot of its user means that another process took over."""

    def guard(new: Sequence[Snapshot]) -> None:
        if any(int(s.properties.get("epoch", 0)) > epoch for s in new if s.commit_user == "etl"):
            raise WriterFenced("a newer writer owns this pipeline")

    return guard


def test_a_fence_set_by_a_newer_writer_stops_the_older_one(table: TableContext) -> None:
    old, new = committer(table, guard=fence(1)), committer(table, guard=fence(2))
    old.commit(Committable(1, [added("a")], properties={"epoch": "1"}))
    new.commit(Committable(2, properties={"epoch": "2"}))
    with pytest.raises(WriterFenced):
        old.commit(Committable(3, [added("b")], properties={"epoch": "1"}))
    assert new.commit(Committable(3, [added("c")], properties={"epoch": "2"})) == 3
    assert live_names(table) == ["a", "c"]


def test_a_fence_set_in_the_moment_before_publishing_still_stops_it(table: TableContext, io: FaultyFileIO) -> None:
    new = committer(seen_by_others(table))
    io.fault = once(lambda: _ignore(new.commit(Committable(1, properties={"epoch": "2"}))))
    with pytest.raises(WriterFenced):
        committer(table, guard=fence(1)).commit(Committable(5, [added("b")], properties={"epoch": "1"}))
    assert live_names(table) == []
    assert metadata_files(table) == named_by_snapshots(table)


def test_a_fence_seen_just_before_a_store_failure_is_kept(table: TableContext, io: FaultyFileIO) -> None:
    """The first attempt fails while the fence is set; the second meets it, and can't read on; the third must stop."""
    new = committer(seen_by_others(table))

    def fault(call: Call) -> Fault | None:
        if creates_snapshot(call):
            new.commit(Committable(1, properties={"epoch": "2"}))
            return Fault.BEFORE
        reads = [c for c in io.calls if c.name == "read" and c.file_name == "snapshot-1"]
        return Fault.BEFORE if call.file_name == "snapshot-1" and len(reads) == 2 else None

    io.fault = fault
    with pytest.raises(WriterFenced):
        committer(table, guard=fence(1)).commit(Committable(5, [added("b")], properties={"epoch": "1"}))
    assert len([call for call in io.calls if creates_snapshot(call)]) == 1
    assert live_names(table) == []


def test_the_guard_sees_each_snapshot_since_the_newest_own_one_and_none_twice(table: TableContext) -> None:
    seen: list[list[int]] = []
    for number in (1, 2):
        committer(table).commit(Committable(number, [added(f"a{number}")]))
    committer(table, "other").commit(Committable(1, [added("b")]))
    commit = committer(table, guard=lambda new: seen.append([s.id for s in new]))
    commit.commit(Committable(3, [added("c")]))
    committer(table, "other").commit(Committable(2, [added("d")]))
    commit.commit(Committable(4, [added("e")]))
    commit.commit(Committable(5, [added("f")]))
    assert [ids for ids in seen if ids] == [[2, 3], [5]]


def test_a_guard_that_cannot_see_all_snapshots_stops_the_commit(table: TableContext) -> None:
    commit = committer(table, guard=lambda _: None)
    commit.commit(Committable(1, [added("a")]))
    other = committer(table, "other")
    for number in range(5):
        other.commit(Committable(number, [added(f"b{number}")]))
    expire_below(table, 5)
    with pytest.raises(CommitConflict, match="it is unknown whether a newer writer took over"):
        commit.commit(Committable(2, [added("c")]))


# ---------------------------------------------------------------- costs


def test_the_bytes_of_a_commit_stay_constant_and_nothing_is_listed(io: FaultyFileIO, table: TableContext) -> None:
    """2,000 snapshots with one file each; the table keeps them all, so its manifests grow."""
    commit, costs = committer(table), []
    for number in range(2_000):
        before = len(io.calls)
        commit.commit(Committable(number, [added(f"data-558cf2ff-8452-4868-a29e-d890247edb24-{number}.parquet")]))
        costs.append(sum(call.nbytes for call in io.calls[before:]))
        if number > 0:
            assert not [call for call in io.calls[before:] if call.name == "list_directory"]
            assert len(io.calls) - before <= 12
    early, late = costs[10:310], costs[-300:]
    assert sorted(late)[150] < 1.1 * sorted(early)[150]
    assert sum(late) < 1.1 * sum(early)
    assert max(late) < 5 * sorted(early)[150]


# ---------------------------------------------------------------- help


def metadata_files(table: TableContext) -> set[str]:
    others = seen_by_others(table)
    return {file.name for file in others.io.list_directory(others.paths.manifest_directory)}


def named_by_snapshots(table: TableContext) -> set[str]:
    """Every metadata file that a snapshot leads to."""
    others = seen_by_others(table)
    manifests = ManifestStore(others)
    names: set[str] = set()
    for snapshot in snapshots(others):
        names |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        names |= {meta.file_name for meta in table_manifests(manifests, snapshot)}
        if snapshot.changelog_manifest_list is not None:
            changelog = ListFile(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
            names |= {changelog.name, *(meta.file_name for meta in manifests.read_list(changelog))}
    return names


def _ignore(_: object) -> None:
    """For actions whose result means nothing here."""


def test_the_helper_for_referenced_files_is_correct(table: TableContext) -> None:
    committer(table).commit(Committable(1, [added("a")]))
    assert len(named_by_snapshots(table)) == 3
    io: FileIO = seen_by_others(table).io
    assert all(io.exists(table.paths.manifest(name)) for name in named_by_snapshots(table))
