"""JDBC catalogs in an SQLite database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelake
from tidelake.storage.catalog.opening import open_catalog

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def options(folder: Path, **more: str) -> dict[str, str]:
    return {"metastore": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", **more}


def catalog(folder: Path, **more: str) -> tidelake.Catalog:
    """With a database `shop`."""
    made = tidelake.Catalog(open_catalog(f"{folder}/lake", options(folder, **more)))
    made.create_database("shop", if_not_exists=True)
    return made


def rows(folder: Path, sql: str) -> list[Any]:
    """What is in the database, seen by SQLite itself."""
    connection = sqlite3.connect(folder / "catalog.db")
    try:
        with connection:
            return connection.execute(sql).fetchall()
    finally:
        connection.close()


def write(table: tidelake.Table, number: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number], "v": [f"v{number}"]}, SCHEMA))
        writer.commit()
