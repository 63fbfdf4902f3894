"""Draws a page in a browser as a picture that is the same on each run: clock, time zone and language are fixed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import web

from tests.pictures.states import NOW_MS, STATES, history
from tests.support.browser import Page

WIDTHS: Final = {"phone": 375, "1280": 1280, "wide": 1920}
HEIGHT: Final = 1000
_SCALE: Final = 0.5  # of the kept pictures: still readable, and a quarter of the bytes
_SCRIPT: Final = Path(__file__).with_name("look.js").read_text(encoding="utf-8")


@asynccontextmanager
async def served_states() -> AsyncIterator[str]:
    """Serve the status page of each state below its name. Yields the address."""
    page = await asyncio.to_thread(files("tidelake.ingest.monitoring").joinpath("status_page.html").read_bytes)

    async def answer(request: web.Request) -> web.Response:
        state = STATES[request.match_info["state"]]()
        match request.match_info["document"]:
            case "":
                return web.Response(body=page, content_type="text/html", charset="utf-8")
            case "status":
                return web.json_response(state)
            case _:
                return web.json_response(history(state))

    application = web.Application()
    application.router.add_get("/{state}/{document:(?:status|history)?}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def prepare(page: Page) -> None:
    """Let the pages that are opened next be the same on each run, and answer the questions of `look.js`."""
    await page.call("Page.enable")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=f"{_SCRIPT}\nstopTheClock({NOW_MS});")
    await page.call("Emulation.setTimezoneOverride", timezoneId="UTC")
    await page.call("Emulation.setLocaleOverride", locale="en-GB")


async def drawn(page: Page, url: str, width: int, scheme: str, shown: str, height: int = HEIGHT) -> bytes:
    """Open a page, and return its picture as PNG, half as wide.

    shown: a script that is true once the page shows everything
    """
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    await page.call("Emulation.setDeviceMetricsOverride", **size)
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await page.call("Page.navigate", url=url)
    await page.until(f"document.readyState === 'complete' && ({shown})")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": _SCALE}
    picture = await page.call("Page.captureScreenshot", clip=clip)
    return base64.b64decode(picture["data"])


async def flaws(page: Page) -> list[str]:
    """Return what a reader of the page could not read."""
    found: list[str] = await page.evaluate("flaws()")
    return found


async def difference(page: Page, one: bytes, other: bytes) -> float:
    """Return the share of tiles in which two pictures differ visibly, from 0 to 1."""
    texts = ", ".join(json.dumps(base64.b64encode(picture).decode()) for picture in (one, other))
    share: float = await page.evaluate(f"difference({texts})")
    return share
