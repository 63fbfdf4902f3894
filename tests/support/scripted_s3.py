"""An S3 server with scripted failures: answers that a healthy store cannot be made to give.

It knows put, get, head and delete of objects, checks no signatures, and lives in threads of the test process.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Fault(Enum):
    """What happens to a conditional put."""

    LANDS_AND_500 = auto()  # done, but the answer is a server error
    LANDS_AND_CUT = auto()  # done, but the answer gets lost
    CONFLICT = auto()  # 409, nothing done: S3's answer to two puts at once
    BUSY = auto()  # 503, nothing done
    LOST_TO_OTHER = auto()  # someone else is first; the answer is a server error


class Reading(Enum):
    """What happens to a get."""

    BUSY = auto()  # 503
    CUT = auto()  # half of the body, and then the end of the connection
    EXPIRED = auto()  # the credentials' time is over: a 400


OTHERS_DATA = b"of someone else"


@dataclass
class ScriptedS3:
    """faults: one for each conditional put to come, then none; readings: for each get. busy: so many requests of any
    kind are answered with 503. The flags say what the store cannot do.
    """

    endpoint: str = ""
    faults: deque[Fault] = field(default_factory=deque)
    readings: deque[Reading] = field(default_factory=deque)
    busy: int = 0
    ignores_conditions: bool = False
    lacks_conditions: bool = False
    drops_metadata: bool = False
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def options(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": "test-access-key",
            "s3.secret-key": "test-secret-key",
            "s3.region": "us-east-1",
        }

    def put(self, key: str, data: bytes, metadata: dict[str, str], *, if_absent: bool) -> int:
        """The status to answer; 0 cuts the connection."""
        with self.lock:
            if if_absent and self.lacks_conditions:
                return 501
            is_trial = key.endswith(".tmp")
            fault = self.faults.popleft() if if_absent and self.faults and not is_trial else None
            if fault is Fault.CONFLICT:
                return 409
            if fault is Fault.BUSY:
                return 503
            if fault is Fault.LOST_TO_OTHER:
                self.objects[key] = (OTHERS_DATA, {})
                return 500
            if if_absent and key in self.objects and not self.ignores_conditions:
                return 412
            self.objects[key] = (data, {} if self.drops_metadata else metadata)
            return {Fault.LANDS_AND_500: 500, Fault.LANDS_AND_CUT: 0}.get(fault, 200) if fault else 200


@contextmanager
def scripted_s3(**flags: Any) -> Iterator[ScriptedS3]:
    """A server of its own, stopped at the end."""
    script = ScriptedS3(**flags)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def _key(self) -> str:
            return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

        def _answer(
            self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, *, cut: bool = False
        ) -> None:
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = self.close_connection or cut

        def _is_busy(self) -> bool:
            with script.lock:
                is_busy, script.busy = script.busy > 0, script.busy - 1
            if is_busy:
                self._body()
                self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
            return is_busy

        def do_PUT(self) -> None:
            if self._is_busy():
                return
            script.requests.append(f"PUT {self._key()}")
            metadata = {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
            if_absent = self.headers.get("If-None-Match") == "*"
            self._answer(script.put(self._key(), self._body(), metadata, if_absent=if_absent), headers={"ETag": '"1"'})

        def do_GET(self) -> None:
            script.requests.append(f"{self.command} {self._key()}")
            if self._is_busy():
                return
            reading = script.readings.popleft() if script.readings else None
            if reading is Reading.BUSY:
                self._answer(503)
                return
            if reading is Reading.EXPIRED:
                self._answer(400, b"<Error><Code>ExpiredToken</Code><Message>Too late.</Message></Error>")
                return
            found = script.objects.get(self._key())
            if found is None:
                missing = b"<Error><Code>NoSuchKey</Code><Message>There is none.</Message></Error>"
                self._answer(404, missing, cut=reading is Reading.CUT)
                return
            data, metadata = found
            headers = {**metadata, "ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
            status, size = 200, len(data)
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                start, end = int(wanted[1]), int(wanted[2] or size - 1)
                data, status = data[start : end + 1], 206
                headers["Content-Range"] = f"bytes {start}-{end}/{size}"
            self._answer(status, data, headers, cut=reading is Reading.CUT)

        do_HEAD = do_GET

        def do_POST(self) -> None:  # DeleteObjects
            if self._is_busy():
                return
            keys = re.findall(rb"<Key>(.*?)</Key>", self._body())
            for key in keys:
                script.objects.pop(key.decode(), None)
            reported = b"".join(b"<Deleted><Key>%s</Key></Deleted>" % key for key in keys)
            self._answer(200, b"<DeleteResult>%s</DeleteResult>" % reported)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
