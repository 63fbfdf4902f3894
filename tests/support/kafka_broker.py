"""A real Kafka broker (tools/kafka), with functions to create topics and send recordings."""

from __future__ import annotations

import asyncio
import subprocess
from base64 import b64decode
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.support.line_server import Json
from tests.support.tools import TOOLS, build_tool

KAFKA = TOOLS / "kafka"

_START_S = 600  # only a failing test waits this long: on a busy machine a killed broker may take a minute
_CONTROLLER_S = 60

T = TypeVar("T")


class KafkaBroker:
    """One broker with its own data folder. All methods block: from async code call them through `asyncio.to_thread`.

    settings: more lines of its properties.
    listeners: name to protocol of listeners beside the one without a login, which these helpers use.
    users: user to password, for SCRAM.
    jvm: options of its JVM.
    """

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        jvm: Iterable[str] = (),
    ) -> None:
        self._data = data
        self._settings = [
            *(part for key, value in (settings or {}).items() for part in ("--set", f"{key}={value}")),
            *(part for name, protocol in (listeners or {}).items() for part in ("--listener", f"{name}={protocol}")),
            *(part for user, password in (users or {}).items() for part in ("--scram", f"{user}={password}")),
            *(part for option in jvm for part in ("--jvm", option)),
        ]
        self.address = ""  # host:port, the same after every start without another port
        self.listeners: Mapping[str, str] = {}  # name to host:port, of the additional listeners

    def start(self, port: int | None = None) -> None:
        """Start, or start again with the records it had; port: elsewhere from now on. Ready when this returns."""
        place = [] if port is None else ["--port", str(port)]
        command: list[str | Path] = [
            KAFKA / "start-kafka",
            "--data",
            self._data,
            "--wait",
            str(_START_S),
            *place,
            *self._settings,
        ]
        self.address = build_tool(*command)
        of_listeners = (self._data / "listeners").read_text(encoding="utf-8").splitlines()
        self.listeners = dict(map(str.split, of_listeners))

    def stop(self) -> None:
        """A clean shutdown."""
        self._run("--data", self._data)

    def kill(self) -> None:
        """kill -9: what a crashed broker looks like to its clients."""
        self._run("--data", self._data, "--now")

    def purge(self) -> None:
        self._run("--data", self._data, "--now", "--purge")

    def _run(self, *arguments: str | Path) -> None:
        subprocess.run([KAFKA / "stop-kafka", *arguments], check=True)

    def create_topic(self, name: str | None = None, partitions: int = 1, **configs: str) -> str:
        """A new topic; its name (made up unless given)."""
        topic = name or f"t-{uuid4().hex[:12]}"

        self._administer(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)]))
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self._administer(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def delete_topic(self, topic: str) -> None:
        self._administer(lambda admin: admin.delete_topics([topic]))

    def _administer(self, act: Callable[[AIOKafkaAdminClient], Awaitable[object]]) -> None:
        async def connect_and_act() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await admin.start()
            try:
                async with asyncio.timeout(_CONTROLLER_S):  # a broker that has just started may not know it yet
                    while admin._client.cluster.controller is None:
                        await admin._client.force_metadata_update()
                        await asyncio.sleep(0.1)
                await act(admin)
            finally:
                await admin.close()

        _run_apart(connect_and_act())

    def send(self, records: Iterable[Mapping[str, Json]], topic: str | None = None) -> int:
        """Send change-log lines (`recorded_lines`), keeping partition, key, headers and timestamp of each.

        topic: instead of each record's own. Returns the number sent.
        """

        async def send_all() -> int:
            sent = 0
            async with AIOKafkaProducer(
                bootstrap_servers=self.address, linger_ms=5, max_batch_size=1 << 20
            ) as producer:
                for record in records:
                    await producer.send(
                        topic or record["topic"],
                        key=record_bytes(record, "key"),
                        value=record_bytes(record, "value"),
                        partition=record["partition"],
                        timestamp_ms=record["timestamp_ms"],
                        headers=[(name, None if text is None else text.encode()) for name, text in record["headers"]],
                    )
                    sent += 1
                await producer.flush()
            return sent

        return _run_apart(send_all())


def record_bytes(record: Mapping[str, Json], name: str) -> bytes | None:
    """`key` or `value` of a change-log line as the bytes Kafka carries."""
    if f"{name}_base64" in record:
        encoded = record[f"{name}_base64"]
        return None if encoded is None else b64decode(encoded)
    text = record[name]
    return None if text is None else str(text).encode()


def _run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, also below a running one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the session; a test makes its own topics. Fails where no broker can be had."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.purge()


@pytest.fixture
def private_kafka_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker for one test, which may stop, kill and restart it."""
    broker = KafkaBroker(tmp_path / "kafka")
    broker.start()
    yield broker
    broker.purge()
