"""Code of a user, which mypy (strict) and pyright check: frames, calls with one commit, and async ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

import tidelake
from tidelake import aio


def blocking(table: tidelake.Table, catalog: tidelake.Catalog) -> None:
    scan = assert_type(table.scan(filter="id > 3", columns=["id"], limit=5), tidelake.Scan)
    assert_type(scan.to_polars(), pl.LazyFrame)
    frame: pd.DataFrame = scan.to_pandas(types_mapper=None)
    connection: duckdb.DuckDBPyConnection = scan.to_duckdb("orders", duckdb.connect())
    assert_type(scan.count(), int)
    assert_type(scan.limit(3).where("id < 5"), tidelake.Scan)
    batches: Iterator[pa.RecordBatch] = iter(scan)
    rows = pl.DataFrame({"id": [1]})
    assert_type(table.append(rows), int | None)
    assert_type(table.upsert([{"id": 1}], commit_user="etl", identifier=7), int | None)
    assert_type(table.overwrite(scan, partition={"day": "2026-05-01"}), int | None)
    assert_type(table.merge(rows, on=["id"], when_matched="delete"), int | None)
    assert_type(catalog.create_table("shop.t", rows, if_not_exists=True), tidelake.Table)
    assert_type(tidelake.duckdb.attach(connection, catalog), list[str])
    with table.writer() as writer:
        writer.write(frame)
        writer.write(next(batches))
        writer.write(scan)
        assert_type(writer.commit(), int | None)


async def waiting(table: aio.Table) -> None:
    scan = assert_type(await table.scan(filter="id > 3", limit=5), aio.Scan)
    assert_type(await scan.to_polars(), pl.LazyFrame)
    assert_type(await scan.count(), int)
    assert_type(scan.limit(3), aio.Scan)
    assert_type(await table.append([{"id": 1}]), int | None)
    assert_type(await table.merge(pl.DataFrame({"id": [1]}), on=["id"], when_not_matched="ignore"), int | None)
