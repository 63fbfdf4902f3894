"""An unavailable broker is retried with growing delays, and logged once a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka.client import AIOKafkaClient
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import SourceUnavailable
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.broker_error_log import INTERVAL_MS, BrokerErrorLog
from tidelake.ingest.sources.kafka.client_internals import KafkaClient
from tidelake.ingest.sources.kafka.kafka_source import KafkaSource
from tidelake.ingest.sources.kafka.retries import INITIAL_BACKOFF_MS, MAX_BACKOFF_MS, BrokerBackoff
from tidelake.storage.base.logs import get_logger

AIOKAFKA = logging.getLogger("aiokafka.client")


@given(st.floats(0, 1, exclude_max=True))
def test_waits_grow_from_200_ms_to_10_s_with_jitter(chance: float) -> None:
    backoff = BrokerBackoff(lambda: chance)
    waits = [backoff.next_ms() for _ in range(40)]
    assert 0.8 * INITIAL_BACKOFF_MS <= waits[0] <= 1.2 * INITIAL_BACKOFF_MS
    assert waits == sorted(waits)
    assert max(waits) <= MAX_BACKOFF_MS
    assert waits[-1] >= 0.8 * MAX_BACKOFF_MS
    assert waits[1] == pytest.approx(2 * waits[0], abs=2)


def test_retries_of_two_clients_are_spread_in_time() -> None:
    assert len({BrokerBackoff().next_ms() for _ in range(20)}) > 1


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def heard(level: int = logging.WARNING) -> Iterator[list[str]]:
    lines, loggers = Lines(), [logging.getLogger(name) for name in ("aiokafka", "ingest", "tests")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(lines)
        logger.setLevel(level)
    try:
        yield lines.texts
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.removeHandler(lines)
            logger.setLevel(old)


def test_our_log_lines_and_those_of_aiokafka_share_one_rate_limit() -> None:
    now_ms = [0]
    log = BrokerErrorLog(get_logger(__name__), lambda: now_ms[0])
    log.begin()
    try:
        with heard() as lines:
            for now_ms[0] in range(0, 2 * INTERVAL_MS, 500):
                AIOKAFKA.error("Unable connect to node with id %s: %s", 1, "refused")
                log.warning("waiting for the source", doing="read")
            AIOKAFKA.error("Topic %s not found in cluster metadata", "orders")
    finally:
        log.end()
    assert lines == [
        "Unable connect to node with id 1: refused",
        "Unable connect to node with id 1: refused (and 239 more lines since the last one)",
        "Topic orders not found in cluster metadata",
    ]
    with heard() as lines:
        AIOKAFKA.error("Failed fetch messages from %s: %s", 1, "x")
        AIOKAFKA.error("Failed fetch messages from %s: %s", 1, "x")
    assert len(lines) == 2  # a source that is closed changes nothing for others


def test_with_debug_every_line_is_logged() -> None:
    log = BrokerErrorLog(get_logger(__name__), lambda: 0)
    log.begin()
    try:
        with heard(logging.DEBUG) as lines:
            for _ in range(5):
                AIOKAFKA.error("Failed fetch messages from %s: %s", 1, "x")
    finally:
        log.end()
    assert len(lines) == 5


async def test_a_source_without_a_broker_logs_it_once_and_ends_in_time() -> None:
    source = KafkaSource(
        KafkaSettings(bootstrap_servers="127.0.0.1:1", topics="t", unreachable_after_ms=1_500), frozenset()
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    with heard() as lines:
        with pytest.raises(SourceUnavailable):
            await source.open()
        await source.close()
    assert len(lines) == 1
    assert loop.time() - began < 10  # not another wait of the longest


async def test_a_stop_ends_a_retry_wait() -> None:
    source = KafkaSource(
        KafkaSettings(bootstrap_servers="127.0.0.1:1", topics="t", unreachable_after_ms=3_600_000), frozenset()
    )
    opening = asyncio.create_task(source.open())
    await asyncio.sleep(0.5)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await opening
    await source.close()


async def test_no_connection_to_a_refusing_broker_is_tried_during_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, now_s = 0, 0.0

    async def refuse(self: AIOKafkaClient, node_id: object, **_: object) -> None:
        nonlocal attempts
        attempts += 1

    monkeypatch.setattr(AIOKafkaClient, "_get_conn", refuse)
    client = KafkaClient(bootstrap_servers="127.0.0.1:1")
    monkeypatch.setattr(client, "_now_s", lambda: now_s)
    for tenth in range(600):  # a minute of fetches, ten a second
        now_s = tenth / 10
        assert await client._get_conn(1) is None
    assert 8 <= attempts <= 16
    assert await client._get_conn(2) is None
    assert attempts <= 17  # another broker has a wait of its own
    await client.close()
