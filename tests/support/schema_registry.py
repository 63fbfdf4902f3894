"""A schema registry for one test: the part of Confluent's HTTP interface that readers use, with injected failures."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote


@dataclass
class SchemaRegistryServer:
    """schemas: id or GUID to text. subjects: name to answers, version 1 first. requests: paths asked for, in order.
    failing: how many of the next requests get `status`, and how many get no answer at all.
    user_info: what `user:password` every request must carry. token: what access token.
    headers: of the last request.
    """

    schemas: dict[str, str] = field(default_factory=dict)
    references: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    subjects: dict[str, list[str]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    failing: int = 0
    dropping: int = 0
    status: int = 503
    user_info: str = ""
    token: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any] | None:
        """Status and body; None to hang up."""
        self.requests.append(path)
        if self.dropping:
            self.dropping -= 1
            return None
        if self.failing:
            self.failing -= 1
            return self.status, {"error_code": self.status, "message": "told to"}
        if self.user_info and authorization != "Basic " + base64.b64encode(self.user_info.encode()).decode():
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids" | "guids", id_] if id_ in self.schemas:
                return 200, self._schema(id_)
            case ["subjects", name, "versions", version] if name in self.subjects:
                return 200, self._schema(self.subjects[name][int(version) - 1])
            case ["schemas" | "subjects", *_]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, None

    def _schema(self, id_: str) -> Mapping[str, Any]:
        found: dict[str, Any] = {"schema": self.schemas[id_]}
        if id_ in self.references:
            found["references"] = self.references[id_]
        if id_ in self.types:
            found["schemaType"] = self.types[id_]
        return found


@contextmanager
def schema_registry(recorded: Path | None = None, tls: ssl.SSLContext | None = None) -> Iterator[SchemaRegistryServer]:
    """recorded: a `schemas.json` whose ids it serves."""
    registry = SchemaRegistryServer()
    if recorded is not None:
        members = json.loads(recorded.read_text(encoding="utf-8"))
        registry.schemas, registry.types = members["schemas"], members.get("types", {})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.headers = dict(self.headers)
            answer = registry.answer(self.path, self.headers.get("Authorization"))
            if answer is None:
                self.connection.close()
                return
            status, body = answer
            data = b"<html>no such page</html>" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        registry.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
