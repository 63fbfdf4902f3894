"""A schema is requested once. An unavailable registry raises within bounded time, and an unknown id is a bad record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tidelake.errors import BadInput, RegistryUnavailable
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
