"""An object store that answers late, and writes down each request: S3's protocol, with its objects in memory.

It runs in a process of its own, so that its time is not that of the measured program:

    python -m benchmarks.slow_store 8080 30     # port, milliseconds

It knows conditional puts, ranges, listings, copies and multipart uploads. It checks no signature.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Self
from urllib.error import URLError
from xml.sax.saxutils import escape

from aiohttp import web

_LOG: Final = "/_requests"  # asks for all requests since the last question
_KINDS: Final = ("snapshot", "manifest-list", "index-manifest", "manifest", "schema", "LATEST", "EARLIEST")
_DATE: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_START_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Request:
    """operation: such as `PUT`. kind: of the file, such as `snapshot`. begin, end: in seconds of the server's clock.

    key: of the object, or the prefix of a listing.
    """

    operation: str
    kind: str
    begin: float
    end: float
    key: str


def kind_of(key: str) -> str:
    """Return the kind of file of an object: `manifest` for `t/manifest/manifest-…`, `data` for those in buckets."""
    directory, _, name = key.rpartition("/")
    if "/bucket-" in f"/{directory}":
        return "data"
    return next((kind for kind in _KINDS if name.startswith(kind)), "other")


def round_trips(requests: Sequence[Request]) -> int:
    """Return how many requests followed one another, at least: the longest chain in which each began after the other.

    So many times the latency, a client waited for the store.
    """
    chain, end = 0, float("-inf")
    for request in sorted(requests, key=lambda one: one.end):
        if request.begin >= end:
            chain, end = chain + 1, request.end
    return chain


class SlowStore:
    """A running store. Leaving the `with` block ends it.

    latency_ms: how late each answer comes.
    """

    def __init__(self, latency_ms: float) -> None:
        self._latency_ms = latency_ms

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.slow_store", "0", str(self._latency_ms)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.requests()
            except URLError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def options(self) -> dict[str, str]:
        """The options of a catalog in this store."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": "key",
            "s3.secret-key": "secret",
            "s3.region": "us-east-1",
            "s3.path.style.access": "true",
        }

    def requests(self) -> list[Request]:
        """Return the requests that were answered since the last call."""
        with urllib.request.urlopen(f"{self.endpoint}{_LOG}") as answer:
            return [Request(*line) for line in json.load(answer)]


def counted(requests: Sequence[Request]) -> Counter[str]:
    """Return the number of requests by operation and kind of file, such as `PUT snapshot`."""
    return Counter(f"{request.operation} {request.kind}" for request in requests)


# ---------------------------------------------------------------- the server


class _Server:
    def __init__(self, latency_ms: float) -> None:
        self._latency_s = latency_ms / 1000
        self._objects: dict[str, tuple[bytes, dict[str, str]]] = {}  # content and headers
        self._parts: dict[str, dict[int, bytes]] = {}
        self._upload_ids = count(1)
        self._log: list[tuple[str, str, float, float, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == _LOG:
            log, self._log = self._log, []
            return web.json_response(log)
        begin = time.monotonic()
        body = await request.read()
        await asyncio.sleep(self._latency_s)
        _, _, key = request.path.lstrip("/").partition("/")
        operation, response = self._done(request, key, body)
        asked_for = key or request.query.get("prefix", "")
        self._log.append((operation, kind_of(key), begin, time.monotonic(), asked_for))
        return response

    def _done(self, request: web.Request, key: str, body: bytes) -> tuple[str, web.Response]:
        query = request.query
        match request.method:
            case "GET" if "list-type" in query:
                return "LIST", self._listing(query.get("prefix", ""), query.get("delimiter", ""))
            case "GET" | "HEAD":
                return request.method, self._content(key, request)
            case "POST" if "delete" in query:
                return "DELETE", self._delete(re.findall(r"<Key>(.*?)</Key>", body.decode()))
            case "POST" if "uploads" in query:
                upload = str(next(self._upload_ids))
                self._parts[upload] = {}
                return "POST", _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
            case "POST":
                parts = self._parts.pop(query["uploadId"])
                return "POST", self._put(key, b"".join(parts[n] for n in sorted(parts)), request, is_copy=True)
            case "PUT" if "uploadId" in query:
                self._parts[query["uploadId"]][int(query["partNumber"])] = body
                return "PUT part", web.Response(headers={"ETag": _etag(body)})
            case "PUT":
                return "PUT", self._put(key, body, request)
            case "DELETE":
                self._objects.pop(key, None)
                self._parts.pop(query.get("uploadId", ""), None)
                return "DELETE", web.Response(status=204)
        return request.method, web.Response(status=405)

    def _put(self, key: str, body: bytes, request: web.Request, *, is_copy: bool = False) -> web.Response:
        if request.headers.get("If-None-Match") == "*" and key in self._objects:
            return web.Response(status=412, text="<Error><Code>PreconditionFailed</Code></Error>")
        if source := request.headers.get("x-amz-copy-source"):
            body, is_copy = self._objects[source.lstrip("/").partition("/")[2]][0], True
        metadata = {name: value for name, value in request.headers.items() if name.lower().startswith("x-amz-meta-")}
        etag = _etag(body)
        self._objects[key] = body, {"ETag": etag, "Last-Modified": _DATE, **metadata}
        if is_copy:
            return _xml("Result", f"<ETag>{escape(etag)}</ETag><LastModified>{_DATE}</LastModified>")
        return web.Response(headers={"ETag": etag})

    def _content(self, key: str, request: web.Request) -> web.Response:
        if key not in self._objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        body, stored = self._objects[key]
        headers = dict(stored)
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(body))})
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if wanted is None or not body:
            return web.Response(body=body, headers=headers)
        first = int(wanted[1]) if wanted[1] else max(0, len(body) - int(wanted[2]))
        last = min(int(wanted[2]), len(body) - 1) if wanted[1] and wanted[2] else len(body) - 1
        headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        return web.Response(status=206, body=body[first : last + 1], headers=headers)

    def _listing(self, prefix: str, delimiter: str) -> web.Response:
        names, folders = [], dict[str, None]()
        for key in sorted(key for key in self._objects if key.startswith(prefix)):
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if found:
                folders[f"{prefix}{head}{delimiter}"] = None
            else:
                names.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(self._objects[name][1]['ETag'])}</ETag><Size>{len(self._objects[name][0])}</Size></Contents>"
            for name in names
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        return _xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{contents}{prefixes}")

    def _delete(self, keys: Sequence[str]) -> web.Response:
        for key in keys:
            self._objects.pop(key, None)
        return _xml("DeleteResult", "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys))


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _xml(name: str, content: str) -> web.Response:
    return web.Response(text=f'<?xml version="1.0"?><{name}>{content}</{name}>', content_type="application/xml")


async def _serve(port: int, latency_ms: float) -> None:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", _Server(latency_ms).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
