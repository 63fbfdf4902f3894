"""Plays the shop: `python products.py morning` creates the table, `python products.py evening` changes it."""

from __future__ import annotations

import sys

import pyarrow as pa

import tidelake

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("description", pa.string())])
MORNING = [(1, "Wool hat", "warm and grey"), (2, "Mug", "for coffee, 0.3 l"), (3, "Wool scarf", "long and red")]
EVENING = [(1, "Wool hat", "warm and blue"), (4, "Cotton shirt", "light")]

catalog = tidelake.open_catalog("lake")
catalog.create_database("shop", if_not_exists=True)
table = catalog.create_table(
    "shop.products",
    COLUMNS,
    primary_key=["id"],
    options={"bucket": "1", "changelog-producer": "lookup"},  # a changelog with the rows before and after each change
    if_not_exists=True,
)
rows = EVENING if "evening" in sys.argv else MORNING
table.upsert(pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS))
if "evening" in sys.argv:
    table.delete("id = 3")
print(f"{table.scan().to_arrow().num_rows} products")
