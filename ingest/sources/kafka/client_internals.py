"""What we use of aiokafka that it doesn't promise to keep.

A release that changes it would not fail by itself: topics would be created by asking for them again, and one that was
created again would be read on as if it were the same. So `check_aiokafka` and `check_started` look first, whenever a
source opens. (The types of the protocol, which `metadata` builds on, are missed when they are imported.)
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Collection, Hashable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request
from aiokafka.protocol.metadata import MetadataRequest

from checkpoint.offsets import TopicPartition
from ingest.sources.kafka.backoff import BrokerBackoff
from ingest.sources.kafka.client_check import unsupported_client
from ingest.sources.kafka.metadata import asks_for_ids

_EXPECTED: Final[tuple[tuple[type, str, list[str]], ...]] = (  # methods, and what they take besides `self`
    (AIOKafkaClient, "_metadata_update", ["cluster_metadata", "topics"]),  # ours is called in its place
    (AIOKafkaClient, "_get_conn", ["node_id", "group", "no_hint"]),  # and so is this one
    (ClusterMetadata, "brokers", []),
    (ClusterMetadata, "update_metadata", ["metadata"]),
    (ClusterMetadata, "failed_update", ["exception"]),
    (MetadataRequest, "__init__", ["topics", "allow_auto_topic_creation"]),
    (Fetcher, "_select_read_replica", ["tp"]),
    (Request, "prepare", ["versions"]),
)


class KafkaClient(AIOKafkaClient):  # type: ignore[misc]
    """aiokafka's, but it never creates a topic by asking for it, and leaves a broker alone that did not answer.

    Brokers create topics by default: one that was deleted would be there again at once, empty, and nothing would show
    it. aiokafka connects again for each request, ten times a second; here a broker is tried again after a wait.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._broken: dict[
            Hashable, tuple[BrokerBackoff, float]
        ] = {}  # connection to its waits, and the end of this one

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _get_conn(self, node_id: object, *, group: Any = ConnectionGroup.DEFAULT, no_hint: bool = False) -> Any:
        """None where there is no connection, and none is to be tried yet."""
        backoff, until_s = self._broken.get((node_id, group), (BrokerBackoff(), 0.0))
        if self._now_s() < until_s:
            return None
        connection = await super()._get_conn(node_id, group=group, no_hint=no_hint)
        if connection is None:
            self._broken[node_id, group] = backoff, self._now_s() + backoff.next_ms() / 1000
        else:
            self._broken.pop((node_id, group), None)
        return connection

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: Collection[str]) -> bool:
        """In place of aiokafka's, which has no such choice. Returns whether a broker answered."""
        request = MetadataRequest(list(topics) or None, allow_auto_topic_creation=False)
        nodes = [broker.nodeId for broker in self.cluster.brokers()] or ["bootstrap"]
        for node in random.sample(nodes, len(nodes)):
            try:
                metadata = await self.send(node, request)
            except (KafkaError, TimeoutError):
                continue
            if metadata.brokers:
                cluster_metadata.update_metadata(metadata)
                return True
        cluster_metadata.failed_update(None)
        return False


def check_aiokafka() -> None:
    """Raises UnsupportedFeature where aiokafka lacks something of this, or has it in another shape."""
    for owner, name, expected in _EXPECTED:
        member = getattr(owner, name, None)
        if member is None:
            raise unsupported_client(f"it has no {owner.__name__}.{name}")
        found = [parameter for parameter in inspect.signature(member).parameters if parameter != "self"]
        if found != expected:
            raise unsupported_client(f"{owner.__name__}.{name} takes ({', '.join(found)}), not ({', '.join(expected)})")
    if not asks_for_ids():
        raise unsupported_client("it doesn't ask for the ids of topics where the broker knows them")


def use_client(consumer: AIOKafkaConsumer, client: KafkaClient) -> None:
    """In place of the one that the consumer has made itself, and not yet used."""
    consumer._client = client


def check_started(consumer: AIOKafkaConsumer) -> None:
    """Raises UnsupportedFeature where the consumer doesn't fetch through the client of `use_client`."""
    fetcher = getattr(consumer, "_fetcher", None)
    if not isinstance(fetcher, Fetcher) or not isinstance(getattr(fetcher, "_client", None), KafkaClient):
        raise unsupported_client("its consumer doesn't fetch through the client that it was given")


def fetch_broker(consumer: AIOKafkaConsumer, partition: KafkaPartition) -> int | None:
    """The broker that the consumer fetches from: the leader, or with `client_rack` a follower. None, -1: none now."""
    server: int | None = consumer._fetcher._select_read_replica(partition)
    return server


def has_fetched(consumer: AIOKafkaConsumer) -> bool:
    """Whether a poll would find something without waiting; True where it is unknown."""
    fetched = getattr(consumer._fetcher, "_records", None)
    return fetched is None or bool(fetched)


def unwrap_fetched(consumer: AIOKafkaConsumer) -> None:
    """Have the next poll hand over what was fetched as its parser made it, without a ConsumerRecord around each record.

    Both have offset, timestamp, key, value and headers, and a ConsumerRecord costs more than to parse the record. What
    is fetched while that poll waits comes wrapped, and so does all in a release that wraps in another way.
    """
    for fetched in getattr(consumer._fetcher, "_records", {}).values():
        if (records := getattr(fetched, "_partition_records", None)) is not None:
            records._consumer_record = _unwrapped


def parser_errors(consumer: AIOKafkaConsumer) -> list[str]:
    """Where the last poll ended with an error of the parser: `topic-0 at offset 17`."""
    found = []
    for partition, fetched in getattr(consumer._fetcher, "_records", {}).items():
        records: Any = getattr(fetched, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if iterator is not None and getattr(iterator, "gi_frame", True) is None:  # a generator that has raised
            found.append(f"{TopicPartition(*partition)} at offset {records.next_fetch_offset}")
    return found


def _unwrapped(_: KafkaPartition, record: Any) -> Any:
    return record


async def stop(consumer: AIOKafkaConsumer) -> None:
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        # aiokafka lets the cancellation of a fetch that waits for its retry escape.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    finally:
        await consumer._client.close()  # which it leaves open after any error before; a second time does nothing
