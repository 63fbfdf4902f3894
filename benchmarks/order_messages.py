"""Generates messages of Debezium JSON without schemas, like the change stream of one table with many changes.

They have ten columns and 200,000 keys, in four partitions by key. Each key begins with a `c`; then 95 % of its messages
are `u` and 5 % are `d`; after a `d` the next one is a `c`. Messages of the first million have 561 bytes on average.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from aiokafka import AIOKafkaProducer

KEYS: Final = 200_000
PARTITIONS: Final = 4
COLUMNS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("email", pa.string()),
        ("amount", pa.decimal128(18, 2)),
        ("qty", pa.int32()),
        ("status", pa.string()),
        ("created", pa.timestamp("ms")),
        ("score", pa.int64()),
        ("addr", pa.string()),
        ("note", pa.string()),
    ]
)
FLINK_COLUMNS: Final = (
    "id BIGINT, name STRING, email STRING, amount DECIMAL(18,2), qty INT, status STRING, created TIMESTAMP(3), "
    "score BIGINT, addr STRING, note STRING"
)
_BATCH_BYTES: Final = 1 << 20
_STATUS: Final = ("new", "paid", "shipped", "closed")


def row(key: int, version: int) -> dict[str, Any]:
    x = (key * 2654435761 + version * 40503) & 0xFFFFFFFF
    day = f"2024-{1 + key % 12:02d}-{1 + key % 28:02d}"
    return {
        "id": key,
        "name": f"user-{key % 5000}",
        "email": f"user{key}@example.com",
        "amount": f"{x % 10**7}.{x % 100:02d}",
        "qty": x % 1000,
        "status": _STATUS[version & 3],
        "created": f"{day} {x % 24:02d}:{x % 60:02d}:{key % 60:02d}.{x % 1000:03d}",
        "score": x % 100_000,
        "addr": f"{key % 999} Main St",
        "note": f"v{version} {x:08x}",
    }


def send(servers: str, topic: str, messages: int, truth: Path) -> None:
    """Send messages to an existing topic.

    truth: path of a Parquet file, which is written: columns `id` and `note` of each row that exists at the end.
    """
    versions, live = [-1] * KEYS, [False] * KEYS
    asyncio.run(_send(servers, topic, _messages(messages, versions, live)))
    ids = np.flatnonzero(live)
    notes = [row(key, versions[key])["note"] for key in ids.tolist()]
    truth.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "note": notes}), truth)


def _messages(n: int, versions: list[int], live: list[bool]) -> Iterator[tuple[int, bytes]]:
    """Yield key and message of each change. Updates `versions` and `live` to the table's rows afterwards."""
    random = np.random.default_rng(8)
    keys, deletes = random.integers(0, KEYS, n).tolist(), (random.random(n) < 0.05).tolist()
    encode = msgspec.json.Encoder().encode
    for i, (key, is_delete) in enumerate(zip(keys, deletes, strict=True)):
        version = versions[key]
        before = row(key, version) if live[key] else None
        op = "c" if before is None else "d" if is_delete else "u"
        after = None if op == "d" else row(key, version + 1)
        versions[key], live[key] = version + 1, after is not None
        time_ms = 1_700_000_000_000 + i
        source = {"version": "2.5.0.Final", "connector": "mysql", "name": "s", "ts_ms": time_ms, "db": "shop"}
        source |= {"table": "orders", "file": "mysql-bin.000003", "pos": 484 + i}
        yield key, encode({"before": before, "after": after, "source": source, "op": op, "ts_ms": time_ms + 5})


async def _send(servers: str, topic: str, messages: Iterator[tuple[int, bytes]]) -> None:
    """Send messages in batches that are built here, because the producer is slower for single messages."""
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=_BATCH_BYTES) as producer:
        batches = [producer.create_batch() for _ in range(PARTITIONS)]
        for key, message in messages:
            partition = key % PARTITIONS
            while batches[partition].append(key=b'{"id":%d}' % key, value=message, timestamp=None) is None:
                await producer.send_batch(batches[partition], topic, partition=partition)
                batches[partition] = producer.create_batch()
        for partition, batch in enumerate(batches):
            await producer.send_batch(batch, topic, partition=partition)
        await producer.flush()


def differences(table: pa.Table, truth: Path) -> list[str]:
    """Return the differences between a table's rows and the expected rows; empty if they are equal."""
    expected = pq.read_table(truth)
    found = table.select(["id", "note"])
    found = found.set_column(0, "id", found["id"].cast(pa.int64())).sort_by("id")
    if len(found) != len(expected):
        return [f"{len(found)} rows, not {len(expected)}"]
    return [name for name in ("id", "note") if found[name].to_pylist() != expected[name].to_pylist()]
