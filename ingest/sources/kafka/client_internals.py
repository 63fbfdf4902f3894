"""Uses of the internals of aiokafka and asyncio, which may change in any release.

A change of aiokafka would not cause an error: metadata requests would create topics again, and a topic that was created
again would be read like the old one. So `check_aiokafka` and `return_record_batches` check the internals whenever a
source is opened. (Missing protocol types, which `metadata` uses, fail at their import.)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Final, SupportsIndex
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator, create_conn
from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher, FetchResult, PartitionRecords
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError
from aiokafka.protocol.api import Request
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.access_tokens import AccessToken
from tidelake.ingest.sources.kafka.client_check import unsupported_client
from tidelake.ingest.sources.kafka.fetched_batch import FetchedBatch
from tidelake.ingest.sources.kafka.login import TokenLogin
from tidelake.ingest.sources.kafka.metadata import requests_topic_ids
from tidelake.ingest.sources.kafka.retries import BrokerBackoff
from tidelake.storage.base import env

_LARGE_BYTES: Final = 256 << 10  # the largest piece that a transport delivers


BATCHES_A_POLL: Final = 64
"""The largest number of record batches per `getmany`, after `return_record_batches`. A producer's record batch has
16 KB by default, and a poll should process some fetched bytes before the next ones are requested."""

_CONNECTION_PARAMETERS: Final = frozenset(inspect.signature(create_conn).parameters)  # a client has more
_RECONNECT_AT: Final = 0.85  # part of a token's lifetime; after it was renewed, and before it expires
_aiokafka_log: Final = logging.getLogger("aiokafka.client")  # its lines are limited (`broker_error_log`)
_BOOTSTRAP_SERVERS: Final = "those of bootstrap_servers"

_EXPECTED: Final[tuple[tuple[type, str, list[str]], ...]] = (  # methods, and their parameters without `self`
    (AIOKafkaClient, "_metadata_update", ["cluster_metadata", "topics"]),  # overridden
    (AIOKafkaClient, "_get_conn", ["node_id", "group", "no_hint"]),  # overridden
    (AIOKafkaClient, "send", ["node_id", "request", "group"]),  # overridden
    (AIOKafkaClient, "bootstrap", []),  # overridden
    (AIOKafkaClient, "_on_connection_closed", ["conn", "reason"]),
    (AIOKafkaConnection, "authenticator_oauth", []),  # overridden, in `login`
    (OAuthAuthenticator, "step", ["payload"]),  # overridden, in `login`
    (ClusterMetadata, "brokers", []),
    (ClusterMetadata, "update_metadata", ["metadata"]),
    (ClusterMetadata, "failed_update", ["exception"]),
    (MetadataRequest, "__init__", ["topics", "allow_auto_topic_creation"]),
    (Fetcher, "_select_read_replica", ["tp"]),
    (Request, "prepare", ["versions"]),
)


class ResponseReader(asyncio.StreamReader):
    """asyncio's StreamReader, but a large response is joined only once, when all its pieces have arrived.

    asyncio's reader extends its buffer, wakes its task and pauses the transport for each piece, and copies the response
    at the end. This took a twelfth of the CPU time of a message from Kafka.
    """

    # asyncio's internals that this class uses; they are the same since Python 3.8
    _buffer: bytearray
    _eof: bool
    _wait_for_data: Callable[[str], Awaitable[None]]
    _wakeup_waiter: Callable[[], None]

    _pieces: list[bytes | memoryview]
    _missing_bytes = 0

    @classmethod
    def adopt(cls, reader: asyncio.StreamReader) -> None:
        """Change the class of a reader that is in use to this one. A reader of another class is not changed."""
        if type(reader) is asyncio.StreamReader:
            reader.__class__ = cls

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        if self._missing_bytes <= 0:
            super().feed_data(data)
            return
        piece = bytes(data)  # no copy if it is bytes already
        self._pieces.append(piece)
        self._missing_bytes -= len(piece)
        if self._missing_bytes <= 0:
            self._wakeup_waiter()

    async def readexactly(self, n: int) -> bytes:
        missing_bytes = n - len(self._buffer)
        if missing_bytes < _LARGE_BYTES or self._eof or self.exception() is not None:
            return await super().readexactly(n)
        self._pieces = [bytes(self._buffer)]
        self._buffer.clear()
        self._missing_bytes = missing_bytes
        try:
            while self._missing_bytes > 0 and not self._eof:
                await self._wait_for_data("readexactly")
        except BaseException:  # received data can still be read
            self._unread(b"".join(self._pieces))
            raise
        if self._missing_bytes > 0:
            self._unread(b"".join(self._pieces))
            return await super().readexactly(n)  # its error has the number of received bytes
        last = memoryview(self._pieces[-1])
        end = len(last) + self._missing_bytes
        self._pieces[-1] = last[:end]
        answer = b"".join(self._pieces)
        self._unread(last[end:])
        return answer

    def _unread(self, data: bytes | memoryview) -> None:
        """Put data back for the next call."""
        self._pieces = []
        self._missing_bytes = 0
        self._buffer += data


class KafkaClient(AIOKafkaClient):  # type: ignore[misc]
    """aiokafka's client with five differences.

    - A metadata request never creates a topic. By default brokers create a requested topic, so a deleted topic would
      exist again at once, empty, without any sign.
    - A broker that did not answer is tried again only after a wait. aiokafka connects again for each request, ten times
      per second.
    - The reason why a connection failed is kept, and is part of later errors. aiokafka only logs it, so its callers
      can't distinguish a wrong password from a broker that is down. Only the second is worth waiting for.
    - A connection whose access token expires soon is replaced in time. A broker closes it otherwise.
    - Brokers that moved are found. aiokafka only asks brokers that it knows. If none of them answers, this client asks
      the bootstrap servers again, whose names may have other addresses now (like Java's clients since KIP-899).
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._for_connections = {name: arguments[name] for name in arguments if name in _CONNECTION_PARAMETERS}
        self._login: TokenLogin | None = arguments.get("sasl_oauth_token_provider")
        self._tokens: WeakKeyDictionary[Any, AccessToken] = WeakKeyDictionary()  # of connections
        self._retired: list[Any] = []  # connections that were replaced, and may wait for answers
        self._connection_errors: dict[object, Exception] = {}  # of brokers that can't be reached
        # Connection to its backoff, and the end of the current wait.
        self._broken: dict[Hashable, tuple[BrokerBackoff, float]] = {}
        self.fetched: Mapping[KafkaPartition, bytes] = {}  # data of the last fetch response

    async def send(self, node_id: Any, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        try:
            response = await super().send(node_id, request, group=group)
        except NodeNotReadyError as error:
            reason = self._connection_errors.get(node_id)
            if reason is None:
                raise
            raise NodeNotReadyError(f"{error}: {reason!r}") from reason
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
        """Return a connection. None: it failed, or a new attempt is not due yet."""
        backoff, until_s = self._broken.get((node_id, group), (BrokerBackoff(), 0.0))
        if self._now_s() < until_s:
            return None
        await self._retire_expiring((node_id, group))
        connection = None
        if await self._ensure_connection(node_id, group):
            connection = await super()._get_conn(node_id, group=group, no_hint=no_hint)
        if connection is None:
            self._broken[node_id, group] = backoff, self._now_s() + backoff.next_ms() / 1000
        else:
            self._broken.pop((node_id, group), None)
            ResponseReader.adopt(connection._reader)
        return connection

    async def _ensure_connection(self, node_id: object, group: Any) -> bool:
        """Connect to a known broker unless it is connected. Returns False if this fails."""
        broker = self.cluster.broker_metadata(node_id)
        if broker is None or self._is_connected((node_id, group)):
            return True
        async with self._get_conn_lock:
            if self._is_connected((node_id, group)):
                return True
            try:
                self._conns[node_id, group] = await self._new_connection(
                    node_id,
                    broker.host,
                    broker.port,
                    on_close=self._on_connection_closed,
                    max_idle_ms=self._connections_max_idle_ms,
                )
            except (OSError, KafkaError, TimeoutError) as error:
                _aiokafka_log.error("Unable connect to node with id %s: %s", node_id, error)
                self.force_metadata_update()  # the broker may have another address now
                return False
        return True

    def _is_connected(self, key: Hashable) -> bool:
        held = self._conns.get(key)
        return held is not None and bool(held.connected())

    async def _new_connection(self, node_id: object, host: str, port: int, **more: Any) -> Any:
        """Connect. A failure is kept as the reason for later errors about this broker."""
        try:
            connection = await create_conn(host, port, **self._for_connections, **more)
        except (OSError, KafkaError, TimeoutError) as error:
            self._connection_errors[node_id] = error
            if self._login is not None and isinstance(error, KafkaError) and not error.retriable:
                self._login.discard()
            raise
        self._connection_errors.pop(node_id, None)
        if self._login is not None and self._login.last is not None:
            self._tokens[connection] = self._login.last
        return connection

    async def _retire_expiring(self, key: Hashable) -> None:
        """Give up a connection whose token expires soon, if there is a newer token. It is closed when it is idle."""
        for idle in [one for one in self._retired if not one._requests]:
            self._retired.remove(idle)
            idle.close()
        held = self._conns.get(key)
        token = self._tokens.get(held) if held is not None else None
        if token is None or self._login is None or env.monotonic_s() < token.renewal_s(_RECONNECT_AT):
            return
        try:
            current = await self._login.current()
        except KafkaError:
            return  # the connection works until its token expires, and the cache has logged the reason
        if current.expires_s > token.expires_s and self._conns.get(key) is held:
            del self._conns[key]
            self._retired.append(held)

    async def bootstrap(self) -> None:
        """Connect to the cluster. Raises the error of the last tried broker, unlike aiokafka's method."""
        try:
            await super().bootstrap()
        except KafkaConnectionError:
            for host, port, _ in self.hosts:
                (await self._new_connection(_BOOTSTRAP_SERVERS, host, port)).close()
            raise

    async def close(self) -> None:
        retired, self._retired = self._retired, []
        await asyncio.gather(super().close(), *(one.close() for one in retired))

    @property
    def connection_error(self) -> Exception | None:
        """Why a broker could not be reached in the last attempt; None if all could."""
        return next(iter(self._connection_errors.values()), None)

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: Collection[str]) -> bool:
        """Request metadata without creating topics, unlike aiokafka's method. Returns whether a broker answered."""
        request = MetadataRequest(list(topics) or None, allow_auto_topic_creation=False)
        nodes = [broker.nodeId for broker in self.cluster.brokers()] or ["bootstrap"]
        for node in env.random_sample(nodes, len(nodes)):
            try:
                metadata = await self.send(node, request)
            except (KafkaError, TimeoutError):
                continue
            if metadata.brokers:
                cluster_metadata.update_metadata(metadata)
                return True
        metadata = await self._ask_bootstrap_servers(request)
        if metadata is not None and metadata.brokers:
            cluster_metadata.update_metadata(metadata)
            return True
        cluster_metadata.failed_update(None)
        return False

    async def _ask_bootstrap_servers(self, request: Any) -> Any:
        """Send a request to the `bootstrap_servers`, because no other broker answered.

        Returns None if they don't answer either, or if a new attempt is not due yet.
        """
        backoff, until_s = self._broken.get(_BOOTSTRAP_SERVERS, (BrokerBackoff(), 0.0))
        if self._now_s() < until_s:
            return None
        for host, port, _ in self.hosts:
            try:
                connection = await self._new_connection(_BOOTSTRAP_SERVERS, host, port)
            except (OSError, KafkaError, TimeoutError):
                continue
            try:
                metadata = await connection.send(request)
            except (KafkaError, TimeoutError):
                continue
            finally:
                connection.close()
            self._broken.clear()  # brokers with the same numbers may have other addresses now
            return metadata
        self._broken[_BOOTSTRAP_SERVERS] = backoff, self._now_s() + backoff.next_ms() / 1000
        return None


def check_aiokafka() -> None:
    """Raise UnsupportedFeature if aiokafka's internals are missing or different."""
    for owner, name, expected in _EXPECTED:
        member = getattr(owner, name, None)
        if member is None:
            raise unsupported_client(f"it has no {owner.__name__}.{name}")
        found = [parameter for parameter in inspect.signature(member).parameters if parameter != "self"]
        if found != expected:
            raise unsupported_client(f"{owner.__name__}.{name} takes ({', '.join(found)}), not ({', '.join(expected)})")
    if not _has_expected_unpacking():
        raise unsupported_client("it returns records in a different way")
    if not requests_topic_ids():
        raise unsupported_client("it doesn't request topic ids from brokers that have them")


def use_client(consumer: AIOKafkaConsumer, client: KafkaClient) -> None:
    """Replace the client that the consumer has created and not used yet."""
    consumer._client = client


def connection_error(consumer: AIOKafkaConsumer) -> Exception | None:
    """Return why a broker could not be reached in the last attempt; None if all could."""
    return consumer._client.connection_error if isinstance(consumer._client, KafkaClient) else None


def fetch_broker(consumer: AIOKafkaConsumer, partition: KafkaPartition) -> int | None:
    """Return the broker that the consumer fetches from: the leader, or with `client_rack` a follower.

    None and -1 mean that no broker is known now.
    """
    server: int | None = consumer._fetcher._select_read_replica(partition)
    return server


def return_record_batches(consumer: AIOKafkaConsumer) -> None:
    """Make `getmany` return record batches, as `FetchedBatch`. Each batch counts as one record.

    Records of the older message format are still returned as aiokafka's record objects. aiokafka still handles
    checksums, aborted transactions, control batches and positions.

    Raises UnsupportedFeature if the consumer doesn't fetch through the client of `use_client`, or unpacks records
    differently.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    client = getattr(fetcher, "_client", None)
    if not isinstance(fetcher, Fetcher) or not isinstance(client, KafkaClient):
        raise unsupported_client("its consumer doesn't fetch through the client that it was given")
    fetcher._records = _FetchResults(client)


class _FetchResults(OrderedDict[KafkaPartition, Any]):
    """Replaces the fetcher's dictionary of fetched results that were not consumed yet.

    The fetcher adds a response's results here before any other task can run. So they belong to the client's last
    response.
    """

    def __init__(self, client: KafkaClient) -> None:
        super().__init__()
        self._client = client

    def __setitem__(self, partition: KafkaPartition, result: Any) -> None:
        if isinstance(result, FetchResult):
            unpack_as_batches(result._partition_records, self._client.fetched[partition])
        super().__setitem__(partition, result)


def unpack_as_batches(partition_records: Any, data: bytes) -> None:
    """Make `partition_records` iterate over batches. No record may have been taken from it.

    data: the bytes from which it was created.
    """

    def wanted(_: KafkaPartition, record: Any) -> Any:
        if isinstance(record, FetchedBatch):
            record.start = partition_records.next_fetch_offset
        return record

    partition_records._records = _Batches(partition_records._records, data)
    partition_records._consumer_record = wanted


class _Batches:
    """Replaces aiokafka's MemoryRecords. Its compiled form (0.14) parses every batch in the format of the first one.
    But after an upgrade of a topic's message format, one response may have both formats.
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


_LOG_OVERHEAD: Final = struct.Struct(">qi")  # offset and size, at the start of every batch in every format
_MAGIC_AT: Final = 16  # place of the format's number


def _runs_of_one_format(data: bytes) -> list[tuple[int, int]]:
    """Return (start, end) of each run of consecutive batches with one format. The last batch may be truncated."""
    runs: list[tuple[int, int]] = []
    begin = at = 0
    while at + _MAGIC_AT < len(data):
        if data[at + _MAGIC_AT] != data[begin + _MAGIC_AT]:
            runs.append((begin, at))
            begin = at
        at += _LOG_OVERHEAD.size + max(0, _LOG_OVERHEAD.unpack_from(data, at)[1])
    return [*runs, (begin, len(data))]


def _has_expected_unpacking() -> bool:
    """Return whether aiokafka unpacks records in such a way that our batches are returned."""
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
    """Return the places where the parser failed in the last poll, for example `topic-0 at offset 17`."""
    found = []
    for partition, fetched in getattr(consumer._fetcher, "_records", {}).items():
        records: Any = getattr(fetched, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if iterator is not None and getattr(iterator, "gi_frame", True) is None:  # the generator has raised an error
            found.append(f"{TopicPartition(*partition)} at offset {records.next_fetch_offset}")
    return found


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop the consumer. Raises CancelledError only if the caller is cancelled meanwhile."""
    # A separate task is needed: aiokafka raises CancelledError if it cancels a fetch that waits for its retry. And
    # `cancelling()` can't distinguish this: before Python 3.13 it also counts a task group that failed.
    stopping = asyncio.ensure_future(consumer.stop())
    try:
        await asyncio.wait([stopping])
        if not stopping.cancelled():
            stopping.result()
    finally:
        stopping.cancel()
        fetches = list(getattr(getattr(consumer, "_fetcher", None), "_pending_tasks", ()))
        for fetch in fetches:  # fetches after the one that raised CancelledError
            fetch.cancel()
        await asyncio.gather(stopping, *fetches, return_exceptions=True)
        await consumer._client.close()  # still open after an earlier error; closing twice is harmless
