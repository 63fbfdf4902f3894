"""A service that is killed at any moment, with an unreliable broker and store, counts each record once in every
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.crash.points import Points
from tests.ingest.decoding.pools import decoding_processes, wait_for_end
from tests.integration.ordeal import Ordeal, create_tables
from tests.integration.orders import PARTITIONS, TABLES, Line, Stream
from tests.support.kafka_broker import KafkaBroker
from tests.support.s3_server import S3Server
from tests.support.service import Service
from tests.support.unreliable_s3 import UnreliableS3

_START_S: Final = 4.0
_CHECKPOINT_BYTES: Final = 2 << 20  # so that one follows the other
_WORK_S: Final = 1.5
_CHECKPOINT_BYTES_ON_S3: Final = 16 << 20  # each takes a dozen requests a table, and some of them several attempts
_WORK_S_ON_S3: Final = 6.0
_BROKER_TROUBLE: Final = 0.25  # share of the times that new records come


def service_of_orders(
    what: str,
    home: Path,
    warehouse: str,
    broker: KafkaBroker,
    stream: Stream,
    points: Points,
    *,
    checkpoint_bytes: int,
    work_s: float,
    store_options: Mapping[str, str] | None = None,
    our_options: Mapping[str, str] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Ordeal:
    """store_options: for the service. our_options: of the way that we look at the store. source: more settings of
    the source.
    """
    topics = {kind.name: broker.create_topic(f"{kind.name}-topic", PARTITIONS) for kind in TABLES}
    configuration: dict[str, Any] = {
        "pipeline": "killed",
        "warehouse": warehouse,
        "warehouse_options": dict(store_options or {}),
        "source": {
            "type": "kafka",
            "bootstrap_servers": broker.address,
            "topics": list(topics.values()),
            **(source or {}),
        },
        "tables": [{"name": f"shop.{name}", "match": topic, "topics": topic} for name, topic in topics.items()],
        "checkpoint": {"interval_ms": 300, "bytes_max": checkpoint_bytes},
    }

    def send(lines: list[Line]) -> None:
        for topic in topics.values():
            broker.send(lines, topic)

    def disturb(random: Random) -> None:
        if random.random() < _BROKER_TROUBLE:
            random.choice([broker.stop, broker.kill])()
            broker.start()
            points.tried(f"{what}: its broker restarted")

    tables = create_tables(warehouse, our_options or {})
    service = Service(home, ["ingest", "run"], configuration)
    return Ordeal(what, service, tables, stream, points, send, disturb, _START_S, work_s)


A_FEW: Final = pytest.param(2, Stream(count=4_000, passes=2), id="2 kills")
MANY: Final = pytest.param(
    30, Stream(count=109_551, passes=5), id="30 kills", marks=[pytest.mark.long, pytest.mark.timeout(3600)]
)


@pytest.mark.interop
@pytest.mark.parametrize(("kills", "stream"), [A_FEW, MANY])
def test_a_killed_service_counts_each_record_once(
    kills: int, stream: Stream, private_kafka_broker: KafkaBroker, tmp_path: Path, points: Points
) -> None:
    ordeal = service_of_orders(
        "service",
        tmp_path,
        str(tmp_path / "lake"),
        private_kafka_broker,
        stream,
        points,
        checkpoint_bytes=_CHECKPOINT_BYTES,
        work_s=_WORK_S,
    )
    ordeal.go_through(kills)


@pytest.mark.interop
@pytest.mark.parametrize(("kills", "stream"), [A_FEW, MANY])
def test_a_killed_service_that_decodes_in_processes_counts_each_record_once_and_leaves_no_process(
    kills: int, stream: Stream, private_kafka_broker: KafkaBroker, tmp_path: Path, points: Points
) -> None:
    """The processes are not killed with the service: they end by themselves."""
    ordeal = service_of_orders(
        "service with decoding processes",
        tmp_path,
        str(tmp_path / "lake"),
        private_kafka_broker,
        stream,
        points,
        checkpoint_bytes=_CHECKPOINT_BYTES,
        work_s=_WORK_S,
        source={"decode_processes": 2},
    )
    ordeal.go_through(kills)
    for pid in decoding_processes("leaves_no_process"):
        wait_for_end(pid)


@pytest.mark.interop
@pytest.mark.parametrize(("kills", "stream"), [A_FEW, MANY])
def test_a_killed_service_whose_store_loses_requests_and_answers_counts_each_record_once(
    kills: int,
    stream: Stream,
    private_kafka_broker: KafkaBroker,
    s3_server: S3Server,
    unreliable_s3: UnreliableS3,
    tmp_path: Path,
    points: Points,
) -> None:
    ordeal = service_of_orders(
        "service on S3",
        tmp_path,
        f"s3://{s3_server.new_bucket()}/lake",
        private_kafka_broker,
        stream,
        points,
        checkpoint_bytes=_CHECKPOINT_BYTES_ON_S3,
        work_s=_WORK_S_ON_S3,
        store_options=unreliable_s3.options,
        our_options=s3_server.options,
    )
    ordeal.go_through(kills)
    for mishap in unreliable_s3.odds:
        points.tried(f"service on S3, a request: {mishap.value}", unreliable_s3.mishaps[mishap])
