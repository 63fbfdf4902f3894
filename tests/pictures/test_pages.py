"""How the pages look: no text is cut off, and each is close to its kept picture, at three widths, light and dark.

The pictures are in `kept`, half as wide as the window. TIDELAKE_WRITE_PICTURES=1 writes them again instead of
comparing: look at each before it is committed.
"""

from __future__ import annotations

import os
from asyncio import to_thread
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.monitoring.test_endpoint import get_json, running
from tests.pictures.drawing import WIDTHS, difference, drawn, flaws, prepare, served_states
from tests.pictures.states import STATES, history
from tests.support.browser import Page, opened
from tidelake.ingest.monitoring.lsm_page import lsm_page

KEPT: Final = Path(__file__).parent / "kept"
_SCHEMES: Final = {"phone": "light", "1280": "dark", "wide": "light"}
_DIFFERENT_AT_MOST: Final = 0.03  # of the tiles: fonts differ a little between machines
_STATUS_IS_SHOWN: Final = (
    "document.getElementById('heard')?.textContent.startsWith('updated')"
    " && (document.querySelector('#lag svg') || !newest.records)"
)
_TREE_IS_SHOWN: Final = "document.querySelectorAll('#tree rect').length > 0"


async def looks_as_kept(page: Page, name: str, picture: bytes, folder: Path) -> None:
    kept = KEPT / f"{name}.png"
    if os.environ.get("TIDELAKE_WRITE_PICTURES"):
        await to_thread(KEPT.mkdir, exist_ok=True)
        await to_thread(kept.write_bytes, picture)
    share = await difference(page, await to_thread(kept.read_bytes), picture)
    if share > _DIFFERENT_AT_MOST:
        drawn_now = folder / kept.name
        await to_thread(drawn_now.write_bytes, picture)
        pytest.fail(
            f"{share:.1%} of {kept.name} look different: compare it with {drawn_now}. If this is meant, write it "
            "again with TIDELAKE_WRITE_PICTURES=1"
        )


@pytest.mark.interop
@pytest.mark.needs("Chromium")
@pytest.mark.parametrize("state", STATES)
async def test_the_status_page_looks_as_kept_and_shows_every_text(state: str, tmp_path: Path) -> None:
    async with served_states() as url, opened("about:blank", tmp_path / "browser") as page:
        await prepare(page)
        for name, width in WIDTHS.items():
            picture = await drawn(page, f"{url}/{state}/", width, _SCHEMES[name], _STATUS_IS_SHOWN)
            assert await flaws(page) == [], name
            assert page.errors == []
            await looks_as_kept(page, f"status-{state}-{name}", picture, tmp_path)


def table_of_two_levels(warehouse: Path) -> tidelake.Table:
    """A table that is compacted once, in between: its sorted runs are the same on each run."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    schema = pa.schema([("id", pa.int64()), ("status", pa.string())])
    options = {"bucket": "1", "write-only": "true", "target-file-size": "20kb"}
    table = catalog.create_table("shop.orders", schema, primary_key=["id"], options=options)
    for identifier in range(1, 13):
        first, rows = identifier * 7919 % 20_000, 400 * (1 + identifier % 5)
        with table.writer(commit_user="shop") as writer:
            ids = range(first, first + rows)
            writer.write(pa.table([ids, [f"status {id_ * 31 % 97}" for id_ in ids]], schema=schema))
            writer.commit(identifier)
        if identifier == 8:
            table.compact(full=True)
    return table


@pytest.mark.interop
@pytest.mark.needs("Chromium")
async def test_the_page_of_a_table_looks_as_kept_and_shows_every_text(tmp_path: Path) -> None:
    table = await to_thread(table_of_two_levels, tmp_path / "lake")
    text = (await to_thread(lsm_page, table.context)).replace(str(tmp_path), "/data")
    file = tmp_path / "page.html"
    await to_thread(file.write_text, text, encoding="utf-8")
    async with opened("about:blank", tmp_path / "browser") as page:
        await prepare(page)
        for name, width in WIDTHS.items():
            picture = await drawn(page, file.as_uri(), width, _SCHEMES[name], _TREE_IS_SHOWN)
            assert await flaws(page) == [], name
            await looks_as_kept(page, f"table-{name}", picture, tmp_path)


@pytest.mark.interop
@pytest.mark.needs("Chromium")
@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param("<p>short</p>", [], id="a sound page"),
        pytest.param(
            '<p style="width: 30px; overflow: hidden; white-space: nowrap">a long text</p>',
            ["a long text is cut off"],
            id="a text that its box cuts off",
        ),
        pytest.param(
            '<p style="margin: 0; height: 8px">above it</p><p style="margin: 0">below it</p>',
            ["above it lies over below it"],
            id="two texts at one place",
        ),
        pytest.param(
            '<p style="position: fixed; left: 390px; margin: 0">outside</p>',
            ["outside leaves the window"],
            id="a text beside the window",
        ),
    ],
)
async def test_what_nobody_can_read_is_found(body: str, found: list[str], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    await to_thread(file.write_text, f"<!doctype html><html><body>{body}</body></html>")
    async with opened("about:blank", tmp_path / "browser") as page:
        await prepare(page)
        one = await drawn(page, file.as_uri(), 375, "light", "true", 200)
        assert await flaws(page) == found
        assert await difference(page, one, one) == 0
        moved = await drawn(page, file.as_uri(), 375, "light", "document.body.style.background = '#888'", 200)
        assert await difference(page, one, moved) > _DIFFERENT_AT_MOST


def members(document: Any, path: str = "") -> set[str]:
    """The names of all members. Those of tables by code, kind and level are data."""
    if isinstance(document, dict):
        free = path.endswith((".skipped", ".dead_letters", ".levels"))
        return {
            found
            for key, value in document.items()
            if not free
            for found in {f"{path}.{key}"} | members(value, f"{path}.{key}")
        }
    if isinstance(document, list) and document:
        return set().union(*(members(one, f"{path}[]") for one in document))
    return set()


async def test_the_states_of_the_pictures_have_the_members_of_a_real_pipeline(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        real = members(await get_json(client, "status"))
        assert members(await get_json(client, "history")) == members(history(STATES["calm"]()))
    for make in STATES.values():
        made = members(make())
        assert {name for name in real - made if "[]" not in name} == {
            ".identity",
            *(n for n in real if n.startswith(".decoding")),
        }
