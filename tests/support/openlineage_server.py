"""A real HTTP server that keeps the OpenLineage events it gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class OpenLineageServer:
    """status: what it answers. hangs: while this is set, it does not answer."""

    url: str = ""
    status: int = 201
    texts: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    _goes_on: threading.Event = field(default_factory=threading.Event)

    @property
    def events(self) -> list[Any]:
        return [json.loads(text) for text in list(self.texts)]

    def kinds(self, run_id: str | None = None) -> list[str]:
        return [e["eventType"] for e in self.events if run_id is None or e["run"]["runId"] == run_id]


@contextmanager
def openlineage_server() -> Iterator[OpenLineageServer]:
    found = OpenLineageServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.hangs.is_set():
                found._goes_on.wait(60)
                return
            found.texts.append(body.decode())
            found.authorizations.append(self.headers.get("Authorization"))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield found
        finally:
            found._goes_on.set()
            server.shutdown()
            thread.join()
