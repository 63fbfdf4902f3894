"""Metadata of a broker that is too old for topic ids."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
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
