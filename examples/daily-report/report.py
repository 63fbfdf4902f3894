"""Materializes what changed on each day: `python report.py` for all missing days, or `python report.py DAY…`."""

from __future__ import annotations

import sys

import duckdb
import pyarrow as pa

import tidelake

COLUMNS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("country", pa.string(), nullable=False),
        ("orders", pa.int64()),
        ("amount", pa.decimal128(18, 2)),
    ]
)
REPORT = """
    SELECT ? AS day,
           coalesce(country, 'unknown') AS country,  -- a key has no nulls
           sum(sign)::BIGINT AS orders,
           sum(sign * amount)::DECIMAL(18, 2) AS amount
    FROM (
        -- 0 and 2 (+I, +U) are rows that came, 1 and 3 (-U, -D) rows that went
        SELECT *, CASE WHEN _VALUE_KIND IN (0, 2) THEN 1 ELSE -1 END AS sign FROM changed
    )
    GROUP BY ALL
"""


def changes_of(orders: tidelake.Table, day: str, days: list[str]) -> pa.Table:
    """Return the rows that came and went between the tag before a day's tag and this tag, with _VALUE_KIND."""
    earlier = [other for other in days if other < day]
    if not earlier:  # the first day: all rows came
        rows = orders.scan(tag=day).to_arrow()
        return rows.append_column("_VALUE_KIND", pa.array([0] * len(rows), pa.int8()))
    batches = [change.rows for change in orders.changes(between=(earlier[-1], day))]
    return pa.Table.from_batches(batches, orders.schema.append(pa.field("_VALUE_KIND", pa.int8(), nullable=False)))


catalog = tidelake.open_catalog("lake")
orders = catalog.table("shop.orders")
reports = catalog.create_table(
    "shop.daily_orders",
    COLUMNS,
    primary_key=["day", "country"],
    partition_by=["day"],
    options={"bucket": "1"},
    if_not_exists=True,
)
days = sorted(orders.tags())
written = reports.scan(columns=["day"]).to_arrow()["day"].to_pylist()
wanted = sys.argv[1:] or [day for day in days if day not in written]
if unknown := [day for day in wanted if day not in days]:
    sys.exit(f"shop.orders has no tag {', '.join(unknown)}: the day is not over, or its tag has expired")
for day in wanted:
    changed = changes_of(orders, day, days)
    rows = duckdb.sql(REPORT, params=[day]).to_arrow_table()  # it finds `changed` by its name
    reports.overwrite(rows, partition={"day": day})  # one commit: readers see the old rows of the day, or the new ones
    print(f"{day}: {len(rows)} {'row' if len(rows) == 1 else 'rows'}")
if not wanted:
    print("nothing to do")
