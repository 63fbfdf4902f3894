"""Batches end at transaction boundaries of the database, within limits and as far as the records contain them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from tests.ingest.formats.debezium.changes import change
from tests.support.levels import sample
from tests.support.manual_clock import ManualClock
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import UnsupportedFeature
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.debezium.origin import transaction_of
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.whole_transactions import TransactionCounts, WholeTransactions
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

LIMIT_MS = 5_000


def row(transaction: str | None, number: int = 1, table: str = "a") -> bytes:
    actual = None if transaction is None else {"id": transaction, "total_order": 1, "data_collection_order": number}
    source = {"connector": "postgresql", "db": "s", "schema": "public", "table": table}
    value = change("c", after={"id": 1}, source=source, transaction=actual).value
    assert value is not None
    return value


def end(transaction: str, **counts: int) -> bytes:
    collections = [{"data_collection": f"public.{name}", "event_count": count} for name, count in counts.items()]
    actual = {"status": "END", "id": transaction, "event_count": sum(counts.values()), "data_collections": collections}
    return json.dumps(actual).encode()


def log_of(**topics: Sequence[bytes | None]) -> MemoryLog:
    log = MemoryLog()
    for topic, values in topics.items():
        for value in values:
            log.append(topic.replace("__", "."), value)
    return log


class Endless(MemoryLogSource):
    """Says nothing at its end."""

    async def read(self, positions: Any) -> Any:
        async with aclosing(super().read(positions)) as batches:
            async for batch in batches:
                yield batch
        await asyncio.Event().wait()


def over(source: MemoryLogSource, limit_bytes: int = 1 << 20) -> tuple[WholeTransactions, ManualClock]:
    clock = ManualClock()
    return WholeTransactions(source, transaction_of, LIMIT_MS, limit_bytes, clock), clock


async def all_of(source: WholeTransactions) -> list[RawBatch]:
    async with aclosing(source.read({})) as batches:
        return [batch async for batch in batches]


def spans(batches: Sequence[RawBatch]) -> list[tuple[int, int]]:
    return [(int(batch.offsets[0]), batch.next_offset) for batch in batches]


async def test_a_transaction_is_delivered_when_another_one_follows() -> None:
    log = log_of(t=[row("1"), row("1"), None, row("2"), row("2"), row("3"), row(None), row("4")])
    source, _ = over(MemoryLogSource(log, batch_records=2))
    assert spans(await all_of(source)) == [(0, 3), (3, 5), (5, 7), (7, 8)]


async def test_the_transaction_topic_marks_a_transaction_as_complete() -> None:
    log = log_of(t=[row("1", 1), row("1", 2)], t__transaction=[end("1", a=2, b=1)])
    source, _ = over(Endless(log, batch_records=5))
    batches = source.read({})
    assert [(await anext(batches)).topic for _ in range(2)] == ["t.transaction", "t"]
    assert source.counts == TransactionCounts(waiting=0, split=0)
    await batches.aclose()


async def test_a_transaction_that_waits_too_long_is_delivered_and_counted() -> None:
    log = log_of(t=[row("1", 1), row("1", 2)], t__transaction=[end("1", a=3)])
    source, clock = over(Endless(log))
    batches = source.read({})
    assert (await anext(batches)).topic == "t.transaction"
    coming = asyncio.ensure_future(anext(batches))
    await clock.sleeper()
    assert source.counts == TransactionCounts(waiting=1, split=0)
    clock.advance(LIMIT_MS)
    assert spans([await coming]) == [(0, 2)]
    assert source.counts == TransactionCounts(waiting=0, split=1)
    await batches.aclose()


async def test_a_transaction_that_is_too_large_is_delivered_and_counted() -> None:
    log = log_of(t=[row("1", number) for number in range(1, 100)])
    source, _ = over(MemoryLogSource(log, batch_records=10), limit_bytes=5_000)
    assert len(await all_of(source)) > 1
    assert source.counts.split > 1


@pytest.mark.sampled
@pytest.mark.parametrize("seed", sample(range(50)))
async def test_every_record_is_delivered_once_in_order_and_no_batch_splits_a_transaction(seed: int) -> None:
    random = Random(seed)
    log, transactions = MemoryLog(), dict[tuple[TopicPartition, int], str | None]()
    for number in range(random.randint(1, 40)):
        transaction = None if random.random() < 0.2 else str(number)
        for _ in range(random.randint(1, 9)):
            partition = random.randrange(2)
            value = None if random.random() < 0.1 else row(transaction)
            offset = log.append("t", value, b"k", partition, (("h", b"%d" % number),))
            transactions[TopicPartition("t", partition), offset] = None if value is None else transaction
    source, _ = over(MemoryLogSource(log, batch_records=random.randint(1, 12)))
    read: dict[TopicPartition, int] = {}
    for batch in await all_of(source):
        at = TopicPartition(batch.topic, batch.partition)
        assert list(batch.offsets) == list(range(read.get(at, 0), batch.next_offset))
        assert all(batch.headers[place] == log.headers[at, int(o)] for place, o in enumerate(batch.offsets))
        read[at] = batch.next_offset
        of = [transactions[at, offset] for offset in range(len(log.records[at]))]
        before = next((t for t in reversed(of[: batch.next_offset]) if t is not None), None)
        after = next((t for t in of[batch.next_offset :] if t is not None), "none")
        assert before is None or before != after
    assert read == {partition: len(records) for partition, records in log.records.items()}


async def test_no_snapshot_contains_a_partial_transaction() -> None:
    log = MemoryLog()
    sizes = [3, 1, 5, 2, 4]
    for number, size in enumerate(sizes):
        for order in range(size):
            actual = {"id": str(number), "total_order": order + 1, "data_collection_order": order + 1}
            record = change("c", after={"id": sum(sizes[:number]) + order}, transaction=actual)
            log.append("t", record.value, record.key)
    warehouse, store = f"memory://{uuid4()}/lake", MemoryFileIO()
    text = f"""
        warehouse: {warehouse}
        source: {{type: change-log-folder, path: /unused}}
        tables: [{{name: shop.orders, options: {{bucket: 1}}}}]
        checkpoint: {{bytes_max: 1, interval_ms: 3600000, whole_transactions: true}}
    """
    config = parse_config(text, "shop.yaml", (), {}, "shop")
    build = partial(build_pipeline, config, io=store, open_source=lambda: MemoryLogSource(log, batch_records=2))
    pipeline = await asyncio.to_thread(build)
    await pipeline.run()

    def rows_of_each() -> set[int]:
        table = Table(FileSystemCatalog(store, warehouse).load("shop.orders"))
        kept = [snapshot.id for snapshot in table.snapshots()]
        return {table.scan(snapshot=id_).to_arrow().num_rows for id_ in kept}

    assert await asyncio.to_thread(rows_of_each) <= {0, *accumulate(sizes)}
    assert pipeline.observed.transactions == TransactionCounts(waiting=0, split=0)


async def test_a_format_without_transactions_is_refused() -> None:
    text = """
        warehouse: memory://here/lake
        format: canal-json
        source: {type: change-log-folder, path: /unused}
        tables: [{name: shop.orders}]
        checkpoint: {whole_transactions: true}
    """
    config = parse_config(text, "shop.yaml", (), {}, "shop")
    with pytest.raises(UnsupportedFeature, match=r"can't tell the transactions of records of canal-json"):
        await asyncio.to_thread(partial(build_pipeline, config, io=MemoryFileIO()))
