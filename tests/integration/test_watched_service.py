"""A monitored pipeline: a real Prometheus with the dashboard's queries, and a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import subprocess
import time
from asyncio import to_thread
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.ingest.monitoring.test_endpoint import line, running
from tests.ingest.pipeline.fakes import until
from tests.support.browser import opened
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.storage.base.clock import epoch_ms

DOCKER: Final = Path(__file__).parent.parent.parent / "docker"
DASHBOARD: Final[dict[str, Any]] = json.loads((DOCKER / "grafana/dashboards/tidelake.json").read_text(encoding="utf-8"))
QUERIES: Final = [
    target["expr"].replace("$instance", ".*") for panel in DASHBOARD["panels"] for target in panel["targets"]
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(folder: Path, target_port: int) -> Iterator[str]:
    """Scrapes the port five times a second. Yields its address."""
    config = (DOCKER / "prometheus.yaml").read_text(encoding="utf-8")
    config = config.replace("tidelake:9404", f"127.0.0.1:{target_port}").replace("5s", "200ms")
    (folder / "prometheus.yaml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    arguments = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
    command = ["prometheus", *arguments, f"--web.listen-address={address}", "--log.level=warn"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"http://{address}/"
        finally:
            process.terminate()
            process.wait(30)


async def ask(client: aiohttp.ClientSession, query: str) -> list[dict[str, Any]]:
    async with client.get("api/v1/query", params={"query": query}) as answer:
        document = await answer.json()
    assert document["status"] == "success", (query, document)
    found: list[dict[str, Any]] = document["data"]["result"]
    return found


async def value(client: aiohttp.ClientSession, query: str) -> float | None:
    """The result of a query for one number. None while no server answers."""
    try:
        found = await ask(client, query)
    except aiohttp.ClientConnectionError:
        return None
    return float(found[0]["value"][1]) if found else None


async def until_answered(client: aiohttp.ClientSession, query: str) -> None:
    """Waits until a query has a result. Prometheus does not report that it has scraped."""
    async with asyncio.timeout(60):
        while await value(client, query) is None:
            await to_thread(time.sleep, 0.1)


async def write_changes(pipeline: Pipeline, folder: Path, files: int) -> None:
    """Changes of two tables, one bad record, enough checkpoints for a compaction."""
    for number in range(files):
        at = [3 * number + step for step in range(3)]
        text = line(at[0], "orders", 1, time_ms=epoch_ms()) + line(at[1], "customers", number, time_ms=epoch_ms())
        text += line(at[2], "orders", 2, time_ms=epoch_ms(), value="{" if number == 0 else None)
        await to_thread((folder / "in" / f"{number:03}.jsonl").write_text, text)
        await until(lambda n=number: pipeline.observed.checkpoints > n)  # type: ignore[misc]


@pytest.mark.interop
@pytest.mark.needs("Prometheus")
async def test_prometheus_scrapes_a_run_and_answers_every_query_of_the_dashboard(tmp_path: Path) -> None:
    await to_thread(subprocess.check_call, ["promtool", "check", "config", DOCKER / "prometheus.yaml"])
    async with running(tmp_path, "checkpoint.bytes_max=1") as (pipeline, _):
        assert pipeline.monitor is not None
        started = prometheus(tmp_path, pipeline.monitor.server.port)
        address = await to_thread(started.__enter__)
        try:
            async with aiohttp.ClientSession(address) as prom:
                await until_answered(prom, 'up{job="tidelake"} == 1')
                await write_changes(pipeline, tmp_path, 12)
                await until_answered(prom, "sum(tidelake_source_records_total) == 36")
                await until_answered(
                    prom, "sum(tidelake_table_rows_total) == 35"
                )  # they are written after they are read
                await pipeline.monitor.poll_once(pipeline.source)
                await until_answered(prom, "sum(tidelake_table_files)")
                for query in QUERIES:  # a machine that is busy may make a scrape late, and series stale
                    async with asyncio.timeout(60):
                        while not await ask(prom, query):
                            await to_thread(time.sleep, 0.1)
                assert await value(prom, "min(tidelake_ready)") == 1
                assert await value(prom, "sum(tidelake_dead_letters_total)") == 1
                await until_answered(prom, "sum(tidelake_source_lag_records) == 0")
                rate = await value(prom, "sum(rate(tidelake_source_records_total[1m]))")
                assert rate is not None
                assert rate > 0
        finally:
            await to_thread(started.__exit__, None, None, None)


def browse(url: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Opens a page in a headless browser, and lets the page run for three seconds of virtual time."""
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ]
    command += [
        f"--user-data-dir={folder}/browser",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
        *more,
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)


def text_of(html: str) -> str:
    body = re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.mark.interop
@pytest.mark.needs("Chromium")
async def test_a_browser_shows_tables_lag_and_stalls(tmp_path: Path) -> None:
    async with running(tmp_path, "checkpoint.bytes_max=1") as (pipeline, _):
        await write_changes(pipeline, tmp_path, 8)
        assert pipeline.monitor is not None
        await pipeline.monitor.poll_once(pipeline.source)
        url = f"http://127.0.0.1:{pipeline.monitor.server.port}"
        shown = await to_thread(browse, url, tmp_path, "--dump-dom")
        text = text_of(shown.stdout)
        assert "Uncaught" not in shown.stderr
        assert re.search(r"shop ready running for .* Tidelake \d", text)
        assert re.search(r"db\.customers .* 8 #\d+ .* db\.orders .* 15 #\d+", text)
        assert re.search(r"Dead letters 1 BAD_RECORD", text)
        assert re.search(r"level 0", text)
        assert re.search(r"shop 0 24 24 – 0 0", text)  # the partition: committed, read, end, lag, time lag

        pipeline.observed.problems = lambda: {"db.orders": "<b>offset 7</b> is bad"}
        text = text_of((await to_thread(browse, url, tmp_path, "--dump-dom")).stdout)
        assert "not ready" in text
        assert "db.orders: &lt;b&gt;offset 7&lt;/b&gt; is bad table_held_back" in text  # text, never markup

        picture = tmp_path / "page.png"
        await to_thread(browse, url, tmp_path, f"--screenshot={picture}", "--window-size=1280,1100")
        head = (await to_thread(picture.read_bytes))[:24]
        assert struct.unpack(">8x8xII", head) == (1280, 1100)


@pytest.mark.interop
@pytest.mark.needs("Chromium")
async def test_tables_can_be_sorted_by_click_and_searched(tmp_path: Path) -> None:
    """An operator of two hundred tables looks for the one that lags. A refresh of the page keeps order and filter."""
    async with running(tmp_path, "checkpoint.bytes_max=1") as (pipeline, _):
        await write_changes(pipeline, tmp_path, 8)
        assert pipeline.monitor is not None
        await pipeline.monitor.poll_once(pipeline.source)
        async with opened(f"http://127.0.0.1:{pipeline.monitor.server.port}", tmp_path) as page:
            names, rows = "#tables td.name", "document.querySelectorAll('#tables th button')[3]"
            await page.until("document.querySelectorAll('#tables td.name').length === 2")
            assert await page.texts(names) == ["db.customers", "db.orders"]
            await page.click(rows)  # the most written rows first: customers have 8, orders 15
            assert await page.texts(names) == ["db.orders", "db.customers"]
            heard = await page.evaluate("newest.now_ms")
            await page.until(f"newest.now_ms > {heard}")
            assert await page.texts(names) == ["db.orders", "db.customers"]
            assert await page.evaluate(f"{rows}.parentElement.getAttribute('aria-sort')") == "descending"
            await page.click(rows)
            assert await page.texts(names) == ["db.customers", "db.orders"]

            await page.click("document.getElementById('find')")
            await page.write("ORD")
            assert await page.texts(names) == ["db.orders"]
            assert await page.texts("#partitions td.name") == []  # the topic is called shop
            head = (await page.picture())[:8]
            assert head == b"\x89PNG\r\n\x1a\n"
            assert page.errors == []


@pytest.mark.interop
@pytest.mark.needs("Chromium")
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (820, "dark"), (375, "light")])
async def test_the_page_fits_at_each_width_and_no_number_is_cut_off(width: int, scheme: str, tmp_path: Path) -> None:
    async with running(tmp_path, "checkpoint.bytes_max=1", "pipeline=a-pipeline-with-a-rather-long-name") as (
        pipeline,
        _,
    ):
        await write_changes(pipeline, tmp_path, 8)
        assert pipeline.monitor is not None
        await pipeline.monitor.poll_once(pipeline.source)
        pipeline.observed.problems = lambda: {"db.orders": "in quarantine: " + "a long reason " * 20}
        pipeline.observed.records = 123_456_789_012
        for table in pipeline.observed.tables.values():
            table.rows = 9_876_543_210
        async with opened(f"http://127.0.0.1:{pipeline.monitor.server.port}", tmp_path / "browser", width, 900) as page:
            media = [{"name": "prefers-color-scheme", "value": scheme}]
            await page.call("Emulation.setEmulatedMedia", features=media)
            await page.until("document.querySelectorAll('#lag svg text').length > 3")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            cut = "[...document.querySelectorAll('.tile b')].filter(e => e.scrollWidth > e.clientWidth + 1)"
            assert await page.evaluate(f"{cut}.map(e => e.textContent)") == []
            right = "e => e.getBoundingClientRect().right > innerWidth"
            outside = f"[...document.querySelectorAll('.chart text')].filter({right})"
            assert await page.evaluate(f"{outside}.map(e => e.textContent)") == []
            assert await page.texts(".chart b") == ["Lag", "Least fresh table", "Records a second", "8 so far"]
            [release] = await page.texts("#held code")
            assert re.fullmatch(r"tidelake ingest release \S+ db\.orders", release)
            [letters] = await page.texts("#replay code")
            assert letters.startswith("tidelake dead-letters list ")
            background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == {"light": "rgb(244, 246, 248)", "dark": "rgb(16, 22, 28)"}[scheme]
            assert page.errors == []


@pytest.mark.interop
@pytest.mark.needs("Chromium")
async def test_a_key_press_finds_a_table_and_a_click_opens_its_page(tmp_path: Path) -> None:
    async with running(tmp_path, "checkpoint.bytes_max=1") as (pipeline, _):
        await write_changes(pipeline, tmp_path, 8)
        assert pipeline.monitor is not None
        await pipeline.monitor.poll_once(pipeline.source)
        async with opened(f"http://127.0.0.1:{pipeline.monitor.server.port}", tmp_path / "browser") as page:
            await page.until("document.querySelectorAll('#tables tbody tr').length === 2")
            await page.call("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
            await page.write("ORDERS")
            await page.until("document.querySelectorAll('#tables tbody tr').length === 1")
            await page.click("document.querySelector('#tables a')")
            await page.until(
                "location.pathname === '/tables/db.orders' && document.body?.textContent.includes('db.orders')"
            )
            assert page.errors == []
