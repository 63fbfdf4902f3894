"""Credentials for a table's files: when they are requested, and how an unavailable server is handled."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tidelake.errors import BadInput
from tidelake.storage.catalog.rest.rest_client import Refused, RestClient
from tidelake.storage.catalog.rest.token_file_io import TokenFileIO
from tidelake.storage.fileio import open_file_io

HOUR_MS = 3_600_000
RESOURCE = ("databases", "shop", "tables", "orders")


@dataclass
class Server:
    """Gives credentials for so long, and counts. error: what it does instead."""

    valid_ms: int
    now_ms: int = 1_000_000
    asked: int = 0
    error: Exception | None = None
    resources: list[tuple[str, ...]] = field(default_factory=list)

    def get(self, *resource: str) -> Mapping[str, Any]:
        if self.error is not None:
            raise self.error
        self.asked += 1
        self.resources.append(resource)
        return {"token": {"s3.access-key": f"key {self.asked}"}, "expiresAtMillis": self.now_ms + self.valid_ms}


def opened(server: Server, location: str = "memory://tokens") -> TokenFileIO:
    return TokenFileIO(cast("RestClient", server), RESOURCE, location, {"s3.region": "r"}, lambda: server.now_ms)


@pytest.mark.parametrize(
    ("valid_ms", "kept_ms"),
    [
        pytest.param(24 * HOUR_MS, 23 * HOUR_MS, id="a day: with an hour left"),
        pytest.param(2 * HOUR_MS, HOUR_MS, id="two hours: with an hour left"),
        pytest.param(HOUR_MS // 2, HOUR_MS // 4, id="half an hour: with half of it left"),
        pytest.param(0, 0, id="expired when they came: with each call"),
    ],
)
def test_credentials_are_renewed_before_they_expire(valid_ms: int, kept_ms: int) -> None:
    server = Server(valid_ms)
    files = opened(server)
    assert server.asked == 0
    files.write("memory://tokens/f", b"x")
    assert server.resources == [(*RESOURCE, "token")]
    if kept_ms:
        server.now_ms += kept_ms - 1
        assert files.read("memory://tokens/f") == b"x"
        assert server.asked == 1
        server.now_ms += 1
    assert files.exists("memory://tokens/f")
    assert server.asked == 2


def test_an_unavailable_server_is_retried_while_credentials_are_valid() -> None:
    server = Server(2 * HOUR_MS)
    files = opened(server)
    files.write("memory://tokens/f", b"x")
    server.now_ms += HOUR_MS
    server.error = ConnectionError("away")
    assert files.read("memory://tokens/f") == b"x"
    server.now_ms += HOUR_MS
    with pytest.raises(ConnectionError, match="away"):
        files.read("memory://tokens/f")
    server.error = None
    assert files.read("memory://tokens/f") == b"x"


def test_a_refusal_names_the_table() -> None:
    server = Server(HOUR_MS, error=Refused(404, "no such table"))
    with pytest.raises(BadInput, match=r"the files of shop\.orders can't be reached: no such table"):
        opened(server).read("memory://tokens/f")


def test_credentials_of_the_server_win_over_store_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Mapping[str, str]] = []

    def open_store(location: str, options: Mapping[str, str]) -> Any:
        given.append(options)
        return open_file_io(location)

    monkeypatch.setattr("tidelake.storage.catalog.rest.token_file_io.open_file_io", open_store)
    files = TokenFileIO(
        cast("RestClient", Server(HOUR_MS)), RESOURCE, "memory://t", {"s3.access-key": "old", "s3.region": "r"}
    )
    assert not files.exists("memory://t/f")
    assert given == [{"s3.access-key": "key 1", "s3.region": "r"}]
    assert "key 1" not in repr(files)


def test_another_process_requests_its_own_credentials() -> None:
    client = RestClient("http://127.0.0.1:1")
    files = TokenFileIO(client, RESOURCE, "memory://t", {"s3.region": "r"})
    copy = pickle.loads(pickle.dumps(files))
    assert (copy.client, copy.resource, copy.store_options) == (client, RESOURCE, {"s3.region": "r"})
    with pytest.raises(ConnectionError):
        copy.exists("memory://t/f")
