"""Draws a page in a browser as a picture that is the same on each run: clock, time zone and language are fixed."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from tests.pictures.states import NOW_MS, STATES, history
from tests.support.browser import Page

WIDTHS: Final = {"phone": 375, "1280": 1280, "wide": 1920}
HEIGHT: Final = 1000
_SCALE: Final = 0.5  # of the kept pictures: still readable, and a quarter of the bytes
_FIXED_CLOCK: Final = f"""
const Real = Date;
Date = class extends Real {{ constructor(...given) {{ super(...(given.length ? given : [{NOW_MS}])); }} static now() {{ return {NOW_MS}; }} }};
"""

# What a reader can't see, or sees twice: texts of shown elements that are cut off by their box, that leave the window, or
# that lie over the next text. Boxes that scroll may be wider inside.
_FLAWS: Final = """
(() => {
  const flaws = [], boxes = [], seen = new Set();
  if (document.documentElement.scrollWidth > innerWidth) flaws.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; text = walker.nextNode();) {
    const parent = text.parentElement;
    if (!text.data.trim() || parent.closest("script, style, select, title, [hidden]")) continue;
    const range = document.createRange(); range.selectNodeContents(text);
    const scrolls = parent.closest(".scroll, code, td.name, .chart p span");
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      if (!scrolls && (box.right > innerWidth + 1 || box.left < -1)) flaws.push(`${text.data.trim()} leaves the window`);
      if (!scrolls && box.top < innerHeight) boxes.push([text.data.trim(), box]);
    }
    if (!scrolls && getComputedStyle(parent).overflow === "hidden" && parent.scrollWidth > parent.clientWidth + 1) flaws.push(`${text.data.trim()} is cut off`);
  }
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    const [one, a] = boxes[i], [other, b] = boxes[j];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 3 && down > 6) flaws.push(`${one} lies over ${other}`);
  }
  return [...new Set(flaws)].slice(0, 10);
})()
"""

# The share of tiles of 12 x 12 pixels whose mean colour differs by more than a tenth of the range. A letter that is
# drawn a little differently hardly changes a tile; an element that is elsewhere changes many.
_DIFFERENCE: Final = """
(async (one, other) => {
  const tile = 12, load = async data => { const image = new Image(); image.src = "data:image/png;base64," + data; await image.decode(); return image; };
  const images = [await load(one), await load(other)];
  if (images[0].width !== images[1].width || images[0].height !== images[1].height) return 1;
  const [a, b] = images.map(image => {
    const canvas = document.createElement("canvas"); canvas.width = Math.ceil(image.width / tile); canvas.height = Math.ceil(image.height / tile);
    const context = canvas.getContext("2d"); context.imageSmoothingEnabled = true; context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return context.getImageData(0, 0, canvas.width, canvas.height).data;
  });
  let differ = 0;
  for (let at = 0; at < a.length; at += 4) if (Math.max(Math.abs(a[at] - b[at]), Math.abs(a[at + 1] - b[at + 1]), Math.abs(a[at + 2] - b[at + 2])) > 26) differ++;
  return differ * 4 / a.length;
})
"""


@asynccontextmanager
async def served_states() -> AsyncIterator[str]:
    """Serve the status page of each state below its name. Yields the address."""
    page = files("tidelake.ingest.monitoring").joinpath("status_page.html").read_bytes()

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


async def fix_the_clock(page: Page) -> None:
    await page.call("Page.enable")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=_FIXED_CLOCK)
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
    found: list[str] = await page.evaluate(_FLAWS)
    return found


async def difference(page: Page, one: bytes, other: bytes) -> float:
    """Return the share of tiles in which two pictures differ visibly, from 0 to 1."""
    pictures: list[Any] = [base64.b64encode(picture).decode() for picture in (one, other)]
    share: float = await page.evaluate(f"({_DIFFERENCE})({json.dumps(pictures[0])}, {json.dumps(pictures[1])})")
    return share
