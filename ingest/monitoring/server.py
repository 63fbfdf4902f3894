"""The HTTP endpoint of a pipeline, in its own event loop: `/metrics`, `/live`, `/ready`, `/status` and `/history`, and
pages at `/` and `/tables/NAME`.

The endpoint never waits for the pipeline, and the pipeline never waits for the endpoint.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tidelake.errors import BadInput, TidelakeError
from tidelake.ingest.monitoring.readiness import NotReady
from tidelake.storage.base.logs import get_logger

_RETRY_INTERVAL_S: Final = 0.5
_PROBE_TIMEOUT_S: Final = 2.0

_log = get_logger(__name__)


class MonitoringServer:
    """The HTTP server of a pipeline.

    status: returns the document of `/status`. Its member `identity` identifies the pipeline of the endpoint.
    reasons: returns the reasons why the pipeline is not ready.
    refresh: brings up to date what `status` shows of tables, as far as that is quick.
    history: returns the document of `/history`.
    table_page: returns the page of a table; None if there is no such table. It blocks.

    Without `history` and `table_page` there are no pages.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        status: Callable[[], dict[str, Any]],
        reasons: Callable[[], list[NotReady]],
        refresh: Callable[[], Awaitable[None]],
        history: Callable[[], dict[str, Any]] | None = None,
        table_page: Callable[[str], str | None] | None = None,
    ) -> None:
        self._history = history
        self._table_page = table_page
        self._refresh = refresh
        self._registry = registry
        self._status = status
        self._reasons = reasons
        self._page = b""
        self.port = 0

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[None]:
        """Serve requests inside the block.

        port: 0 chooses a free port; the attribute `port` has it then. If an older process of this pipeline uses the
            port, the server gets it when that process ends, because this process takes over from it.

        Raises BadInput for an unavailable address.
        """
        self._page = await asyncio.to_thread(files(__package__).joinpath("status_page.html").read_bytes)
        application = web.Application()
        application.router.add_get("/metrics", self._get_metrics)
        application.router.add_get("/live", self._get_live)
        application.router.add_get("/ready", self._get_ready)
        application.router.add_get("/status", self._get_status)
        if self._history is not None:
            application.router.add_get("/", self._get_page)
            application.router.add_get("/history", self._get_history)
        if self._table_page is not None:
            application.router.add_get("/tables/{name}", self._get_table_page)
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        later: asyncio.Task[None] | None = None
        try:
            try:
                await self._listen(runner, host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not await self._belongs_to_pipeline(host, port):
                    raise BadInput(
                        f"metrics: can't listen on {host}:{port}: {error.strerror or error}. Set `metrics.port` to a "
                        "free port and `metrics.host` to an address of this machine"
                    ) from error
                _log.warning(
                    "an older process of this pipeline has the port of metrics",
                    port=port,
                    effect="this process answers on the port when the older process has ended",
                )
                later = asyncio.create_task(self._listen_later(runner, host, port), name="metrics port")
            yield
        finally:
            if later is not None:
                later.cancel()
                with suppress(asyncio.CancelledError):
                    await later
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner, host: str, port: int) -> None:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError:
            await site.stop()
            raise
        self.port = runner.addresses[0][1]
        _log.info("monitoring", url=f"http://{host}:{self.port}/")

    async def _listen_later(self, runner: web.AppRunner, host: str, port: int) -> None:
        while not self.port:
            await asyncio.sleep(_RETRY_INTERVAL_S)
            with suppress(OSError):
                await self._listen(runner, host, port)

    async def _belongs_to_pipeline(self, host: str, port: int) -> bool:
        """Return whether another process of this pipeline uses the port."""
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/status"
        limit = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(timeout=limit) as client, client.get(url) as answer:
                document = msgspec.json.decode(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, UnicodeDecodeError):
            return False
        return isinstance(document, dict) and document.get("identity") == self._status()["identity"]

    async def _get_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._page, content_type="text/html", charset="utf-8", headers=_NO_CACHE_HEADERS)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # In a thread, because hundreds of tables take a while, and metrics of the process are read from files.
        body = await asyncio.to_thread(encode, self._registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _get_live(self, _: web.Request) -> web.Response:
        """Answer the liveness probe: a process that answers is alive."""
        return _json({"live": True})

    async def _get_ready(self, _: web.Request) -> web.Response:
        reasons = self._reasons()
        document = {"ready": not reasons, "reasons": [asdict(reason) for reason in reasons]}
        return _json(document, 503 if reasons else 200)

    async def _get_status(self, _: web.Request) -> web.Response:
        await self._refresh()
        return _json(self._status())

    async def _get_history(self, _: web.Request) -> web.Response:
        assert self._history is not None
        return _json(self._history())

    async def _get_table_page(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        assert self._table_page is not None
        try:
            page = await asyncio.to_thread(self._table_page, name)
        except (TidelakeError, OSError) as error:
            return web.Response(text=f"{name} can't be drawn: {error}\n", status=503, headers=_NO_CACHE_HEADERS)
        if page is None:
            return web.Response(text=f"this pipeline has no table {name!r}\n", status=404, headers=_NO_CACHE_HEADERS)
        return web.Response(text=page, content_type="text/html", charset="utf-8", headers=_NO_CACHE_HEADERS)


_NO_CACHE_HEADERS = {"Cache-Control": "no-store"}


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    body = msgspec.json.encode(document)
    return web.Response(body=body, status=status, content_type="application/json", headers=_NO_CACHE_HEADERS)
