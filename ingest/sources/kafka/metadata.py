"""Requests the id of the cluster, and its current topics and partitions.

aiokafka supports this request up to version 5, which lacks topic ids. The ids distinguish a topic from an earlier,
deleted topic of the same name. So version 12 is defined here with aiokafka's protocol types. If a broker is too old for
it (before Kafka 3.0), the ids are unknown. Unlike aiokafka's request, this one never creates a topic.

Source: Kafka's `MetadataRequest.json` and `MetadataResponse.json`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, NoError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

METADATA: Final = 3  # API key

# aiokafka has no type hints, so its classes are Any for mypy. This is why `type: ignore` is needed below.


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic of a cluster.

    id: the id as Kafka's tools print it; None if the broker doesn't report it.
    partitions: number of partitions. They are numbered from 0.
    """

    id: str | None
    partitions: int


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A cluster and its topics. Internal topics are left out."""

    cluster_id: str | None
    topics: Mapping[str, TopicMetadata]


async def fetch_metadata(
    client: AIOKafkaClient, topics: Sequence[str] | None, node: int | None = None
) -> ClusterMetadata:
    """Request metadata. Topics that don't exist are absent from the result.

    topics: the topics to ask for; None: all.
    node: the broker to ask; None: any.

    Raises aiokafka's KafkaError, also for a topic without read permission.
    """
    node = client.get_random_node() if node is None else node
    if node is None:  # the first answer of a broker that is starting may name none, not even itself
        await client.force_metadata_update()
        node = client.get_random_node()
    if node is None:
        raise KafkaConnectionError("no broker is known yet")  # may be repeated, unlike BrokerNotAvailableError
    response = await client.send(node, _MetadataRequest(topics))
    found: dict[str, TopicMetadata] = {}
    for topic in response.to_object()["topics"]:
        name, error = topic.get("name") or topic.get("topic"), for_code(topic["error_code"])
        if error is UnknownTopicOrPartitionError or topic["is_internal"]:
            continue
        if error is not NoError:
            raise error(name)
        found[name] = TopicMetadata(topic.get("topic_id"), len(topic["partitions"]))
    return ClusterMetadata(response.cluster_id, found)


def requests_topic_ids() -> bool:
    """Return whether aiokafka chooses the request version with topic ids if the broker supports it."""
    return isinstance(
        _MetadataRequest(()).prepare({METADATA: (0, _MetadataRequestV12.API_VERSION)}), _MetadataRequestV12
    )


class _Uuid(AbstractType[str | None]):  # type: ignore[misc]
    """The type of a UUID: 16 bytes. Kafka prints it as base64url without padding. All zeros mean that it is missing."""

    @classmethod
    def encode(cls, value: str | None) -> bytes:
        return bytes(16) if value is None else base64.urlsafe_b64decode(value + "==")

    @classmethod
    def decode(cls, data: BytesIO) -> str | None:
        raw = data.read(16)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else None


class _MetadataResponseV12(Response):  # type: ignore[misc]
    API_KEY = METADATA
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition_index", Int32),
                        ("leader_id", Int32),
                        ("leader_epoch", Int32),
                        ("replica_nodes", CompactArray(Int32)),
                        ("isr_nodes", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("topic_authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequestV12(RequestStruct):  # type: ignore[misc]
    API_KEY = METADATA
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponseV12
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _MetadataRequest(Request[MetadataRequest_v5 | _MetadataRequestV12]):  # type: ignore[misc]
    """The request in both versions. aiokafka chooses the newest one that the broker supports, too."""

    API_KEY = METADATA

    def __init__(self, topics: Sequence[str] | None) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class is _MetadataRequestV12:
            named: list[tuple[None, str, dict[int, bytes]]] | None
            named = None if self._topics is None else [(None, topic, {}) for topic in self._topics]
            return _MetadataRequestV12(named, False, False, {})
        return MetadataRequest_v5(None if self._topics is None else list(self._topics), False)
