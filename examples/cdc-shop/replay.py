"""Sends recorded changes to Kafka, as a connector did: `python replay.py FOLDER BROKER`.

The folder has a file a topic (`*.jsonl.zst`) with a record a line: key, value, partition, time and headers.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import zstandard  # both come with Tidelake
from aiokafka import AIOKafkaProducer


async def main(paths: list[Path], broker: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker, linger_ms=5) as producer:
        for path in paths:
            topic = path.name.removesuffix(".jsonl.zst")
            with zstandard.open(path, "rb") as file:
                lines = file.read().split(b"\n")  # not splitlines(): values may contain other line ends
            records = [json.loads(line) for line in lines if line]
            for record in records:
                await producer.send(
                    topic,
                    key=encoded(record["key"]),
                    value=encoded(record["value"]),
                    partition=record["partition"],
                    timestamp_ms=record["timestamp_ms"],
                    headers=[(name, encoded(text)) for name, text in record["headers"]],
                )
            await producer.flush()
            print(f"{len(records)} records to {topic}")


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


asyncio.run(main(sorted(Path(sys.argv[1]).glob("*.jsonl.zst")), sys.argv[2]))
