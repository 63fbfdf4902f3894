"""Plays three days of a shop, and tags the state at the end of each: `python orders.py`."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

import tidelake

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("country", pa.string()), ("amount", pa.decimal128(10, 2))]
)
DAYS = {
    "2026-05-01": ([(1, "DE", "10.00"), (2, "DE", "20.00"), (3, "FR", "8.50")], None),
    "2026-05-02": ([(2, "DE", "25.00")], "id = 3"),  # order 2 costs more, order 3 is cancelled
    "2026-05-03": ([(4, "DE", "7.25")], None),
}

catalog = tidelake.open_catalog("lake")
catalog.create_database("shop", if_not_exists=True)
table = catalog.create_table("shop.orders", COLUMNS, primary_key=["id"], options={"bucket": "1"})
for day, (orders, cancelled) in DAYS.items():
    rows = [{"id": id_, "country": country, "amount": Decimal(amount)} for id_, country, amount in orders]
    table.upsert(pa.Table.from_pylist(rows, COLUMNS))
    if cancelled:
        table.delete(cancelled)
    table.create_tag(day)
print(f"shop.orders has the tags {', '.join(sorted(table.tags()))}")
