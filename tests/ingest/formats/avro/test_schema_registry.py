"""A schema is requested once. An unavailable registry raises within bounded time, and an unknown id is a bad record."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tests.support.token_endpoint import CLIENT_ID, CLIENT_SECRET, TokenEndpoint, token_endpoint
from tidelake.errors import BadInput, RegistryUnavailable
from tidelake.ingest.formats.avro.framing import VALUE_SCHEMA_HEADER, unframed
from tidelake.ingest.formats.avro.registry_options import RegistryOptions
from tidelake.ingest.formats.avro.schema_registry import SchemaRegistry
from tidelake.ingest.formats.values.json_text import BadValue

TEXT = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with schema_registry() as registry:
        registry.schemas = {"7": TEXT}
        yield registry


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s


def client(server: SchemaRegistryServer, time: Time | None = None, **options: Any) -> SchemaRegistry:
    parsed = RegistryOptions.parsed("debezium-avro", {"schema_registry_url": server.url, **options})
    time = time or Time()
    return SchemaRegistry(parsed, time.sleep, time.clock)


def test_a_schema_is_requested_once(server: SchemaRegistryServer) -> None:
    registry = client(server)
    assert [registry.schema(7).text for _ in range(3)] == [TEXT] * 3
    assert server.requests == ["/schemas/ids/7"]


def test_a_schema_is_found_by_its_guid(server: SchemaRegistryServer) -> None:
    guid = UUID(int=7)
    server.schemas[str(guid)] = TEXT
    assert client(server).schema(guid).text == TEXT
    assert server.requests == [f"/schemas/guids/{guid}"]


def test_an_unknown_id_is_a_bad_record_and_is_requested_again_next_time(server: SchemaRegistryServer) -> None:
    registry = client(server)
    for _ in range(2):
        with pytest.raises(BadValue, match=r"the schema registry does not know schema 8 .*Schema not found"):
            registry.schema(8)
    server.schemas["8"] = TEXT
    assert registry.schema(8).text == TEXT


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failing_registry_is_retried(server: SchemaRegistryServer, status: int) -> None:
    server.failing, server.status = 2, status
    time = Time()
    assert client(server, time).schema(7).text == TEXT
    assert len(server.requests) == 3
    assert time.now_s == pytest.approx(0.6)


def test_a_registry_that_closes_the_connection_is_retried(server: SchemaRegistryServer) -> None:
    server.dropping = 2
    assert client(server).schema(7).text == TEXT


def test_an_unavailable_registry_raises_after_the_timeout(server: SchemaRegistryServer) -> None:
    server.failing = 1_000
    time = Time()
    message = r"schema 7 could not be read from the schema registry for 5 s\. The last error: .*HTTP 503.*`schema_reg"
    with pytest.raises(RegistryUnavailable, match=message):
        client(server, time, schema_registry_timeout_s="5").schema(7)
    assert time.now_s < 5
    server.failing = 0
    assert client(server, time).schema(7).text == TEXT


def test_a_refused_connection_raises() -> None:
    with schema_registry() as gone:
        pass
    with pytest.raises(RegistryUnavailable, match=re.escape(gone.url)):
        client(gone, schema_registry_timeout_s="1").schema(7)


def test_the_next_url_is_tried_when_one_is_unavailable(server: SchemaRegistryServer) -> None:
    with schema_registry() as gone:
        pass
    registry = client(server, schema_registry_url=f"{gone.url}, {server.url}/")
    assert registry.schema(7).text == TEXT


def test_a_server_that_is_not_a_registry_makes_no_dead_letters(server: SchemaRegistryServer) -> None:
    with pytest.raises(
        RegistryUnavailable, match=r"HTTP 404 .*This is not a schema registry: correct schema_registry_url"
    ):
        client(server, schema_registry_url=f"{server.url}/wrong").schema(7)


def test_credentials_are_sent(server: SchemaRegistryServer) -> None:
    server.user_info = "reader:pass:word"
    assert client(server, basic_auth_user_info="reader:pass:word").schema(7).text == TEXT
    with pytest.raises(RegistryUnavailable, match=r"HTTP 401 .*set basic_auth_user_info"):
        client(server, basic_auth_user_info="reader:other").schema(7)


def test_referenced_schemas_are_loaded_before_the_schema_that_uses_them(server: SchemaRegistryServer) -> None:
    server.schemas |= {"8": '"eight"', "9": '"nine"'}
    server.subjects = {"a b": ["8"], "c/d": ["9"]}
    server.references = {
        "7": [{"name": "eight", "subject": "a b", "version": 1}],
        "8": [{"name": "nine", "subject": "c/d", "version": 1}],
    }
    assert client(server).schema(7).references == ('"nine"', '"eight"')
    assert server.requests[1:] == ["/subjects/a%20b/versions/1", "/subjects/c%2Fd/versions/1"]


def test_a_schema_of_another_kind_is_a_bad_record(server: SchemaRegistryServer) -> None:
    server.types["7"] = "PROTOBUF"
    with pytest.raises(BadValue, match="schema 7 is a schema of PROTOBUF, not of Avro"):
        client(server).schema(7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema_registry_url": "registry:8081"}, "'registry:8081' is not an http or https URL"),
        ({"schema_registry_url": "http://me:secret@registry"}, "contains a password"),
        ({"basic_auth_user_info": "me"}, "must be user:password"),
        ({"basic_auth_user_info": "a:b", "bearer_auth_token": "c"}, "not both"),
        ({"ssl_key_location": "key.pem"}, "needs ssl_certificate_location"),
        ({"schema_registry_timeout_s": "soon"}, "must be a number of seconds up to 600"),
        ({"schema_registry_url": 8081}, "must be a string, not 8081"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_contradictory_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        RegistryOptions.parsed("debezium-avro", options)


def test_a_missing_url_is_named_with_its_setting() -> None:
    with pytest.raises(BadInput, match="set `schema_registry_url` in `format_options`"):
        SchemaRegistry(RegistryOptions())


def test_credentials_are_not_printed() -> None:
    options = RegistryOptions.parsed("debezium-avro", {"basic_auth_user_info": "me:secret"})
    assert "secret" not in repr(options)


# ---------------------------------------------------------------- access tokens and certificates


def by_token(endpoint: TokenEndpoint) -> dict[str, Any]:
    return {
        "bearer_auth_credentials_source": "OAUTHBEARER",
        "bearer_auth_issuer_endpoint_url": endpoint.url,
        "bearer_auth_client_id": CLIENT_ID,
        "bearer_auth_client_secret": CLIENT_SECRET,
        "bearer_auth_logical_cluster": "lsrc-1",
        "bearer_auth_identity_pool_id": "pool-1",
    }


def test_a_registry_is_asked_with_tokens_that_are_renewed(server: SchemaRegistryServer) -> None:
    server.schemas["8"] = TEXT
    with token_endpoint() as endpoint:
        registry = client(server, **by_token(endpoint))
        server.token = "token-0"
        assert registry.schema(7).text == TEXT
        server.token = "token-1"  # the first one is refused: it was revoked
        assert registry.schema(8).text == TEXT
        assert endpoint.issued == ["token-0", "token-1"]
    assert (server.headers["target-sr-cluster"], server.headers["Confluent-Identity-Pool-Id"]) == ("lsrc-1", "pool-1")


def test_a_registry_that_refuses_every_token_is_reported(server: SchemaRegistryServer) -> None:
    server.token = "another"
    with (
        token_endpoint() as endpoint,
        pytest.raises(
            RegistryUnavailable, match=r"HTTP 401.*The registry refused the access token .*bearer_auth_scope"
        ),
    ):
        client(server, **by_token(endpoint)).schema(7)


def test_a_wrong_secret_of_the_client_is_reported_at_once(server: SchemaRegistryServer) -> None:
    time = Time()
    with token_endpoint() as endpoint:
        endpoint.secret = "another"
        message = (
            r"no access token for the registry: .*HTTP 401 invalid_client.*Check bearer_auth_client_id and bearer_"
        )
        with pytest.raises(RegistryUnavailable, match=message) as raised:
            client(server, time, **by_token(endpoint)).schema(7)
    assert time.now_s == 0
    assert CLIENT_SECRET not in str(raised.value)


def test_a_token_endpoint_that_is_away_is_retried(server: SchemaRegistryServer) -> None:
    server.token = "token-0"
    with token_endpoint() as endpoint:
        endpoint.answers = [(503, "busy")] * 2
        assert client(server, **by_token(endpoint)).schema(7).text == TEXT


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_a_registry_that_asks_for_a_certificate_gets_one(files: Certificates) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    tls.load_cert_chain(files.server, files.server_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    own: dict[str, Any] = {"ssl_ca_location": str(files.ca), "ssl_certificate_location": str(files.client)}
    with schema_registry(tls=tls) as server:
        server.schemas = {"7": TEXT}
        locked: dict[str, Any] = {"ssl_key_location": str(files.locked_key), "ssl_key_password": PASSWORD}
        assert client(server, **own, **locked).schema(7).text == TEXT
        with pytest.raises(BadInput, match=r"ssl_key_location: .* can't be used: .*and ssl_key_password for a key"):
            client(server, **own, ssl_key_location=str(files.locked_key))
        with pytest.raises(RegistryUnavailable, match=r"TLS failed: .*Set ssl_ca_location"):
            client(server).schema(7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bearer_auth_issuer_endpoint_url": "https://a"}, "need bearer_auth_client_id, bearer_auth_client_secret"),
        ({"bearer_auth_client_id": "a"}, "bearer_auth_client_id would not be used: set bearer_auth_issuer"),
        ({"bearer_auth_credentials_source": "SASL_OAUTHBEARER_INHERIT"}, "write OAUTHBEARER or STATIC_TOKEN"),
        ({"bearer_auth_client_secret": 7}, r"must be a string, not \*\*\*"),
        (
            {**dict.fromkeys(("bearer_auth_client_id", "bearer_auth_client_secret"), "a"), "bearer_auth_token": "b"}
            | {"bearer_auth_issuer_endpoint_url": "https://a"},
            "one of them",
        ),
        (
            {**dict.fromkeys(("bearer_auth_client_id", "bearer_auth_client_secret"), "a")}
            | {"bearer_auth_issuer_endpoint_url": "https://me:hunter2@a"},
            "contains a password.*set bearer_auth_client_id",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_contradictory_options_of_tokens_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        RegistryOptions.parsed("debezium-avro", options)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("compression", [0, 5])
def test_records_of_aws_glue_are_refused_by_name(compression: int) -> None:
    version = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
    value = bytes([3, compression]) + version.bytes + b"\x02\x06"
    with pytest.raises(BadValue, match=rf"AWS Glue Schema Registry \(schema version {version}\), which is not read"):
        unframed(value, (), VALUE_SCHEMA_HEADER)
