"""A served warehouse with a database and a table of two columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.rest_server import ServedWarehouse, serving

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
ORDERS = "databases/shop/tables/orders"


def create_orders(lake: tidelake.Catalog) -> tidelake.Table:
    """Create `shop.orders` with a key, and no rows."""
    lake.create_database("shop")
    return lake.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{n}" for n in ids]}, SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    """The warehouse, not through the server."""
    return tidelake.open_catalog(str(tmp_path / "lake"))


@pytest.fixture
def orders(lake: tidelake.Catalog) -> tidelake.Table:
    return create_orders(lake)


@pytest.fixture
def served(tmp_path: Path, orders: tidelake.Table) -> Iterator[ServedWarehouse]:
    with serving(str(tmp_path / "lake")) as found:
        yield found
