"""A small shop that changes: the expected rows of the demo. The same seed gives the same shop, change by change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

Row = dict[str, Any]
Key = tuple[Any, ...]

START_TIME: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ShopTable:
    """A table of the shop.

    name: of the source table, and of the table in database `shop`
    primary_key: as declared
    """

    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"shop.{self.name}"

    def key_of(self, row: Row) -> Key:
        return tuple(row[column] for column in self.primary_key)


_MONEY: Final = pa.decimal128(10, 2)

CUSTOMERS: Final = ShopTable(
    "customers",
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("email", pa.string()),
            ("tier", pa.string()),
            ("since", pa.date32()),
        ]
    ),
    ("id",),
)
ORDERS: Final = ShopTable(
    "orders",
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("customer_id", pa.int64()),
            ("status", pa.string()),
            ("amount", _MONEY),
            ("note", pa.string()),
            ("placed_at", pa.timestamp("us", "UTC")),
        ]
    ),
    ("id",),
)
STOCK: Final = ShopTable(
    "stock",
    pa.schema(
        [
            pa.field("sku", pa.string(), nullable=False),
            pa.field("shelf", pa.int32(), nullable=False),
            ("quantity", pa.int32()),
            ("price", _MONEY),
        ]
    ),
    ("sku", "shelf"),
)
TABLES: Final = (CUSTOMERS, ORDERS, STOCK)


@dataclass(frozen=True, slots=True)
class ShopChange:
    """A row before and after a change. None: no such row. If the key differs, the row moved to another key."""

    table: ShopTable
    before: Row | None
    after: Row | None
    at: datetime
    is_snapshot: bool = False


_FIRST_NAMES: Final = (
    "Ada",
    "Bruno",
    "Chloé",
    "Dmitri",
    "Emre",
    "Fatima",
    "Grace",
    "Haruto",
    "Inés",
    "Jürgen",
    "李娜",
    "Zoë",
)
_LAST_NAMES: Final = (
    "Costa",
    "Dvořák",
    "Eriksen",
    "Fischer",
    "García",
    "Ito",
    "Kowalski",
    "Nguyễn",
    "O'Brien",
    "Şahin",
)
_NOTES: Final = (None, None, None, None, "gift wrap", "call first", 'leave at "the desk"', "сдать в офис", "")
_NEXT_STATUS: Final = {
    "new": "paid",
    "paid": "packed",
    "packed": "shipped",
    "shipped": "delivered",
    "delivered": "returned",
}


class Shop:
    """The current state of the shop.

    rows: the current rows, by table name and key. They include every change that `initial_rows` and `changes` have
        yielded.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = START_TIME
        self._next_id = {CUSTOMERS.name: 1, ORDERS.name: 1}
        self.rows: dict[str, dict[Key, Row]] = {table.name: {} for table in TABLES}
        self._keys: dict[str, list[Key]] = {table.name: [] for table in TABLES}  # of rows, and of some deleted rows
        self._actions: Mapping[Callable[[], Iterator[ShopChange]], int] = {
            self._order: 34,
            self._advance_order: 38,
            self._cancel: 6,
            self._sell_article: 12,
            self._move_article: 2,
            self._join: 4,
            self._change_customer: 3,
            self._delete_customer: 1,
        }

    def initial_rows(self, customers: int, articles: int) -> Iterator[ShopChange]:
        """Yield the rows that existed before the log began."""
        for _ in range(customers):
            yield from self._join(is_snapshot=True)
        for number in range(articles):
            row = {
                "sku": f"SKU-{number:04}",
                "shelf": self._random.randrange(12),
                "quantity": self._random.randrange(50, 500),
                "price": self._money(1, 90),
            }
            yield self._put(STOCK, None, row, is_snapshot=True)

    def changes(self) -> Iterator[ShopChange]:
        """Yield changes without end."""
        actions, weights = list(self._actions), list(self._actions.values())
        while True:
            self._now += timedelta(milliseconds=self._random.randrange(20, 4_000))
            for action in self._random.choices(actions, weights, k=64):
                yield from action()

    def expected_rows(self, table: ShopTable) -> pa.Table:
        """Return all current rows, sorted by their keys."""
        rows = [row for _, row in sorted(self.rows[table.name].items())]
        return pa.Table.from_pylist(rows, schema=table.schema)

    # ------------------------------------------------------------ events

    def _order(self) -> Iterator[ShopChange]:
        customer = self._random_row(CUSTOMERS)
        if customer is None:
            return
        row = {
            "id": self._number(ORDERS),
            "customer_id": customer["id"],
            "status": "new",
            "amount": self._money(3, 900),
            "note": self._random.choice(_NOTES),
            "placed_at": self._now + timedelta(microseconds=self._random.randrange(1_000_000)),
        }
        yield self._put(ORDERS, None, row)

    def _advance_order(self) -> Iterator[ShopChange]:
        order = self._random_row(ORDERS, recent=4_000)
        if order is not None and order["status"] in _NEXT_STATUS:
            yield self._put(ORDERS, order, {**order, "status": _NEXT_STATUS[order["status"]]})

    def _cancel(self) -> Iterator[ShopChange]:
        order = self._random_row(ORDERS, recent=4_000)
        if order is not None and order["status"] in ("new", "paid"):
            yield self._put(ORDERS, order, None)

    def _sell_article(self) -> Iterator[ShopChange]:
        article = self._random_row(STOCK)
        if article is not None:
            left = article["quantity"] - self._random.randrange(1, 6)
            yield self._put(STOCK, article, {**article, "quantity": left if left >= 0 else 400})

    def _move_article(self) -> Iterator[ShopChange]:
        """Change the shelf of a row. It is part of the key, so the row moves."""
        article = self._random_row(STOCK)
        if article is not None:
            yield self._put(STOCK, article, {**article, "shelf": (article["shelf"] + 1) % 12})

    def _join(self, *, is_snapshot: bool = False) -> Iterator[ShopChange]:
        number = self._number(CUSTOMERS)
        first, last = self._random.choice(_FIRST_NAMES), self._random.choice(_LAST_NAMES)
        row = {
            "id": number,
            "name": f"{first} {last}",
            "email": None if self._random.random() < 0.05 else f"customer{number}@example.test",
            "tier": self._random.choice(("bronze", "silver", "gold")),
            "since": date(2019, 1, 1) + timedelta(days=self._random.randrange(2_600)),
        }
        yield self._put(CUSTOMERS, None, row, is_snapshot=is_snapshot)

    def _change_customer(self) -> Iterator[ShopChange]:
        customer = self._random_row(CUSTOMERS)
        if customer is not None:
            yield self._put(CUSTOMERS, customer, {**customer, "tier": self._random.choice(("silver", "gold", None))})

    def _delete_customer(self) -> Iterator[ShopChange]:
        customer = self._random_row(CUSTOMERS)
        if customer is not None:
            yield self._put(CUSTOMERS, customer, None)

    # ------------------------------------------------------------ bookkeeping

    def _put(self, table: ShopTable, before: Row | None, after: Row | None, *, is_snapshot: bool = False) -> ShopChange:
        rows = self.rows[table.name]
        if before is not None:
            del rows[table.key_of(before)]
        if after is not None:
            key = table.key_of(after)
            rows[key] = after
            if before is None or table.key_of(before) != key:
                self._keys[table.name].append(key)
        return ShopChange(table, before, after, self._now, is_snapshot)

    def _random_row(self, table: ShopTable, recent: int | None = None) -> Row | None:
        """Return a random row, of the most recent ones if requested; None if the chosen row was deleted."""
        keys = self._keys[table.name]
        if not keys:
            return None
        first = 0 if recent is None else max(0, len(keys) - recent)
        return self.rows[table.name].get(keys[self._random.randrange(first, len(keys))])

    def _number(self, table: ShopTable) -> int:
        number = self._next_id[table.name]
        self._next_id[table.name] = number + 1
        return number

    def _money(self, low: int, high: int) -> Decimal:
        return Decimal(self._random.randrange(low * 100, high * 100)).scaleb(-2)
