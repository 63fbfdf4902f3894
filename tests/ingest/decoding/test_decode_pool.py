"""Processes that decode ahead: order, kills, tables that change meanwhile, batches of every size, and their end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.crash.points import Points
from tests.ingest.decoding.pools import decoded_by, has_ended, pool_of, until, wait_for_end
from tests.ingest.formats.debezium.changes import TOPIC, assert_same, batch_of, change, orders, raw
from tidelake.errors import BadInput
from tidelake.ingest.decoding import decode_pool, decoder_process, decoder_program
from tidelake.ingest.decoding.decode_pool import DecodePool
from tidelake.ingest.decoding.decoder_process import DecoderProcess, DecodeTask
from tidelake.ingest.decoding.decoder_program import decode_until_end
from tidelake.ingest.decoding.shared_slots import SharedSlots
from tidelake.ingest.decoding.target_numbers import DecoderSetup, TargetNumbers
from tidelake.ingest.formats.base import DecodedBatch, Target
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.monitoring.observations import DecodingCounts
from tidelake.ingest.raw_batch import RawBatch

FORMAT = DebeziumJson.with_options({})
ORDERS = orders()


@pytest.fixture(autouse=True)
def small_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "SMALL_BYTES", 0)


class Tables:
    """The targets of a pipeline, by topic."""

    def __init__(self, **targets: Target | Exception) -> None:
        self.targets: dict[str, Target | Exception] = {TOPIC: ORDERS, **targets}

    def __call__(self, source: SourceTable) -> Target | None:
        found = self.targets.get(source.topic)
        if isinstance(found, Exception):
            raise found
        return found


def batches(count: int, rows: int = 40, topic: str = TOPIC) -> list[RawBatch]:
    """Every third has a record that can't be decoded."""
    found = []
    for number in range(count):
        records = [change("c", None, {"id": row, "note": f"ü{number}", "qty": row}) for row in range(rows)]
        if number % 3 == 0:
            records[rows // 2] = raw("no JSON", b"key")
        found.append(batch_of(records, number * rows, topic))
    return found


def here(found: Sequence[RawBatch], tables: Tables) -> list[DecodedBatch]:
    decoder = FORMAT.decoder(tables)
    return [decoder.decode(batch) for batch in found]


def check(found: Sequence[DecodedBatch | None], batches_: Sequence[RawBatch], tables: Tables) -> None:
    """All are there, each in its place. What no process decoded is decoded by the pipeline, which needs no check."""
    assert len(found) == len(batches_)
    for one, expected in zip(found, here(batches_, tables), strict=True):
        if one is not None:
            assert_same(one, expected)


async def test_batches_come_back_in_their_order_from_several_processes() -> None:
    tables, given = Tables(), batches(40)
    async with pool_of(FORMAT, tables, size=3) as pool:
        found = await decoded_by(pool, given)
    assert None not in found
    check(found, given, tables)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
async def test_a_killed_process_is_replaced_and_nothing_is_lost_or_comes_twice(seed: int, points: Points) -> None:
    chance, tables, given, counts = random.Random(seed), Tables(), batches(150), DecodingCounts()
    async with pool_of(FORMAT, tables, 2, counts) as pool:
        tasks = [pool.task(batch) for batch in given]
        kill_before = set(chance.sample(range(len(given)), 12))

        async def begin() -> None:
            for number, task in enumerate(tasks):
                if number in kill_before and pool.pids:
                    victim = chance.choice(pool.pids)
                    if chance.random() < 0.3:
                        os.kill(victim, signal.SIGSTOP)  # it hangs, and is killed while a batch waits for it
                        await asyncio.sleep(0.02)
                    os.kill(victim, signal.SIGKILL)
                    points.tried("decoding: a process was killed")
                await pool.begin(task)
                await asyncio.sleep(chance.random() * 0.02)

        beginning = asyncio.create_task(begin())
        found = [await pool.decoded(task) for task in tasks]
        await beginning
        check(found, given, tables)
        assert counts.restarts > 0
        assert sum(one is not None for one in found) == counts.batches > 0
        await until(lambda: pool.ready == 2)  # after all of that
        assert None not in await decoded_by(pool, given[:10])


async def test_bytes_in_flight_are_those_of_batches_that_were_not_taken_back() -> None:
    given, counts = batches(3), DecodingCounts()
    async with pool_of(FORMAT, Tables(), 1, counts) as pool:
        assert counts.processes == 1
        tasks = [pool.task(batch) for batch in given]
        assert counts.bytes_in_flight == sum(batch.nbytes for batch in given)
        for task in tasks:
            await pool.begin(task)
            await pool.decoded(task)
        assert counts.bytes_in_flight == 0


async def test_a_batch_is_decoded_again_if_its_table_changed_meanwhile() -> None:
    tables, given, counts = Tables(), batches(4), DecodingCounts()
    async with pool_of(FORMAT, tables, 1, counts) as pool:
        (first,) = await decoded_by(pool, given[:1])
        task = pool.task(given[1])
        await pool.begin(task)
        await asyncio.wait({task.outcome})
        wider = tables.targets[TOPIC] = orders({"id": "BIGINT", "note": "STRING", "qty": "BIGINT"})
        assert await pool.decoded(task) is None
        (later,) = await decoded_by(pool, given[2:3])  # the process has heard of it
        assert first is not None
        assert later is not None
        assert [first.tables[0].target, later.tables[0].target] == [ORDERS, wider]
        assert later.tables[0].target is wider
        assert counts.outdated == 1


async def test_rows_of_a_table_that_appears_are_decoded_again() -> None:
    tables, given = Tables(), batches(2, topic="new")
    async with pool_of(FORMAT, tables) as pool:
        (unrouted,) = await decoded_by(pool, given[:1])
        assert unrouted is not None
        assert [source.topic for source in unrouted.unrouted] == ["new"]
        task = pool.task(given[0])
        await pool.begin(task)
        await asyncio.wait({task.outcome})
        tables.targets["new"] = replace(ORDERS, name="shop.new")
        assert await pool.decoded(task) is None
        (routed,) = await decoded_by(pool, given[1:])
        assert routed is not None
        assert [part.target.name for part in routed.tables] == ["shop.new"]


async def test_a_table_may_change_at_any_time(points: Points) -> None:
    """Each result is that of the table as it is when the result is taken."""
    chance, tables, given = random.Random(9), Tables(), batches(120)
    other = orders({"id": "BIGINT", "note": "STRING", "qty": "BIGINT", "more": "STRING"})
    async with pool_of(FORMAT, tables, 2) as pool:
        tasks = [pool.task(batch) for batch in given]

        async def begin() -> None:
            for task in tasks:
                await pool.begin(task)

        beginning = asyncio.create_task(begin())
        for task, batch in zip(tasks, given, strict=True):
            if chance.random() < 0.2:
                tables.targets[TOPIC] = replace(chance.choice([ORDERS, other]))  # a new object each time
                points.tried("decoding: a table changed")
            if (found := await pool.decoded(task)) is not None:
                assert found.tables[0].target is tables.targets[TOPIC]
                assert_same(found, FORMAT.decoder(tables).decode(batch))
        await beginning


@pytest.mark.parametrize("known", [False, True], ids=["asked for while it decodes", "found to be wrong before"])
async def test_an_error_instead_of_a_target_is_left_to_the_pipeline(known: bool) -> None:
    tables, given = Tables(), batches(2)
    async with pool_of(FORMAT, tables) as pool:
        if known:
            await decoded_by(pool, given[:1])
        tables.targets[TOPIC] = BadInput("a and b both match")
        assert await decoded_by(pool, given[:1]) == [None]
        tables.targets[TOPIC] = ORDERS
        assert None not in await decoded_by(pool, given)


async def test_batches_larger_than_a_slot_are_decoded_by_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = batches(2)[1], batches(2, rows=4_000)[1]
    monkeypatch.setattr(decoder_process, "SLOT_BYTES", large.nbytes)
    async with pool_of(FORMAT, Tables()) as pool:
        found = await decoded_by(pool, [small, large, small])
    assert [one is None for one in found] == [False, True, False]


async def test_small_batches_are_decoded_by_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "SMALL_BYTES", 1 << 20)
    async with pool_of(FORMAT, Tables()) as pool:
        assert await decoded_by(pool, batches(2)) == [None, None]


async def test_rows_larger_than_a_slot_come_through_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs in a thread here, so that its slots seem to be small."""

    class Running:
        """A thread that looks like a process."""

        pid = 0

        def kill(self) -> None: ...

        def wait(self) -> int:
            return 0

    async def result_of(batch: RawBatch) -> DecodedBatch:
        here_, there = socket.socketpair()
        slots = SharedSlots.new()
        numbers = TargetNumbers(Tables(), lambda table: ())
        process = DecoderProcess(cast(Any, Running()), slots, here_, numbers, lambda: None)
        thread = threading.Thread(target=lambda: decode_until_end(there, slots))
        serving = asyncio.create_task(process.serve(DecoderSetup(FORMAT)))
        await until(lambda: process._writer is not None)
        thread.start()
        await until(lambda: process.has_room)
        task = DecodeTask(batch)
        assert process.begin(task)
        outcome = await task.outcome
        process.disconnect()
        await serving
        await asyncio.to_thread(thread.join)
        there.close()
        assert outcome is not None
        return outcome.decoded

    (batch,) = batches(1)
    in_slot = await result_of(batch)
    monkeypatch.setattr(decoder_program, "SLOT_BYTES", 64)
    inline = await result_of(batch)
    assert_same(in_slot, inline)


async def test_the_pipeline_decodes_while_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, executable = DecodingCounts(), sys.executable
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    pool = DecodePool(1, DecoderSetup(FORMAT), Tables(), counts)
    async with pool.running():
        await asyncio.sleep(0.05)
        assert await decoded_by(pool, batches(2)) == [None, None]
        monkeypatch.setattr(sys, "executable", executable)
        await until(lambda: pool.ready == 1)
        assert None not in await decoded_by(pool, batches(2))


async def test_processes_end_with_their_pool() -> None:
    async with pool_of(FORMAT, Tables(), 3) as pool:
        pids = pool.pids
        assert not await asyncio.to_thread(lambda: any(map(has_ended, pids)))
        task = pool.task(batches(1)[0])
        await pool.begin(task)  # nobody takes it
    assert len(pids) == 3
    assert await asyncio.to_thread(lambda: all(map(has_ended, pids)))


async def test_processes_that_are_being_started_end_with_their_pool() -> None:
    pool = DecodePool(2, DecoderSetup(FORMAT), Tables(), DecodingCounts())
    started: list[int] = []
    for wait_s in (0, 0.001, 0.01, 0.1):
        async with pool.running():
            await asyncio.sleep(wait_s)
            started += pool.pids
    assert started
    assert await asyncio.to_thread(lambda: all(map(has_ended, started)))


@pytest.mark.exhaustive(kept=1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_a_signal_for_all_processes_of_a_service_is_left_to_the_pipeline(number: signal.Signals) -> None:
    async with pool_of(FORMAT, Tables()) as pool:
        before = pool.pids
        os.kill(before[0], number)
        assert None not in await decoded_by(pool, batches(3))
        assert pool.pids == before


_PIPELINE = """
import asyncio, sys
from tests.ingest.decoding.pools import pool_of
from tests.ingest.decoding.test_decode_pool import FORMAT, Tables

async def main():
    async with pool_of(FORMAT, Tables(), 2) as pool:
        print(*pool.pids, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_processes_of_a_killed_pipeline_end_by_themselves() -> None:
    with subprocess.Popen([sys.executable, "-c", _PIPELINE], stdout=subprocess.PIPE, text=True) as pipeline:
        assert pipeline.stdout is not None
        pids = [int(text) for text in pipeline.stdout.readline().split()]
        assert len(pids) == 2
        pipeline.kill()
    for pid in pids:
        wait_for_end(pid)
