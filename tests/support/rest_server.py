"""`tidelake serve rest` inside the test's process, and requests to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidelake.rest_server.http_server import Access, RestServer
from tidelake.rest_server.served_catalog import PREFIX, ServedCatalog

TOKEN = "a token of the tests"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    members: Any
    headers: Mapping[str, str]

    @property
    def error(self) -> tuple[int, str | None, str | None]:
        """Status, kind and name of the thing; checks that the body is that of Java's ErrorResponse."""
        assert set(self.members) == {"message", "code", "resourceType", "resourceName"}
        assert self.members["code"] == self.status
        assert self.members["message"]
        return self.status, self.members["resourceType"], self.members["resourceName"]


@dataclass(frozen=True, slots=True)
class ServedWarehouse:
    """A warehouse with a server. It is pickled for other processes.

    warehouse: its location.
    """

    warehouse: str
    port: int
    token: str | None = TOKEN

    @property
    def options(self) -> dict[str, str]:
        """Options of a client's catalog."""
        login = {} if self.token is None else {"token.provider": "bear", "token": self.token}
        return {"metastore": "rest", "uri": f"http://127.0.0.1:{self.port}", **login}

    @property
    def of_java(self) -> str:
        return json.dumps({**self.options, "warehouse": self.warehouse})

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        """Send a request exactly as it is given: nothing encodes or normalizes the path.

        path: behind the prefix; with a slash at its beginning, the whole path.
        raw: the body as bytes, instead of `body` as JSON.
        """
        target = path if path.startswith("/") else f"/v1/{PREFIX}/{path}"
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        login = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        address = ("127.0.0.1", self.port)
        connection = (
            http.client.HTTPConnection(*address, timeout=60)
            if tls is None
            else http.client.HTTPSConnection(*address, timeout=60, context=tls)
        )
        try:
            connection.request(method, target, data, {**login, **(headers or {})})
            answer = connection.getresponse()
            content = answer.read()
            return Answer(answer.status, json.loads(content) if content else None, dict(answer.getheaders()))
        finally:
            connection.close()

    def done(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed. Returns the members of the answer."""
        answer = self.ask(method, path, body)
        assert answer.status == 200, answer.members
        return answer.members


@contextmanager
def serving(
    warehouse: str,
    *,
    options: Mapping[str, str] | None = None,
    access: Access | None = None,
    gives_credentials: bool = False,
    tls: ssl.SSLContext | None = None,
) -> Iterator[ServedWarehouse]:
    """Serve a warehouse in a thread.

    options: of the catalog behind the server.
    access: None: TOKEN is needed.
    """
    access = Access((TOKEN,)) if access is None else access
    catalog = ServedCatalog.open(warehouse, options or {}, gives_credentials=gives_credentials)
    server = RestServer(catalog, access, tls)
    listening = threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with server.serving("127.0.0.1", 0):
            listening.set()
            await ended.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="rest server", daemon=True)
    thread.start()
    assert listening.wait(60)
    try:
        token = next(iter((*access.tokens, *access.reading_tokens)), None)
        yield ServedWarehouse(warehouse, server.port, token)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        assert not thread.is_alive()
