"""Logins at a real broker with the listeners that companies run: access tokens, SCRAM, and certificates of clients.

What is wrong for good is reported at once, with the setting to correct. What may pass is retried for
`unreachable_after_ms`. No message and no line of the log has a secret.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import structs

from tests.ingest.sources.kafka.test_kafka_source import LIMIT_S, records
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.kafka_broker import KafkaBroker
from tests.support.secured_kafka import USER, USER_PASSWORD, secured_broker, tls_settings
from tests.support.token_endpoint import CLIENT_ID, CLIENT_SECRET, SigningKey, TokenEndpoint, token_endpoint
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, SourceUnavailable, TidelakeError
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.kafka_source import KafkaSource
from tidelake.ingest.sources.kafka.range_reader import RangeReader

pytestmark = pytest.mark.interop


@dataclass(frozen=True)
class Cluster:
    broker: KafkaBroker
    files: Certificates
    key: SigningKey


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    files, key = make_certificates(folder), SigningKey(folder)
    broker = secured_broker(folder / "kafka", key, files)
    broker.start()
    yield Cluster(broker, files, key)
    broker.purge()


@pytest.fixture(autouse=True)
async def connections_end() -> AsyncIterator[None]:
    """Wait for the last messages of TLS, which follow a refusal."""
    yield
    transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
    for _ in range(300):
        if all(one._sock is None for one in list(transports.values())):
            break
        await asyncio.sleep(0.01)


@pytest.fixture
def endpoint(cluster: Cluster) -> Iterator[TokenEndpoint]:
    with token_endpoint(cluster.key) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = cluster.broker.create_topic()
    cluster.broker.send(records(2), name)
    return name


def settings(cluster: Cluster, listener: str, topic: str, **more: Any) -> KafkaSettings:
    protocol = {"OAUTH": "SASL_SSL", "OAUTH_CLEAR": "SASL_PLAINTEXT", "SCRAM": "SASL_SSL", "MTLS": "SSL"}[listener]
    tls = {"security_protocol": protocol} if listener == "OAUTH_CLEAR" else tls_settings(cluster.files, protocol)
    return KafkaSettings(
        **{"bootstrap_servers": cluster.broker.listeners[listener], "topics": topic, "until": "end", **tls, **more}
    )


def by_token(endpoint: TokenEndpoint, **more: Any) -> dict[str, Any]:
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_secret": Secret(CLIENT_SECRET),
        **more,
    }


def by_password(mechanism: str, password: str = USER_PASSWORD) -> dict[str, Any]:
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": Secret(password),
    }


@asynccontextmanager
async def opened(given: KafkaSettings) -> AsyncIterator[tuple[KafkaSource, dict[TopicPartition, int]]]:
    source = KafkaSource(given, frozenset())
    try:
        async with asyncio.timeout(LIMIT_S):
            partitions = await source.open()
            yield source, dict.fromkeys(partitions, 0)
    finally:
        await source.close()


async def count(given: KafkaSettings) -> int:
    """Return the number of records up to the end."""
    async with opened(given) as (source, starts), aclosing(source.read(starts)) as batches:
        return sum([len(batch.values) async for batch in batches])


async def refusal(given: KafkaSettings) -> TidelakeError:
    with pytest.raises(TidelakeError) as raised:
        await count(given)
    return raised.value


# ---------------------------------------------------------------- access tokens


@pytest.mark.parametrize("listener", ["OAUTH", "OAUTH_CLEAR"])
async def test_records_are_read_with_an_access_token(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str, listener: str
) -> None:
    scoped = by_token(endpoint, sasl_oauthbearer_scope="records.read", sasl_oauthbearer_extensions={"poolId": "p"})
    assert await count(settings(cluster, listener, topic, **scoped)) == 2
    assert len(endpoint.issued) == 1  # for all connections
    assert endpoint.requests[0]["scope"] == "records.read"


async def read_while(
    cluster: Cluster, given: KafkaSettings, topic: str, seconds: float, act: Callable[[float], None] = lambda _: None
) -> None:
    """Send two records a second for a while, and read all of them.

    act: called after each record with the seconds since the start.
    """
    started, total = time.monotonic(), round(2 * seconds)

    async def send() -> None:
        for _ in range(total):
            await asyncio.to_thread(cluster.broker.send, records(1), topic)
            act(time.monotonic() - started)
            await asyncio.sleep(0.5)

    async with opened(structs.replace(given, until="forever")) as (source, starts), asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        async with aclosing(source.read(starts)) as batches:
            async for batch in batches:
                if batch.next_offset == 2 + total:
                    break


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of the source and of its client."""
    ours = [one for one in caplog.records if one.name.partition(".")[0] in ("aiokafka", "tidelake")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


@pytest.mark.interop
async def test_a_running_service_reads_on_past_the_expiry_of_its_tokens(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str
) -> None:
    endpoint.lifetime_s = 5
    await read_while(cluster, settings(cluster, "OAUTH", topic, **by_token(endpoint)), topic, 11)
    assert len(endpoint.issued) >= 3


@pytest.mark.interop
async def test_a_token_endpoint_that_is_away_for_a_while_stops_nothing(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.lifetime_s = 5

    def act(since_s: float) -> None:
        endpoint.down = since_s > 3 and not has_complained()  # the first token expires at 5

    def has_complained() -> bool:
        return any("the access token could not be renewed" in line for line in complaints(caplog))

    await read_while(cluster, settings(cluster, "OAUTH", topic, **by_token(endpoint)), topic, 9, act)
    assert has_complained()


@pytest.mark.interop
async def test_a_running_service_whose_secret_was_changed_ends_with_the_reason(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str
) -> None:
    endpoint.lifetime_s = 3

    def act(since_s: float) -> None:
        endpoint.secret = "another"

    given = settings(cluster, "OAUTH", topic, **by_token(endpoint), unreachable_after_ms=4_000)
    message = r"no answer for .* within 4000 ms: the token endpoint .*HTTP 401 invalid_client: the secret has expired"
    with pytest.raises(ExceptionGroup) as raised:
        await read_while(cluster, given, topic, 30, act)
    assert raised.group_contains(SourceUnavailable, match=message)


@dataclass(frozen=True)
class Refusal:
    """id: what is wrong. endpoint: attributes of the token endpoint. given: other settings of the client."""

    id: str
    message: str
    endpoint: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    error: type[TidelakeError] = BadInput


REFUSALS = (
    Refusal(
        "a wrong secret",
        r"could not connect: the token endpoint http://.*/token: HTTP 401 invalid_client: the secret has expired\. "
        r"Check `source.sasl_oauthbearer_client_id` and `source.sasl_oauthbearer_client_secret`, and whether ",
        given={"sasl_oauthbearer_client_secret": Secret("wr0ng")},
    ),
    Refusal(
        "a scope that the client may not have",
        r"HTTP 400 invalid_scope\. Set `source.sasl_oauthbearer_scope` to a scope that this client may ask for",
        given={"sasl_oauthbearer_scope": "everything"},
    ),
    Refusal(
        "a token for another audience",
        r"could not connect: the broker refused the access token: invalid_token \(the token: iss https://login.test, "
        r"aud billing, scope .*\)\. Compare issuer, audience and scope with .*and the clocks of brokers",
        {"audience": "billing"},
    ),
    Refusal(
        "clocks that differ",
        r"the broker refused the access token: .* valid from .*Z, to .*Z\)\. .*the clocks of brokers and ",
        {"skew_s": -7_200},
    ),
    Refusal(
        "a server that is no token endpoint",
        r"HTTP 404 no such page\. This is not a token endpoint: correct `source.sasl_oauthbearer_token_endpoint_url`",
        {"answers": [(404, "no such page")] * 4},
    ),
    Refusal(
        "an answer without a token",
        r"HTTP 200 <html>.*This is not a token endpoint",
        {"answers": [(200, "<html>Sign in</html>")] * 4},
    ),
    Refusal(
        "a token endpoint that repeats the secret",
        r"HTTP 400 invalid_request: \*\*\* is wrong\.",
        {"answers": [(400, f'{{"error": "invalid_request", "error_description": "{CLIENT_SECRET} is wrong"}}')] * 4},
    ),
    Refusal(
        "a token endpoint that is down",
        r"could not connect: the token endpoint http://.* doesn't answer: .*Check `source.sasl_oauthbearer_token",
        {"down": True},
        {"unreachable_after_ms": 1_500},
        SourceUnavailable,
    ),
    Refusal(
        "a token endpoint that is overloaded",
        r"could not connect: the token endpoint .*HTTP 503 busy",
        {"answers": [(503, "busy")] * 100},
        {"unreachable_after_ms": 1_500},
        SourceUnavailable,
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
async def test_a_login_that_fails_names_its_reason_and_the_setting(
    cluster: Cluster, endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture, case: Refusal
) -> None:
    for name, value in case.endpoint.items():
        setattr(endpoint, name, list(value) if isinstance(value, list) else value)
    started = time.monotonic()
    error = await refusal(settings(cluster, "OAUTH", "t", **{**by_token(endpoint), **case.given}))
    assert isinstance(error, case.error)
    assert re.search(case.message, str(error)), str(error)
    assert time.monotonic() - started < 10
    assert not {text for text in (CLIENT_SECRET, "wr0ng", *endpoint.issued) if text in f"{error}{caplog.text}"}


async def test_a_token_endpoint_that_recovers_is_waited_for(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str
) -> None:
    endpoint.answers = [(503, "busy")] * 3
    assert await count(settings(cluster, "OAUTH", topic, **by_token(endpoint))) == 2


async def test_a_task_of_spark_logs_in_with_a_token_and_reports_the_same_errors(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str
) -> None:
    given = settings(cluster, "OAUTH", topic, **by_token(endpoint))
    reader = RangeReader(given)
    await reader.open()
    columns, _ = await reader.poll(TopicPartition(topic, 0), 0, 2)
    await reader.close()
    assert columns.values.to_pylist() == [b"v0", b"v1"]
    endpoint.secret = "another"
    with pytest.raises(BadInput, match="HTTP 401 invalid_client"):
        await RangeReader(given).open()


# ---------------------------------------------------------------- passwords


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_records_are_read_with_a_password(cluster: Cluster, topic: str, mechanism: str) -> None:
    assert await count(settings(cluster, "SCRAM", topic, **by_password(mechanism))) == 2
    error = await refusal(settings(cluster, "SCRAM", topic, **by_password(mechanism, "hunter3")))
    assert isinstance(error, BadInput)
    assert re.search(r"refused to connect: SaslAuthenticationFailed.*[Ii]nvalid", str(error)), str(error)
    assert "hunter3" not in str(error)


@pytest.mark.interop
async def test_sessions_that_brokers_end_are_begun_again(cluster: Cluster, topic: str) -> None:
    await read_while(cluster, settings(cluster, "SCRAM", topic, **by_password("SCRAM-SHA-256")), topic, 5)


async def test_a_listener_without_the_mechanism_is_named(cluster: Cluster, endpoint: TokenEndpoint, topic: str) -> None:
    error = await refusal(settings(cluster, "SCRAM", topic, **by_token(endpoint)))
    assert isinstance(error, BadInput)
    assert re.search(r"refused to connect: UnsupportedSaslMechanism", str(error)), str(error)


async def test_the_log_never_has_a_secret_not_even_at_debug(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert await count(settings(cluster, "OAUTH", topic, **by_token(endpoint))) == 2
    assert await count(settings(cluster, "SCRAM", topic, **by_password("PLAIN"))) == 2
    assert "SaslAuthenticateRequest" in caplog.text
    for secret in (USER_PASSWORD, CLIENT_SECRET, *endpoint.issued):
        assert secret not in caplog.text


# ---------------------------------------------------------------- certificates


async def test_records_are_read_with_a_certificate(cluster: Cluster, topic: str) -> None:
    files = cluster.files
    own: dict[str, Any] = {"ssl_certfile": files.client, "ssl_keyfile": files.client_key}
    assert await count(settings(cluster, "MTLS", topic, **own)) == 2
    locked = {**own, "ssl_keyfile": files.locked_key, "ssl_password": Secret(PASSWORD)}
    assert await count(settings(cluster, "MTLS", topic, **locked)) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(
            {"ssl_certfile": None}, "TLS failed: .*Set `source.ssl_certfile` and `source.ssl_keyfile`", id="none"
        ),
        pytest.param(
            {"ssl_certfile": "stranger", "ssl_keyfile": "stranger_key"},
            "TLS failed: .*Set `source.ssl_certfile` and `source.ssl_keyfile` to a certificate that the brokers accept",
            id="of another authority",
        ),
        pytest.param(
            {"ssl_cafile": "stranger"}, "TLS failed: .*verify failed.*Set `source.ssl_cafile` to", id="of the brokers"
        ),
    ],
)
async def test_a_refused_certificate_is_reported_at_once(
    cluster: Cluster, topic: str, wrong: dict[str, str | None], message: str
) -> None:
    own = {"ssl_certfile": "client", "ssl_keyfile": "client_key", **wrong}
    given = {name: getattr(cluster.files, file) for name, file in own.items() if file is not None}
    if own["ssl_certfile"] is None:
        del given["ssl_keyfile"]
    error = await refusal(settings(cluster, "MTLS", topic, **given))
    assert isinstance(error, BadInput)
    assert re.search(message, str(error)), str(error)


@pytest.mark.parametrize(("listener", "address"), [("MTLS", "PLAINTEXT"), ("OAUTH_CLEAR", "OAUTH")])
async def test_another_protocol_than_the_ports_is_suggested(
    cluster: Cluster, endpoint: TokenEndpoint, listener: str, address: str
) -> None:
    at = {"PLAINTEXT": cluster.broker.address, **cluster.broker.listeners}[address]
    login = by_token(endpoint) if listener == "OAUTH_CLEAR" else {}
    given = settings(cluster, listener, "t", bootstrap_servers=at, unreachable_after_ms=1_000, **login)
    error = await refusal(given)
    assert isinstance(error, SourceUnavailable)
    assert "Check `source.bootstrap_servers` and `source.security_protocol`" in str(error)
