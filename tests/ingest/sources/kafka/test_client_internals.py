"""An aiokafka release with unknown internals is refused before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.protocol.api import Request

from tests.support.kafka_broker import KafkaBroker
from tidelake.errors import UnsupportedFeature
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka import connection
from tidelake.ingest.sources.kafka.kafka_source import KafkaSource

SETTINGS = KafkaSettings(bootstrap_servers="nowhere:1", topics="orders")


async def renamed(self: AIOKafkaClient, topics: object) -> None: ...


def oldest_first(self: Request, versions: dict[int, tuple[int, int]]) -> object:
    return self.build(self._CLASSES[0])


@dataclass(frozen=True)
class Case:
    """What another release might do, and the resulting error."""

    id: str
    change: Callable[[pytest.MonkeyPatch], None]
    message: str


CASES = [
    Case(
        "a method is gone",
        lambda patch: patch.delattr(Fetcher, "_select_read_replica"),
        "it has no Fetcher._select_read_replica",
    ),
    Case(
        "a method is called in another way",
        lambda patch: patch.setattr(AIOKafkaClient, "_metadata_update", renamed),
        r"AIOKafkaClient._metadata_update takes \(topics\), not \(cluster_metadata, topics\)",
    ),
    Case(
        "records are unpacked in another way",
        lambda patch: patch.setattr(PartitionRecords, "_unpack_records", lambda self: iter(())),
        "it returns records in a different way",
    ),
    Case(
        "the version of a request is chosen in another way",
        lambda patch: patch.setattr(Request, "prepare", oldest_first),
        "it doesn't request topic ids",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_source_with_unknown_client_internals_does_not_open(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.change(monkeypatch)
    monkeypatch.setattr("tidelake.ingest.sources.kafka.client_check.AIOKAFKA", "0.99.0")
    source = KafkaSource(SETTINGS, frozenset())
    with pytest.raises(UnsupportedFeature, match=rf'aiokafka 0\.99\.0: {case.message}.*pip install "aiokafka=='):
        await source.open()
    await source.close()


@pytest.mark.interop
async def test_a_consumer_that_does_not_use_our_client_is_refused(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "use_client", lambda consumer, client: None)
    source = KafkaSource(KafkaSettings(bootstrap_servers=kafka_broker.address, topics="orders"), frozenset())
    with pytest.raises(UnsupportedFeature, match="doesn't fetch through the client that it was given"):
        await source.open()
    await source.close()
