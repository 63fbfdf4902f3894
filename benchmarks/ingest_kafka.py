"""Measures the ingestion from Kafka into a table with a changelog, in comparison with a folder of the same records.

The settings are the same for both. As a program this module runs one of the two jobs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from benchmarks.change_log import CHANGES, ORDERS, write_change_log
from benchmarks.clock import Clock, bytes_below, peak_memory_mib, tell
from benchmarks.contest import contest, our_pipeline
from benchmarks.ingest_folder import MEMORY_MIB, TABLE, new_orders_table
from benchmarks.sections import RACE_HEADER, PageSection, Plan, race_lines
from tests.support.cases import recorded_lines
from tests.support.kafka_broker import KafkaBroker
from tests.support.recorded_truth import differences
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run

TOPIC: Final = "bench.orders"
OPTIONS: Final = {"bucket": "4", "changelog-producer": "input"}
INTERVAL_MS: Final = 2_000
_KAFKA: Final = "from Kafka"
_FOLDER: Final = "from a folder"


def sections(plan: Plan) -> Iterator[PageSection]:
    passes = max(1, round(10 * plan.scale))
    folder = plan.data / f"orders-{passes}"
    write_change_log(folder, passes)
    broker = KafkaBroker(plan.scratch / "kafka")
    broker.start()
    try:
        _send(broker, passes)
        sources: Mapping[str, Mapping[str, Any]] = {
            _KAFKA: {"type": "kafka", "bootstrap_servers": broker.address, "topics": [TOPIC], "until": "end"},
            _FOLDER: {"type": "change-log-folder", "path": str(folder), "until": "end"},
        }
        jobs = {
            name: our_pipeline("ingest_kafka", {"source": source, "warehouse": str(plan.scratch / "kafka-lake")})
            for name, source in sources.items()
        }
        samples = contest(jobs, plan.fewer_pairs)
    finally:
        broker.purge()
    about = (
        f"The capture orders-100k, repeated {passes} times, in one topic of a real broker, with headers and "
        "tombstones, and the same records in plain lines of a folder. The code of `tidelake ingest run` writes them to "
        "a table of four buckets, which is compacted while it is written, with changelog-producer = input and a "
        f"checkpoint every {INTERVAL_MS // 1000} seconds. CPU time is that of the pipeline's process, without the "
        "broker. The table is compared with the content of the source database."
    )
    yield PageSection(
        "Ingest: Debezium JSON from Kafka", about, RACE_HEADER, race_lines("changes", samples), (), samples
    )


def _send(broker: KafkaBroker, passes: int) -> None:
    records = [record for path in ORDERS.files for record in recorded_lines(path)]
    broker.create_topic(TOPIC, partitions=1 + max(record["partition"] for record in records))
    for _ in range(passes):
        broker.send(records, TOPIC)


def job(source: Mapping[str, Any], warehouse: str) -> None:
    members = {
        "pipeline": "bench",
        "warehouse": warehouse,
        "source": source,
        "tables": [{"name": TABLE, "match": "orders"}],
        "write": {"memory_bytes": MEMORY_MIB << 20},
        "checkpoint": {"interval_ms": INTERVAL_MS},
    }
    table = new_orders_table(warehouse, OPTIONS)
    clock = Clock()
    with clock:
        progress = asyncio.run(run(parse_config(json.dumps(members), "benchmark")))
    peak_mib = peak_memory_mib()
    wrong = differences(ORDERS, table.scan().to_arrow())
    if wrong or progress.records < CHANGES:
        raise AssertionError(f"{progress.records} records; the table differs from its source: {wrong[:3]}")
    data_bytes = bytes_below(table.location, "data-")
    changes = progress.records - progress.skipped["tombstone"]
    tell(changes, clock, peak_mib=peak_mib, data_bytes=data_bytes, checkpoints=progress.checkpoints)


if __name__ == "__main__":
    pa.array([None])  # Arrow imports pandas for its first list: half a second, not to be measured
    job(**json.loads(sys.argv[1]))
