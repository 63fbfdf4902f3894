"""The HTTP server: who may do what, sizes, errors as JSON, and an orderly end.

Requests run in threads, as the catalog does. The event loop only reads and writes sockets.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from tidelake.errors import BadInput
from tidelake.rest_server.answers import Refusal, refusal_of
from tidelake.rest_server.requests import Request
from tidelake.rest_server.routes import answer, only_reads
from tidelake.rest_server.served_catalog import ServedCatalog
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger

_THREADS: Final = 16
_BODY_BYTES_MAX: Final = 16 << 20  # a commit sends the statistics of each partition: some 200 bytes
_BODIES_AT_ONCE: Final = 32
_BODY_TIMEOUT_S = 60.0  # a client that sends nothing must not take the place of others
_SHUTDOWN_TIMEOUT_S: Final = 30  # for requests that are being answered

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the server.

    tokens: each may do everything. reading_tokens: each may only read. Without any token, everyone may do everything.
    is_read_only: nobody may change anything.
    """

    tokens: Sequence[str] = ()
    reading_tokens: Sequence[str] = ()
    is_read_only: bool = False

    def check(self, authorization: str | None, *, reads: bool) -> None:
        """Raise Refusal for a request that is not allowed.

        authorization: the header.
        """
        if not self.tokens and not self.reading_tokens:
            may_change = True
        else:
            kind, _, sent = (authorization or "").partition(" ")
            token = sent.encode(errors="surrogateescape") if kind.lower() == "bearer" else b""
            may_change = _is_one_of(token, self.tokens)
            if not may_change and not _is_one_of(token, self.reading_tokens):
                raise Refusal(401, "no valid token: set the options token.provider = bear and token of the catalog")
        if not reads and self.is_read_only:
            raise Refusal(403, "the server only serves reads: it was started with --read-only")
        if not reads and not may_change:
            raise Refusal(403, "this token only allows reads")


def _is_one_of(sent: bytes, tokens: Sequence[str]) -> bool:
    """Compare with all of them, so that the time of the answer says nothing about them."""
    matches = [hmac.compare_digest(sent, token.encode()) for token in tokens]
    return any(matches)


class RestServer:
    """Serves a catalog. `port` has the port that it listens on."""

    def __init__(self, catalog: ServedCatalog, access: Access, tls: ssl.SSLContext | None = None) -> None:
        self._catalog = catalog
        self._access = access
        self._tls = tls
        self.port = 0

    async def run(self, host: str, port: int) -> None:
        """Serve until SIGTERM or SIGINT. Requests that are being answered then are finished."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_, stopped.set)
        async with self.serving(host, port):
            await stopped.wait()
            _log.info("stopping", effect="requests that are being answered are finished")

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[None]:
        """Serve inside the block. port: 0 chooses a free one. Raises BadInput for an unavailable address."""
        self._bodies = asyncio.Semaphore(_BODIES_AT_ONCE)
        self._threads = env.ThreadPoolExecutor(_THREADS, "rest request")
        application = web.Application(client_max_size=_BODY_BYTES_MAX)
        application.router.add_get("/live", _live)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, ssl_context=self._tls)
            try:
                await site.start()
            except OSError as error:
                raise BadInput(
                    f"can't listen on {host}:{port}: {error.strerror or error}. Choose a free port with --port, and an "
                    "address of this machine with --host"
                ) from error
            self.port = runner.addresses[0][1]
            scheme = "http" if self._tls is None else "https"
            _log.info("serving", url=f"{scheme}://{host}:{self.port}", read_only=self._access.is_read_only)
            yield
        finally:
            await runner.cleanup()
            # A commit that runs in a thread is finished, also if its client has gone.
            await asyncio.to_thread(self._threads.shutdown)

    async def _handle(self, http: web.Request) -> web.Response:
        started = env.monotonic_s()
        try:
            status, body, reads = await self._answer(http)
        except Refusal as refusal:
            status, body, reads = refusal.status, msgspec.json.encode(refusal.members), True
        log = _log.debug if reads and status < 500 else _log.info
        log(
            "request",
            method=http.method,
            path=http.raw_path,
            status=status,
            ms=round((env.monotonic_s() - started) * 1000, 1),
        )
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        if status == 503:
            headers["Retry-After"] = "1"
        if http.method == "GET" and status == 200:
            headers["ETag"] = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
            known = [tag.strip().removeprefix("W/") for tag in http.headers.get("If-None-Match", "").split(",")]
            if headers["ETag"] in known or known == ["*"]:
                return web.Response(status=304, headers=headers)
        return web.Response(body=body, status=status, content_type="application/json", headers=headers)

    async def _answer(self, http: web.Request) -> tuple[int, bytes, bool]:
        """Return status, body, and whether the request only reads. Raises Refusal."""
        request = Request.of(http.method, http.raw_path)
        reads = only_reads(request)
        self._access.check(http.headers.get("Authorization"), reads=reads)
        async with self._bodies:
            try:
                async with asyncio.timeout(_BODY_TIMEOUT_S):
                    data = await http.read()
            except web.HTTPRequestEntityTooLarge:
                raise Refusal(413, f"the body of the request has more than {_BODY_BYTES_MAX >> 20} MiB") from None
            except TimeoutError:
                raise Refusal(408, f"the body of the request did not arrive in {_BODY_TIMEOUT_S} s") from None
            request = Request(request.method, request.path, request.query, data)
            loop = asyncio.get_running_loop()
            status, body = await loop.run_in_executor(self._threads, self._run, request)
        return status, body, reads

    def _run(self, request: Request) -> tuple[int, bytes]:
        """Run in a thread. Errors that may have changed something are failures of the server (500)."""
        try:
            return 200, msgspec.json.encode(answer(self._catalog, request))
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                where = f"{request.method} /{'/'.join(request.path)}"
                _log.exception("a request failed", request=where)
                refusal = Refusal(500, f"{type(error).__name__}: {error}")
            return refusal.status, msgspec.json.encode(refusal.members)


async def _live(_: web.Request) -> web.Response:
    """Answer the liveness probe, which has no token."""
    return web.json_response({"live": True})
