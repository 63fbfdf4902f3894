"""An unreliable connection to a real S3 server that loses requests and answers: `unreliable_s3`.

A reverse proxy before `s3_server`. Of all requests it drops some without handing them on, does some and drops the
answer, answers some with "slow down", and does some only after it has hung up, when the client may be asking again
already. Which, is drawn by chance from a seed. Processes of their own may use it, too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import urlsplit

import pytest

from tests.support.s3_server import S3Server

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Mishap(Enum):
    NONE = "nothing"
    DROPPED = "the request was dropped"
    ANSWER_LOST = "it was done, and the answer was lost"
    ANSWER_CUT = "it was done, and half of the answer came"
    SLOW_DOWN = "503"
    LATE = "it was done after the connection was cut"


ODDS: Mapping[Mishap, float] = {
    Mishap.DROPPED: 0.05,
    Mishap.ANSWER_LOST: 0.02,
    Mishap.ANSWER_CUT: 0.01,
    Mishap.SLOW_DOWN: 0.02,
    Mishap.LATE: 0.01,
}


@dataclass
class UnreliableS3:
    """endpoint, options: instead of the server's own. mishaps: how many of each there were; `odds` may change."""

    server: S3Server
    odds: Mapping[Mishap, float] = field(default_factory=lambda: ODDS)
    endpoint: str = ""
    mishaps: Counter[Mishap] = field(default_factory=Counter)
    random: Random = field(default_factory=lambda: Random(20260817))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def options(self) -> dict[str, str]:
        return {**self.server.options, "s3.endpoint": self.endpoint}

    def draw(self) -> Mishap:
        with self.lock:
            [mishap] = self.random.choices(
                [*self.odds, Mishap.NONE], [*self.odds.values(), 1 - sum(self.odds.values())]
            )
            self.mishaps[mishap] += 1
            return mishap


def handler_of(proxy: UnreliableS3) -> type[BaseHTTPRequestHandler]:
    host = urlsplit(proxy.server.endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            mishap = proxy.draw()
            if mishap is Mishap.SLOW_DOWN:
                self._answer(503, {"Content-Type": "application/xml"}, _SLOW_DOWN)
                return
            if mishap in (Mishap.DROPPED, Mishap.LATE):
                self.close_connection = True
                if mishap is Mishap.LATE:
                    threading.Timer(0.05, self._ask, [body]).start()
                return
            status, headers, found = self._ask(body)
            if mishap is Mishap.ANSWER_LOST:
                self.close_connection = True
                return
            self._answer(status, headers, found, cut=mishap is Mishap.ANSWER_CUT)

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

        def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            """With the client's own headers: its signature holds for the host that it named."""
            upstream = HTTPConnection(host, timeout=60)
            try:
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer: HTTPResponse = upstream.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                upstream.close()

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            dropped = ("transfer-encoding", "connection", *(() if self.command == "HEAD" else ("content-length",)))
            for name, value in headers.items():
                if name.lower() not in dropped:
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = self.close_connection or cut

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what this is about."""


@pytest.fixture
def unreliable_s3(s3_server: S3Server) -> Iterator[UnreliableS3]:
    """Buckets are made with `s3_server.new_bucket()`, whose own way is reliable."""
    proxy = UnreliableS3(s3_server)
    server = _Server(("127.0.0.1", 0), handler_of(proxy))
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield proxy
    server.shutdown()
    thread.join()
    server.server_close()
