"""A source table of orders, and materialized tables over it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import tidelake

ORDERS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("pieces", pa.int32()),
    ]
)
TOTALS: Final = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("total", pa.decimal128(20, 2)),
        pa.field("orders", pa.int64()),
        pa.field("priced", pa.int64()),
    ]
)
LARGE: Final = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("twice", pa.int64())])

TOTALS_QUERY: Final = (
    "SELECT day, SUM(amount) AS total, COUNT(*) AS orders, COUNT(amount) AS priced FROM orders GROUP BY day"
)
LARGE_QUERY: Final = "SELECT id AS number, pieces * 2 AS twice FROM orders WHERE pieces >= 5"

Order = tuple[int, str, str | None, int | None]


def new_lake(folder: Path, **options: str) -> tidelake.Catalog:
    """With `shop.orders`; its primary key is `id` where options are given."""
    lake = tidelake.open_catalog(str(folder / "lake"))
    lake.create_database("shop")
    lake.create_table("shop.orders", ORDERS, primary_key=["id"] if options else [], options=options)
    return lake


def materialized(
    lake: tidelake.Catalog, name: str, query: str, schema: pa.Schema, *key: str, **options: str
) -> tidelake.Table:
    definition = tidelake.MaterializedDefinition(query, freshness=1, unit="day")
    return lake.create_table(
        f"shop.{name}", schema, primary_key=list(key), options={**definition.to_options(), **options}
    )


def order(lake: tidelake.Catalog, *orders: Order, deleted: tuple[Order, ...] = (), overwrite: bool = False) -> None:
    rows = [dict(zip(ORDERS.names, one, strict=True)) for one in (*orders, *deleted)]
    for row in rows:
        row["amount"] = None if row["amount"] is None else Decimal(str(row["amount"]))
    given = pa.Table.from_pylist(rows, ORDERS)
    if deleted:
        given = given.append_column("_VALUE_KIND", pa.array([0] * len(orders) + [3] * len(deleted), pa.int8()))
    with lake.table("shop.orders").writer(overwrite=overwrite) as writer:
        writer.write(given)
        writer.commit()


def rows_of(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def reread(lake: tidelake.Catalog, name: str) -> list[tuple[Any, ...]]:
    return rows_of(lake.table(f"shop.{name}"))


def totals_of(orders: list[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """What TOTALS_QUERY means."""
    found: list[tuple[Any, ...]] = []
    for day in {one["day"] for one in orders}:
        amounts = [one["amount"] for one in orders if one["day"] == day]
        priced = [amount for amount in amounts if amount is not None]
        found.append((day, sum(priced) if priced else None, len(amounts), len(priced)))
    return sorted(found, key=repr)


def large_of(orders: list[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """What LARGE_QUERY means."""
    return sorted(
        ((one["id"], one["pieces"] * 2) for one in orders if one["pieces"] is not None and one["pieces"] >= 5), key=repr
    )
