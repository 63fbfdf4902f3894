"""What we use of aiokafka that it doesn't promise to keep.

A release that changes it would not fail by itself: topics would be created by asking for them again, and one that was
created again would be read on as if it were the same. So `check_aiokafka` and `hand_over_batches` look first,
whenever a source opens. (The types of the protocol, which `metadata` builds on, are missed when they are imported.)
"""

from __future__ import annotations

import asyncio
import inspect
import random
import struct
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import create_conn
from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher, FetchResult, PartitionRecords
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from checkpoint.offsets import TopicPartition
from ingest.sources.kafka.backoff import BrokerBackoff
from ingest.sources.kafka.client_check import unsupported_client
from ingest.sources.kafka.fetched_batch import FetchedBatch
from ingest.sources.kafka.metadata import asks_for_ids
from ingest.sources.kafka.response_reader import ResponseReader

BATCHES_A_POLL: Final = 64
"""What `getmany` may bring of `hand_over_batches` at a time: a record batch is 16 KB as producers send them, and some
fetched bytes are looked at before the next ones are asked for."""

OF_A_CONNECTION: Final = frozenset(inspect.signature(create_conn).parameters)
"""What `create_conn` takes; a client takes more."""
_FIRST_SERVERS: Final = "those of bootstrap_servers"

_EXPECTED: Final[tuple[tuple[type, str, list[str]], ...]] = (  # methods, and what they take besides `self`
    (AIOKafkaClient, "_metadata_update", ["cluster_metadata", "topics"]),  # ours is called in its place
    (AIOKafkaClient, "_get_conn", ["node_id", "group", "no_hint"]),  # and so is this one
    (AIOKafkaClient, "send", ["node_id", "request", "group"]),  # and this
    (ClusterMetadata, "brokers", []),
    (ClusterMetadata, "update_metadata", ["metadata"]),
    (ClusterMetadata, "failed_update", ["exception"]),
    (MetadataRequest, "__init__", ["topics", "allow_auto_topic_creation"]),
    (Fetcher, "_select_read_replica", ["tp"]),
    (Request, "prepare", ["versions"]),
)


class KafkaClient(AIOKafkaClient):  # type: ignore[misc]
    """aiokafka's, but it never creates a topic by asking for it, leaves a broker alone that did not answer, and finds
    brokers that have moved.

    Brokers create topics by default: one that was deleted would be there again at once, empty, and nothing would show
    it. aiokafka connects again for each request, ten times a second; here a broker is tried again after a wait. And
    aiokafka asks only brokers that it knows: when all are somewhere else, those that it was given first may be there,
    or their names stand for other addresses now (Java's clients ask them since KIP-899).
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._for_connections = {name: arguments[name] for name in arguments if name in OF_A_CONNECTION}
        self._broken: dict[
            Hashable, tuple[BrokerBackoff, float]
        ] = {}  # connection to its waits, and the end of this one
        self.fetched: Mapping[KafkaPartition, bytes] = {}  # what the last answer to a fetch brought

    async def send(self, node_id: Any, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        response = await super().send(node_id, request, group=group)
        if isinstance(request, FetchRequest):
            self.fetched = {
                KafkaPartition(topic, number): of_partition[-1]
                for topic, partitions in response.topics
                for number, *of_partition in partitions
            }
        return response

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
            ResponseReader.adopt(connection._reader)
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
        metadata = await self._ask_first_servers(request)
        if metadata is not None and metadata.brokers:
            cluster_metadata.update_metadata(metadata)
            return True
        cluster_metadata.failed_update(None)
        return False

    async def _ask_first_servers(self, request: Any) -> Any:
        """Those of `bootstrap_servers`, when no other one answered. None where they don't either, or are left alone
        for a while.
        """
        backoff, until_s = self._broken.get(_FIRST_SERVERS, (BrokerBackoff(), 0.0))
        if self._now_s() < until_s:
            return None
        for host, port, _ in self.hosts:
            try:
                connection = await create_conn(host, port, **self._for_connections)
            except (OSError, KafkaError, TimeoutError):
                continue
            try:
                metadata = await connection.send(request)
            except (KafkaError, TimeoutError):
                continue
            finally:
                connection.close()
            self._broken.clear()  # a broker of the same number may be elsewhere now
            return metadata
        self._broken[_FIRST_SERVERS] = backoff, self._now_s() + backoff.next_ms() / 1000
        return None


def check_aiokafka() -> None:
    """Raises UnsupportedFeature where aiokafka lacks something of this, or has it in another shape."""
    for owner, name, expected in _EXPECTED:
        member = getattr(owner, name, None)
        if member is None:
            raise unsupported_client(f"it has no {owner.__name__}.{name}")
        found = [parameter for parameter in inspect.signature(member).parameters if parameter != "self"]
        if found != expected:
            raise unsupported_client(f"{owner.__name__}.{name} takes ({', '.join(found)}), not ({', '.join(expected)})")
    if not _unpacks_as_known():
        raise unsupported_client("it hands over records in another way")
    if not asks_for_ids():
        raise unsupported_client("it doesn't ask for the ids of topics where the broker knows them")


def use_client(consumer: AIOKafkaConsumer, client: KafkaClient) -> None:
    """In place of the one that the consumer has made itself, and not yet used."""
    consumer._client = client


def fetch_broker(consumer: AIOKafkaConsumer, partition: KafkaPartition) -> int | None:
    """The broker that the consumer fetches from: the leader, or with `client_rack` a follower. None, -1: none now."""
    server: int | None = consumer._fetcher._select_read_replica(partition)
    return server


def hand_over_batches(consumer: AIOKafkaConsumer) -> None:
    """From now on `getmany` gives record batches, as `FetchedBatch`; each counts as one record.

    Records of the format before record batches come as aiokafka's parser makes them. What else it does with batches
    stays: checksums, aborted transactions, control batches, positions.

    Raises UnsupportedFeature where the consumer doesn't fetch through the client of `use_client`, or unpacks in another
    way.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    client = getattr(fetcher, "_client", None)
    if not isinstance(fetcher, Fetcher) or not isinstance(client, KafkaClient):
        raise unsupported_client("its consumer doesn't fetch through the client that it was given")
    fetcher._records = _FetchResults(client)


class _FetchResults(OrderedDict[KafkaPartition, Any]):
    """In the place of the fetcher's: what was fetched and not taken yet.

    The fetcher puts an answer's results here before anything else may run, so the client's last answer is the one.
    """

    def __init__(self, client: KafkaClient) -> None:
        super().__init__()
        self._client = client

    def __setitem__(self, partition: KafkaPartition, result: Any) -> None:
        if isinstance(result, FetchResult):
            unpack_as_batches(result._partition_records, self._client.fetched[partition])
        super().__setitem__(partition, result)


def unpack_as_batches(partition_records: Any, data: bytes) -> None:
    """Have it iterate over batches. Nothing has been taken from it yet.

    data: what it was made of.
    """

    def wanted(_: KafkaPartition, record: Any) -> Any:
        if isinstance(record, FetchedBatch):
            record.start = partition_records.next_fetch_offset
        return record

    partition_records._records = _Batches(partition_records._records, data)
    partition_records._consumer_record = wanted


class _Batches:
    """In the place of aiokafka's MemoryRecords, whose compiled form (0.14) reads every batch in the format of the first
    one. Where a topic's format was raised, one answer holds both.
    """

    def __init__(self, batches: Any, data: bytes) -> None:
        runs = _runs_of_one_format(data)
        self._parsers = [batches] if len(runs) < 2 else [MemoryRecords(data[begin:end]) for begin, end in runs]
        self._data = data
        self._at = 0

    def has_next(self) -> bool:
        return any(parser.has_next() for parser in self._parsers)

    def next_batch(self) -> Any:
        while len(self._parsers) > 1 and not self._parsers[0].has_next():
            del self._parsers[0]
        batch = self._parsers[0].next_batch()
        begin = self._at
        self._at += _LOG_OVERHEAD.size + _LOG_OVERHEAD.unpack_from(self._data, begin)[1]
        if not isinstance(batch, DefaultRecordBatch) or batch.is_control_batch:
            return batch
        return FetchedBatch(self._data, begin, self._at)


_LOG_OVERHEAD: Final = struct.Struct(">qi")  # offset and size, in front of every batch of every format
_MAGIC_AT: Final = 16  # the number of its format


def _runs_of_one_format(data: bytes) -> list[tuple[int, int]]:
    """Where batches that follow each other have one format: from, to. The last one may be cut off."""
    runs: list[tuple[int, int]] = []
    begin = at = 0
    while at + _MAGIC_AT < len(data):
        if data[at + _MAGIC_AT] != data[begin + _MAGIC_AT]:
            runs.append((begin, at))
            begin = at
        at += _LOG_OVERHEAD.size + max(0, _LOG_OVERHEAD.unpack_from(data, at)[1])
    return [*runs, (begin, len(data))]


def _unpacks_as_known() -> bool:
    """Whether aiokafka's way of unpacking leads to our batches."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
    for offset in range(3):
        builder.append(offset, 7, None, b"value", [])
    data = bytes(builder.build())
    try:
        records = PartitionRecords(KafkaPartition("t", 0), MemoryRecords(data), [], 1, None, None, True, READ_COMMITTED)
        unpack_as_batches(records, data)
        found = [(batch.start, batch.next_offset, batch.record_count) for batch in records]
    except (AttributeError, TypeError):
        return False
    return found == [(1, 3, 3)] and records.next_fetch_offset == 3


def parser_errors(consumer: AIOKafkaConsumer) -> list[str]:
    """Where the last poll ended with an error of the parser: `topic-0 at offset 17`."""
    found = []
    for partition, fetched in getattr(consumer._fetcher, "_records", {}).items():
        records: Any = getattr(fetched, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if iterator is not None and getattr(iterator, "gi_frame", True) is None:  # a generator that has raised
            found.append(f"{TopicPartition(*partition)} at offset {records.next_fetch_offset}")
    return found


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Raises CancelledError only if the caller is cancelled meanwhile."""
    # In a task of its own: aiokafka lets the cancellation of a fetch that waits for its retry escape. Nor would
    # `cancelling()` tell whose it is: before Python 3.13 it counts a task group that failed.
    stopping = asyncio.ensure_future(consumer.stop())
    try:
        await asyncio.wait([stopping])
        if not stopping.cancelled():
            stopping.result()
    finally:
        stopping.cancel()
        fetches = list(getattr(getattr(consumer, "_fetcher", None), "_pending_tasks", ()))
        for fetch in fetches:  # those behind the one whose cancellation escaped
            fetch.cancel()
        await asyncio.gather(stopping, *fetches, return_exceptions=True)
        await consumer._client.close()  # which it leaves open after any error before; a second time does nothing
