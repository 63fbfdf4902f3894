"""Draws the pictures of pages that a browser shows, each for light and for dark pages. It needs Chromium on the PATH.

lsm-page: a table after forty commits, by `tidelake table show --web`
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidelake
from tidelake.ingest.monitoring.lsm_page import lsm_page

PICTURES: Final = Path(__file__).parent / "pictures"
SIZE: Final = (1100, 620)
_PREFERENCES: Final = {"light": "1", "dark": "0"}  # Chromium's numbers of the preferred colour scheme


def sample_table(warehouse: Path) -> tidelake.Table:
    """Return a table whose commits overlap: enough for compactions to several levels."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    schema = pa.schema([("id", pa.int64()), ("status", pa.string()), ("amount", pa.float64())])
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "4", "target-file-size": "60kb"}
    table = catalog.create_table("shop.orders", schema, primary_key=["id"], options=options)
    drawn = random.Random(3)
    with table.writer(commit_user="shop") as writer:
        for identifier in range(1, 41):
            first = drawn.randint(0, 20_000)
            ids = [first + drawn.randint(0, 12_000) for _ in range(drawn.randint(300, 3_000))]
            status = [drawn.choice(["new", "paid", "sent"]) for _ in ids]
            amount = [drawn.random() * 100 for _ in ids]
            writer.write(pa.table([ids, status, amount], schema=schema))
            writer.commit(identifier)
    return table


def main() -> int:
    """Draw the pictures. Returns 1 without a browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.stderr.write("Chromium is not on the PATH: the pictures of pages are not drawn again\n")
        return 1
    with tempfile.TemporaryDirectory() as directory:
        table = sample_table(Path(directory) / "lake")
        page = Path(directory) / "page.html"
        page.write_text(lsm_page(table.context).replace(directory, "/data"), encoding="utf-8")
        for kind, preference in _PREFERENCES.items():
            options = [
                "--headless=new",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--blink-settings=preferredColorScheme={preference}",
                f"--screenshot={PICTURES / f'lsm-page-{kind}.png'}",
            ]
            subprocess.run([browser, *options, page.as_uri()], check=True, stderr=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
