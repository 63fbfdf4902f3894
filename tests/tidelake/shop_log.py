"""A change log of the demo shop for tests, and its tables."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa

import tidelake
from tidelake.cli.demo.change_log import ChangeLog
from tidelake.cli.demo.shop import TABLES, Shop, ShopTable


def write_shop_log(folder: Path, changes: int = 400, files: int = 2) -> Shop:
    """The shop as it is after the last of these changes."""
    folder.mkdir(parents=True, exist_ok=True)
    shop, log = Shop(seed=7), ChangeLog(folder)
    log.write(shop.initial_rows(customers=20, articles=5))
    events = shop.changes()
    for _ in range(files):
        log.write(itertools.islice(events, changes // files))
    return shop


def create_shop_tables(warehouse: Path, **options: str) -> dict[str, tidelake.Table]:
    """By source name."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    return {
        table.name: catalog.create_table(table.full_name, table.schema, primary_key=table.primary_key, options=options)
        for table in TABLES
    }


def rows_in_key_order(table: ShopTable, found: pa.Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = found.sort_by([(c, "ascending") for c in table.primary_key]).to_pylist()
    return rows
