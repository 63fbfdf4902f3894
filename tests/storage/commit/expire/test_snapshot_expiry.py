"""Which snapshots and files expire, compared with a naive model, and after a crash in any call."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.storage.commit.expire.table_model import TableLife, new_life
from tests.storage.model.snapshots.tables import live_names
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError
from tests.support.levels import sample
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import ExpiryRound, SnapshotExpiry
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import inspect, verify
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.table import TableContext


def expire(life: TableLife, retention: Retention, pins: tuple[int, ...] = ()) -> ExpiryRound | None:
    expiry = SnapshotExpiry(life.table, retention=retention, pins=lambda: pins, now_ms=lambda: life.time.now_ms)
    return expiry.run()


def check(life: TableLife) -> None:
    """All that stays reads as before, and of what went nothing is left."""
    store = life.table.snapshots
    assert store.ids() == sorted(life.states)
    for snapshot in store.all():
        assert live_names(life.table, snapshot) == sorted(name for _, name in life.states[snapshot.id])
    report = inspect(life.table, orphans_older_than_ms=-(10**15))
    assert report.findings == ()
    assert report.orphans is not None
    assert report.orphans.paths == ()
    assert life.files_that_are_there() == life.files_that_must_be_there()


def drawn_retention(life: TableLife) -> Retention:
    dice = life.dice
    least = dice.randint(1, 6)
    most = least + dice.choice([0, 3, 10**6])
    return Retention(least, most, dice.choice([0, 120_000, 3_600_000]), dice.randint(1, 8))


@pytest.mark.exhaustive(kept=3)
@pytest.mark.parametrize("seed", range(10))
def test_random_histories_keep_exactly_the_referenced_files(seed: int) -> None:
    life = new_life(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed)
    gone = 0
    for _ in range(60):
        life.step()
        if life.states and life.dice.random() < 0.3:
            pins = (life.dice.choice(sorted(life.states)),) if life.dice.random() < 0.3 else ()
            retention = drawn_retention(life)
            expected = life.expected_to_go(retention, pins)
            found = expire(life, retention, pins)
            assert (found.snapshots if found is not None else 0) == len(expected)
            life.expired(expected)
            check(life)
            gone += len(expected)
    assert gone > 0


def test_a_file_added_again_by_a_later_snapshot_is_kept() -> None:
    """As Java's rollback to a tag does. The tag may have been deleted by then."""
    life = new_life(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed=0)
    life.append()
    bucket = next(iter(life.live))[0]
    files = list(life.live.values())
    life.overwrite_bucket(bucket)
    life.restore(bucket, files)
    life.append()
    for stay in (3, 2, 1):
        retention = Retention(num_min=stay, num_max=stay, time_ms=0, limit=1)
        expire(life, retention)
        life.expired([min(life.states)])
        check(life)


def test_files_and_metadata_referenced_only_by_another_branch_are_kept() -> None:
    """Though no tag holds them: Java lets such a tag be deleted, too."""
    life = new_life(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed=1)
    life.append()
    life.append()
    root, branch = life.table.location, life.table.paths.branch_root("dev")
    for part in ("schema/schema-0", "snapshot/snapshot-2"):
        life.table.io.write(f"{branch}/{part}", life.table.io.read(f"{root}/{part}"))
    for step in (life.compact, life.overwrite, life.truncate, life.append):
        step()
    expire(life, Retention(num_min=1, num_max=1, time_ms=0, limit=100))
    assert len(life.table.snapshots.ids()) == 1
    assert verify(life.table) == []
    on_branch = TableContext.open(life.table.io, root, "db.t", branch="dev")
    assert live_names(on_branch) == sorted(name for _, name in life.states[2])


def test_unreadable_metadata_does_not_block_expiry(caplog: pytest.LogCaptureFixture) -> None:
    life = new_life(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed=2)
    for step in (life.append, life.append, life.append, life.append):
        step()
    second = life.table.snapshots.get(2)
    life.table.io.write(life.table.paths.manifest(second.delta_manifest_list), b"noise")
    life.table = life.table.with_cache(MetadataCache())
    found = expire(life, Retention(num_min=1, num_max=1, time_ms=0, limit=100))
    assert found is not None
    assert found.snapshots == 3
    assert any(second.delta_manifest_list in record.getMessage() for record in caplog.records)


# ---------------------------------------------------------------- cut off


def a_life(seed: int = 4) -> TableLife:
    """With tags, a compaction and files that were brought back."""
    life = new_life(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed)
    for step in (life.append, life.tag, life.upgrade, life.append, life.compact, life.bring_back, life.overwrite):
        step()
    return life


def copied(life: TableLife) -> TableLife:
    location = f"memory://{uuid.uuid4()}/t"
    copy_directory(life.table.io, life.table.location, location)
    return replace(life, table=replace(life.table, location=location), states=dict(life.states), gone={})


def copy_directory(io: FileIO, source: str, target: str) -> None:
    for status in io.list_directory(source):
        if status.is_directory:
            copy_directory(io, f"{source}/{status.name}", f"{target}/{status.name}")
        else:
            io.write(f"{target}/{status.name}", io.read(f"{source}/{status.name}"))


RETENTION = Retention(num_min=3, num_max=3, time_ms=0, limit=1000)
FURTHER = replace(RETENTION, num_min=2, num_max=2)


def calls_of_a_round(life: TableLife) -> int:
    """How many I/O calls it takes; every one of them is a place to fail at."""
    healthy = copied(life)
    io = FaultyFileIO(healthy.table.io)
    expire(replace(healthy, table=replace(healthy.table, io=io)), RETENTION)
    return len(io.calls)


def check_readable(life: TableLife) -> None:
    """From the snapshot on that the hint EARLIEST names, and at every tag."""
    store = life.table.snapshots
    hint = life.table.paths.earliest_hint
    earliest = int(life.table.io.read(hint)) if life.table.io.exists(hint) else 1
    for snapshot in store.range(earliest, store.latest_id()):
        assert live_names(life.table, snapshot) == sorted(name for _, name in life.states[snapshot.id])
    assert verify(life.table) == []


@pytest.mark.sampled
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_after_a_crash_anywhere_the_table_is_readable_and_the_next_round_completes(fault: Fault) -> None:
    life = a_life()
    going = life.expected_to_go(RETENTION)
    calls = calls_of_a_round(life)
    assert calls > 50
    for number in sample(range(calls)):
        cut = copied(life)
        io = FaultyFileIO(cut.table.io)
        io.fail_from(number, fault)
        with suppress(FaultyIOError):
            expire(replace(cut, table=replace(cut.table, io=io)), RETENTION)
        check_readable(cut)
        expire(cut, RETENTION)
        cut.expired(going)
        check(cut)


@pytest.mark.sampled
def test_two_concurrent_expiries_give_the_result_of_one() -> None:
    life = a_life()
    for number in sample(range(calls_of_a_round(life))):
        shared = copied(life)
        io = FaultyFileIO(shared.table.io)

        def the_other_one(call: Call, at: int = number, io: FaultyFileIO = io, life: TableLife = shared) -> None:
            if len(io.calls) == at + 1:
                expire(life, FURTHER)

        io.fault = the_other_one
        expire(replace(shared, table=replace(shared.table, io=io)), RETENTION)
        check_readable(shared)
        # A reader that trusted a smaller one would begin at a snapshot that is deleted by half.
        assert shared.table.snapshots.earliest_hint() == shared.table.snapshots.ids()[0]
        going = shared.expected_to_go(FURTHER)
        expire(shared, FURTHER)
        shared.expired(going)
        check(shared)


def test_a_tag_is_created_while_another_process_expires_all_that_this_one_was_to_expire() -> None:
    life = new_life(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed=1)
    for _ in range(6):
        life.append()
    retention = Retention(num_min=2, num_max=2, time_ms=0, limit=1)
    ours = SnapshotExpiry(life.table, retention=retention, now_ms=lambda: life.time.now_ms)
    assert ours.run() is not None
    expire(life, replace(retention, limit=100))
    life.expired([1, 2, 3, 4])
    life.tag()
    found = ours.run()
    assert found is not None
    assert found.snapshots == 0
    assert ours.run() is None
    check(life)


def test_a_consumer_that_comes_before_the_hint_has_moved_keeps_its_snapshots() -> None:
    """The expiry has read the list of consumers before that, and may have slept since."""
    kept = list[bool]()
    life = a_life()
    for number in range(calls_of_a_round(life)):
        shared = copied(life)
        io = FaultyFileIO(shared.table.io)

        def follow(call: Call, at: int = number, io: FaultyFileIO = io, life: TableLife = shared) -> None:
            if len(io.calls) == at + 1:
                store = life.table.snapshots
                is_in_time = (store.earliest_hint() or 1) <= 2 and store.exists(2)
                kept.append(is_in_time)
                Consumer(life.table.io, life.table.paths, "slow").write(2)

        io.fault = follow
        expire(replace(shared, table=replace(shared.table, io=io)), RETENTION)
        expire(shared, RETENTION)
        if kept[-1]:
            assert shared.table.snapshots.ids()[0] == shared.table.snapshots.earliest_hint() == 2
            check_readable(shared)
    assert {True, False} == set(kept)
