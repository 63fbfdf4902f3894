"""A page in a real headless browser, controlled through Chromium's DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

_COMMAND: Final = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
_TIMEOUT_S: Final = 90


class Page:
    """errors: what its scripts threw."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            output = await self._socket.receive_json(timeout=_TIMEOUT_S)
            if output.get("method") == "Runtime.exceptionThrown":
                self.errors.append(output["params"]["exceptionDetails"]["exception"]["description"])
            if output.get("id") == self._number:
                assert "error" not in output, output
                result: dict[str, Any] = output["result"]
                return result

    async def evaluate(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        look = f"const look = () => ({script}) ? done() : setTimeout(look, 50)"
        await self.evaluate(f"new Promise(done => {{ {look}; look(); }})")

    async def click(self, script: str) -> None:
        """The middle of an element, with the mouse."""
        await self.until(f"Boolean({script})")
        x, y = await self.evaluate(
            f"{script}.scrollIntoView({{block: 'center'}}), (box => [box.x + box.width / 2, box.y + box.height / 2])"
            f"({script}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def texts(self, selector: str) -> list[str]:
        found: list[str] = await self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
        )
        return found

    async def picture(self) -> bytes:
        """PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@asynccontextmanager
async def opened(url: str, folder: Path, width: int = 1280, height: int = 1100) -> AsyncIterator[Page]:
    """folder: the browser's own, for its profile."""
    command = [*_COMMAND, f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", "--hide-scrollbars"]
    process = await asyncio.create_subprocess_exec(
        *command, "--remote-debugging-port=0", "about:blank", stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(_TIMEOUT_S):
            while b"DevTools listening on ws://" not in (result := await process.stderr.readline()):
                assert result, "the browser ended"
        address = result.decode().split("ws://", 1)[1].split("/", 1)[0]
        reading = asyncio.create_task(_read_all(process.stderr))  # a full pipe would stop it
        async with aiohttp.ClientSession() as client:
            async with client.get(f"http://{address}/json/list") as answer:
                target = next(one for one in await answer.json() if one["type"] == "page")
            async with client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                await page.call("Runtime.enable")
                await page.call("Page.navigate", url=url)
                yield page
        reading.cancel()
    finally:
        process.terminate()
        await process.wait()


async def _read_all(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 16):
        pass
