"""A failing table neither stops nor delays the others, and loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from tests.ingest.formats.debezium.changes import change
from tests.ingest.quarantine.world import GrowingSource, QuarantineWorld, until
from tests.support.faulty_file_io import Call, Fault, FaultyIOError
from tests.support.levels import is_of_the_day, sample
from tests.support.memory_log import MemoryLogSource
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import CommitConflict, QuarantineFull, RecordRefused
from tidelake.ingest.quarantine.record_log import read_notices
from tidelake.ingest.raw_batch import RawBatch
from tidelake.table import Table


@pytest.fixture(params=[False, True], ids=["a topic each", "one topic for all"])
def world(request: pytest.FixtureRequest) -> QuarantineWorld:
    return QuarantineWorld(is_shared=request.param)


async def test_other_tables_continue_and_the_quarantined_table_catches_up(world: QuarantineWorld) -> None:
    source = GrowingSource(world.log)
    pipeline = await asyncio.to_thread(world.pipeline, source)
    running = asyncio.create_task(pipeline.run())
    await until(lambda: not world.wrong(), running)
    world.broken = {"t1"}
    for number in range(30):
        for name in world.names:
            world.add(name, number)
    await until(lambda: world.wrong().keys() == {"t1"}, running)
    (notice,) = await asyncio.to_thread(read_notices, world.store, f"{world.warehouse}/shop.quarantine")
    assert notice.table == "shop.t1"
    assert "injected" in notice.reason
    world.broken = set()
    world.add("t1", 30)
    await until(lambda: not world.wrong(), running)
    await until(lambda: not world.kept(), running)
    world.add("t1", 31)
    world.add("t0", 31)
    await until(lambda: not world.wrong(), running)
    pipeline.stop()
    await running
    assert not await asyncio.to_thread(world.wrong)
    assert not await asyncio.to_thread(world.breaks)


async def test_records_that_wait_for_their_table_do_not_count_as_skipped() -> None:
    # A retry that fails would have records read again.
    world = await asyncio.to_thread(partial(QuarantineWorld, is_shared=True, retry_ms=600_000))
    source = GrowingSource(world.log)
    pipeline = await asyncio.to_thread(world.pipeline, source)
    running = asyncio.create_task(pipeline.run())
    await until(lambda: not world.wrong(), running)
    world.broken = {"t1"}
    world.add("t1", 0)
    await until(lambda: bool(world.kept()), running)
    for number in range(1, 20):
        for name in ("t1", "t0", "of no entry"):
            world.add(name, number)
    await until(lambda: world.wrong().keys() == {"t1"} and world.rows("t0")[-1] == 19, running)
    pipeline.stop()
    world.broken = set()
    assert (await running).skipped == {"table not configured": 19}


async def test_a_table_whose_commits_fail_is_retried_with_growing_delays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await asyncio.to_thread(
        partial(QuarantineWorld, refuses=lambda call: call.name == "open_output" and "/manifest/" in call.path)
    )
    running = asyncio.create_task((await asyncio.to_thread(world.pipeline, GrowingSource(world.log))).run())
    await until(lambda: not world.wrong(), running)
    world.broken = {"t1"}
    world.add("t1", 1)
    notices = partial(read_notices, world.store, f"{world.warehouse}/shop.quarantine")
    await until(lambda: any(notice.attempts >= 1 for notice in notices()), running)
    (first,) = await asyncio.to_thread(notices)
    await until(lambda: any(notice.attempts >= 4 for notice in notices()), running)
    (last,) = await asyncio.to_thread(notices)
    assert (last.table, last.since_ms) == ("shop.t1", first.since_ms)
    assert (
        "table is out of quarantine" not in caplog.text
    )  # it received its rows repeatedly, and committed none of them
    world.broken = set()
    await until(lambda: not world.wrong() and not world.kept(), running)
    assert "table is out of quarantine" in caplog.text
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert not await asyncio.to_thread(world.breaks)


async def test_one_poisoned_table_of_twenty_delays_no_checkpoint_of_the_others() -> None:
    world = await asyncio.to_thread(partial(QuarantineWorld, tables=20, broken={"t7"}))
    source = GrowingSource(world.log)
    pipeline = await asyncio.to_thread(world.pipeline, source)
    running = asyncio.create_task(pipeline.run())
    for number in range(2):
        for name in world.names:
            world.add(name, number)
        await until(lambda: world.wrong().keys() == {"t7"}, running)
    pipeline.stop()
    assert (await running).ended == "stopped"
    assert await asyncio.to_thread(world.kept) == ["shop.t7"]


async def test_a_checkpoint_that_fails_while_a_table_catches_up_stops_the_pipeline_if_no_table_is_left() -> None:
    """A truncate that was kept for the table takes a checkpoint of all tables. Its error is not the table's own."""
    world = await asyncio.to_thread(
        partial(QuarantineWorld, tables=2, is_shared=True, interval_ms=600_000, retry_ms=500, broken={"t0", "t1"})
    )

    def refuses(call: Call) -> bool:
        return call.name in ("open_output", "create_if_absent", "write") and ("/t1/" in call.path) == bool(world.kept())

    world.refuses = refuses
    truncate = change("t", key=None, source={"db": "s", "table": "t0"})
    world.log.append("all", truncate.value, None, 0)
    world.add("t1", 0)
    pipeline = await asyncio.to_thread(world.pipeline, GrowingSource(world.log))
    async with asyncio.timeout(30):
        with pytest.raises(FaultyIOError, match=r"injected"):
            await pipeline.run()


async def test_a_failing_only_table_stops_the_pipeline() -> None:
    world = await asyncio.to_thread(partial(QuarantineWorld, tables=2, broken={"t0", "t1"}))
    source = GrowingSource(world.log)
    pipeline = await asyncio.to_thread(world.pipeline, source)
    with pytest.raises((FaultyIOError, ExceptionGroup), match=r"injected|several tables failed"):
        await pipeline.run()


async def test_too_many_kept_records_stop_the_pipeline_and_name_the_table() -> None:
    world = await asyncio.to_thread(partial(QuarantineWorld, broken={"t1"}, quarantine="table_bytes_max: 2000"))
    for number in range(100):
        world.add("t1", number)
    pipeline = await asyncio.to_thread(world.pipeline, GrowingSource(world.log))
    with pytest.raises(QuarantineFull, match=r"shop.t1 has been in quarantine too long.*`quarantine.table_bytes_max`"):
        await pipeline.run()
    world.broken, world.quarantine = set(), ""
    await to_the_end(world)
    assert not await asyncio.to_thread(world.wrong)


async def test_a_table_that_cannot_be_created_is_quarantined_until_it_can() -> None:
    world = await asyncio.to_thread(partial(QuarantineWorld, are_created=False, broken={"t1"}))
    for name in world.names:
        for number in range(5):
            world.add(name, number)
    source = GrowingSource(world.log)
    pipeline = await asyncio.to_thread(world.pipeline, source)
    running = asyncio.create_task(pipeline.run())
    await until(lambda: world.wrong().keys() == {"t1"}, running)
    world.broken = set()
    await until(lambda: not world.wrong(), running)
    pipeline.stop()
    await running
    assert not await asyncio.to_thread(world.breaks)


async def test_a_table_that_catches_up_gets_its_derived_columns() -> None:
    entry = "computed_columns: {loud: upper(word)}, metadata_columns: [topic]"
    world = await asyncio.to_thread(partial(QuarantineWorld, tables=2, are_created=False, entry=entry))
    for name in world.names:
        world.add(name, 0, word="before")
    pipeline = await asyncio.to_thread(world.pipeline, GrowingSource(world.log))
    running = asyncio.create_task(pipeline.run())
    await until(lambda: not world.wrong(), running)
    world.broken = {"t1"}
    world.add("t1", 1, word="meanwhile")
    world.add("t0", 1, word="meanwhile")
    await until(lambda: bool(world.kept()), running)
    world.broken = set()
    await until(lambda: not world.wrong() and not world.kept(), running)
    world.add("t1", 2, word="after")
    await until(lambda: not world.wrong(), running)
    pipeline.stop()
    await running
    rows = await asyncio.to_thread(
        lambda: Table(world.catalog.load("shop.t1")).scan(columns=["id", "loud", "topic"]).to_arrow().to_pylist()
    )
    assert sorted(tuple(row.values()) for row in rows) == [
        ("0", "BEFORE", "s.t1"),
        ("1", "MEANWHILE", "s.t1"),
        ("2", "AFTER", "s.t1"),
    ]


async def test_a_record_that_a_table_rejects_stops_that_table_before_the_record() -> None:
    world = await asyncio.to_thread(QuarantineWorld)
    world.add("t1", 1)
    world.log.append(world.topic("t1"), b"no record", None, 1)
    world.add("t1", 5)
    world.add("t0", 1)
    pipeline = await asyncio.to_thread(world.pipeline, GrowingSource(world.log))
    running = asyncio.create_task(pipeline.run())
    await until(lambda: world.rows("t0") == [-1, 1] and world.rows("t1") == [-1, 1], running)
    (notice,) = await asyncio.to_thread(read_notices, world.store, f"{world.warehouse}/shop.quarantine")
    assert "partition 1, offset 1: " in notice.reason
    pipeline.stop()
    assert (await running).ended == "stopped"
    world.tolerance = "all"
    await to_the_end(world)
    assert not await asyncio.to_thread(world.wrong)
    assert not await asyncio.to_thread(world.breaks)


@pytest.mark.parametrize("are_created", [False, True], ids=["tables that don't exist yet", "existing tables"])
@pytest.mark.parametrize("is_last", [False, True], ids=["a record follows", "the last record"])
async def test_a_bounded_run_commits_the_rows_before_a_record_that_a_table_rejects(
    world: QuarantineWorld, are_created: bool, is_last: bool
) -> None:
    """Each run, however often it is repeated, as a run without end does; the source may end before the record fails."""
    world = await asyncio.to_thread(QuarantineWorld, is_shared=world.is_shared, are_created=are_created)
    for name in world.names:
        world.add(name, 2)
        world.add(name, 4)
    world.log.append(world.topic("t1"), b"{}", None)
    if not is_last:
        world.add("t1", 6)
        world.truth["t1"].remove(6)
    for _ in range(2):
        with pytest.raises(RecordRefused, match=f"topic {world.topic('t1')}, partition 0, offset"):
            await to_the_end(world)
        assert not await asyncio.to_thread(world.wrong)
    world.tolerance = "all"
    if not is_last:
        world.truth["t1"].append(6)
    await to_the_end(world)
    assert not await asyncio.to_thread(world.wrong)
    assert not await asyncio.to_thread(world.breaks)


async def test_a_partition_found_during_quarantine_is_read_from_its_beginning(
    world: QuarantineWorld,
) -> None:
    source = LatePartitionSource(world)
    io = world.io()
    world.broken, world.refuses, begin = {"t1"}, lambda call: "/bucket-" in call.path, io.begin

    def begin_late(call: Call) -> Fault | None:
        if call.name == "open_output" and "/t1/bucket-" in call.path:
            assert source.has_read_it.wait(20)
        return begin(call)

    io.begin = begin_late  # type: ignore[method-assign]
    world.add("t1", 2)
    pipeline = await asyncio.to_thread(world.pipeline, source, io)
    running = asyncio.create_task(pipeline.run())
    await until(lambda: world.kept() == ["shop.t1"], running)
    world.broken = set()
    await until(lambda: not world.wrong(), running)
    pipeline.stop()
    await running
    assert 1 in await asyncio.to_thread(world.rows, "t1")


class LatePartitionSource(GrowingSource):
    """Partition 1 of `t1` comes up after the first records of partition 0."""

    def __init__(self, world: QuarantineWorld) -> None:
        super().__init__(world.log)
        self.world = world
        self.has_read_it = threading.Event()

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        late, at = TopicPartition(self.world.topic("t1"), 1), dict(positions)
        if late not in self.world.log.records:
            async for batch in MemoryLogSource.read(self, positions):
                at[TopicPartition(batch.topic, batch.partition)] = batch.next_offset
                yield batch
            self.world.add("t1", 1)
        async for batch in super().read(at):
            yield batch
            if len(batch) and (batch.topic, batch.partition) == (late.topic, late.partition):
                self.has_read_it.set()


async def test_a_table_unreadable_at_the_start_catches_up_once_readable(world: QuarantineWorld) -> None:
    for number in range(4):
        world.add("t1", number)
        world.add("t0", number)
    await to_the_end(world)
    path = f"{world.warehouse}/shop.db/t1/schema/schema-0"
    sound = await asyncio.to_thread(world.store.read, path)

    def put(data: bytes) -> None:
        world.store.delete(path)
        world.store.create_if_absent(path, data)

    await asyncio.to_thread(put, b"{broken")
    for number in range(4, 9):
        for name in world.names:
            world.add(name, number)
    for _ in range(2):  # nothing is lost by another start
        pipeline = await asyncio.to_thread(world.pipeline, GrowingSource(world.log))
        running = asyncio.create_task(pipeline.run())
        await until(lambda: world.rows("t0") == sorted(world.truth["t0"]), running)
        world.add("t0", 100 + len(world.truth["t0"]))
        await until(lambda: world.rows("t0") == sorted(world.truth["t0"]), running)
        pipeline.stop()
        await running
    pipeline = await asyncio.to_thread(world.pipeline, GrowingSource(world.log))
    running = asyncio.create_task(pipeline.run())
    await asyncio.sleep(0.1)
    await asyncio.to_thread(put, sound)
    world.add("t1", 50)
    await until(lambda: not world.wrong(), running)
    pipeline.stop()
    await running
    assert not await asyncio.to_thread(world.breaks)


async def to_the_end(world: QuarantineWorld) -> None:
    """Processes until one has read all. A table that fails with the last record is the next one's."""
    for _ in range(5):
        source = GrowingSource(world.log)
        source.ends.set()
        pipeline = await asyncio.to_thread(world.pipeline, source)
        try:
            await pipeline.run()
        except (FaultyIOError, CommitConflict):
            continue
        return
    raise AssertionError("no process got through")


SEEDS = [
    pytest.param(seed, marks=[] if is_of_the_day(seed // 5, 2) else [pytest.mark.long]) for seed in sample(range(20))
]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_shared", [False, True], ids=["a topic each", "one topic for all"])
async def test_no_record_is_lost_or_repeated_by_failing_tables_and_crashes(seed: int, is_shared: bool) -> None:
    random = Random(seed)
    world = await asyncio.to_thread(
        partial(QuarantineWorld, tables=4, is_shared=is_shared, are_created=random.random() < 0.8)
    )
    number = 0
    for _ in range(random.randint(2, 4)):
        io, source = world.io(), GrowingSource(world.log)
        pipeline = await asyncio.to_thread(world.pipeline, source, io)
        running = asyncio.create_task(pipeline.run())
        for _ in range(random.randint(2, 6)):
            world.broken = set(random.sample(world.names, random.choice([0, 0, 1, 1, 2])))
            for _ in range(random.randint(1, 12)):
                number += 1
                world.add(random.choice(world.names), number)
            await asyncio.sleep(random.random() * 0.1)
        io.is_dead = True
        with suppress(BaseException):
            await running
    world.broken = set()
    await to_the_end(world)
    assert not await asyncio.to_thread(world.wrong)
    assert not await asyncio.to_thread(world.breaks)
    assert not await asyncio.to_thread(world.kept)
