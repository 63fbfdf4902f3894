"""Metadata of a broker that is too old for topic ids, and of one that is about to start."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v5

from tidelake.ingest.sources.kafka.metadata import METADATA, ClusterMetadata, TopicMetadata, fetch_metadata

NO_ERROR, UNKNOWN_TOPIC, NOT_AUTHORIZED = 0, 3, 29
PARTITIONS: list[Any] = [(NO_ERROR, number, 1, [1], [1], []) for number in range(3)]


class OldBroker:
    """Speaks version 5 of the request at most."""

    def __init__(self, *topics: tuple[int, str, bool, list[Any]]) -> None:
        self._response = MetadataResponse_v5(0, [], "cluster", 1, list(topics))
        self.asked: list[Any] = []

    def get_random_node(self) -> int:
        return 1

    async def send(self, node: int, request: Any) -> Any:
        prepared = request.prepare({METADATA: (0, 8)})
        assert isinstance(prepared, MetadataRequest_v5)
        self.asked.append(prepared)
        return self._response


async def test_topic_ids_may_be_unknown() -> None:
    broker = OldBroker((NO_ERROR, "orders", False, PARTITIONS), (NO_ERROR, "__offsets", True, PARTITIONS))
    assert await fetch_metadata(broker, None) == ClusterMetadata("cluster", {"orders": TopicMetadata(None, 3)})


async def test_missing_topics_are_absent_and_never_created() -> None:
    broker = OldBroker((UNKNOWN_TOPIC, "typo", False, []))
    assert (await fetch_metadata(broker, ["typo"])).topics == {}
    assert [(request.topics, request.allow_auto_topic_creation) for request in broker.asked] == [(["typo"], False)]


async def test_an_unauthorized_topic_raises() -> None:
    with pytest.raises(TopicAuthorizationFailedError, match="secret"):
        await fetch_metadata(OldBroker((NOT_AUTHORIZED, "secret", False, [])), ["secret"])


class StartingBroker(OldBroker):
    """Names no broker, not even itself, in its first answers."""

    def __init__(self, unaware: int) -> None:
        super().__init__((NO_ERROR, "orders", False, PARTITIONS))
        self._unaware = unaware

    def get_random_node(self) -> int:
        return None if self._unaware else 1  # type: ignore[return-value]

    async def force_metadata_update(self) -> None:
        self._unaware -= 1


async def test_a_client_that_knows_no_broker_asks_again() -> None:
    assert (await fetch_metadata(StartingBroker(1), None)).topics.keys() == {"orders"}


async def test_while_no_broker_is_known_the_request_may_be_repeated() -> None:
    broker = StartingBroker(2)
    with pytest.raises(KafkaConnectionError) as raised:
        await fetch_metadata(broker, None)
    assert raised.value.retriable
    assert (await fetch_metadata(broker, None)).topics.keys() == {"orders"}
