"""Keeps a full-text index of shop.products up to date: `python index.py`, or `python index.py --forever`."""

from __future__ import annotations

import sqlite3
import sys

import pyarrow as pa

import tidelake

CAME = (0, 2)  # +I and +U in _VALUE_KIND; 1 and 3 (-U, -D) are rows that went


def open_index() -> sqlite3.Connection:
    index = sqlite3.connect("index.db")
    index.executescript(
        """
        CREATE VIRTUAL TABLE IF NOT EXISTS products USING fts5(name, description);
        CREATE TABLE IF NOT EXISTS progress (only INTEGER PRIMARY KEY CHECK (only = 0), position TEXT);
        """
    )
    return index


def put(index: sqlite3.Connection, rows: pa.RecordBatch | pa.Table) -> None:
    """Add rows, or replace those with the same id."""
    for row in rows.to_pylist():
        index.execute("DELETE FROM products WHERE rowid = ?", [row["id"]])
        if row.get("_VALUE_KIND", 0) in CAME:
            values = [row["id"], row["name"], row["description"]]
            index.execute("INSERT INTO products (rowid, name, description) VALUES (?, ?, ?)", values)


def follow(index: sqlite3.Connection, table: tidelake.Table, end: int | None) -> int:
    """Apply the changes since the stored position, or all rows at the first start. Returns the number of changes."""
    found = index.execute("SELECT position FROM progress").fetchone()
    start = found[0] if found else "latest-full"
    changes = 0
    # The position is ours. The consumer only keeps the snapshots that we still need from expiring.
    for change in table.follow(start=start, consumer="search", end=end):
        with index:  # one transaction: the changes, and how far they reach
            if change.is_break:  # the table was overwritten: all its rows, then the changes behind them
                index.execute("DELETE FROM products")
                put(index, table.scan(snapshot=change.snapshot_id).to_arrow())
            else:
                put(index, change.rows)
                changes += change.rows.num_rows
            index.execute("INSERT OR REPLACE INTO progress VALUES (0, ?)", [str(change.position)])
    return changes


table = tidelake.open_catalog("lake").table("shop.products")
newest = table.snapshots()[-1].id
applied = follow(open_index(), table, None if "--forever" in sys.argv else newest)
print(f"{applied} changes, index at snapshot {newest}")
