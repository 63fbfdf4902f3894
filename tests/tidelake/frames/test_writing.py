"""Rows of other libraries are written, in one call or by a writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import time
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelake
from tidelake import BadInput, Catalog, Table, TidelakeError, aio

SCHEMA: Final = pa.schema([("id", pa.int64()), ("status", pa.string()), ("price", pa.float64())])
VECTORS: Final = {"deletion-vectors.enabled": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table("shop.orders", SCHEMA, options=VECTORS)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=str)


ROWS: Final[list[dict[str, Any]]] = [{"id": 1, "status": "new", "price": 0.5}, {"id": 2, "status": None, "price": None}]
WRITTEN: Final = [(1, "new", 0.5), (2, None, None)]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: ROWS, id="dicts"),
        pytest.param(lambda: [{"id": 1, "status": "new", "price": 0.5}, {"id": 2}], id="dicts that lack columns"),
        pytest.param(lambda: pa.Table.from_pylist(ROWS), id="an Arrow table"),
        pytest.param(lambda: pa.RecordBatch.from_pylist(ROWS), id="an Arrow batch"),
        pytest.param(lambda: pa.Table.from_pylist(ROWS).to_reader(), id="an Arrow reader"),
        pytest.param(lambda: pl.DataFrame(ROWS), id="a Polars frame"),
        pytest.param(lambda: pl.DataFrame(ROWS).cast({"status": pl.Categorical}), id="a Polars frame with categories"),
        pytest.param(lambda: pd.DataFrame(ROWS), id="a pandas frame: NaN is missing"),
        pytest.param(lambda: pd.DataFrame(ROWS).set_index("id"), id="a pandas frame: a named index is a column"),
        pytest.param(lambda: pd.DataFrame(ROWS, index=[7, 9]), id="a pandas frame: an index without name is dropped"),
        pytest.param(
            lambda: duckdb.sql("select 1::bigint id, 'new' status, 0.5::double price union all select 2, null, null"),
            id="a relation of DuckDB",
        ),
    ],
)
def test_rows_of_any_kind_are_written(given: Callable[[], Any], table: Table) -> None:
    assert table.append(given()) == 1
    assert rows_of(table) == WRITTEN


def test_a_scan_is_copied_as_a_stream(table: Table, catalog: Catalog) -> None:
    table.append(ROWS)
    copy = catalog.create_table("shop.copy", table)
    copy.append(table.scan())
    assert rows_of(copy) == WRITTEN
    assert copy.schema == table.schema


def test_a_stream_that_fails_later_ends_the_writer(table: Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(ROWS, SCHEMA)
        raise OSError("the source is gone")

    with table.writer() as writer:
        with pytest.raises(OSError, match="gone"):
            writer.write(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
        with pytest.raises(TidelakeError, match="Open a new writer"):
            writer.commit()
    assert rows_of(table) == []


def test_columns_of_a_stream_are_checked_before_its_rows(table: Table) -> None:
    read: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        read.append(1)
        yield pa.RecordBatch.from_pylist([{"ident": 1}])

    with table.writer() as writer, pytest.raises(BadInput, match="no column 'ident'"):
        writer.write(pa.RecordBatchReader.from_batches(pa.schema([("ident", pa.int64())]), batches()))
    assert not read


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(SCHEMA, id="an Arrow schema"),
        pytest.param(pa.table({"id": [1], "status": ["x"], "price": [0.5]}), id="an Arrow table"),
        pytest.param(pl.DataFrame(ROWS), id="a Polars frame"),
        pytest.param(pl.LazyFrame(ROWS), id="a lazy Polars frame"),
        pytest.param(pl.DataFrame(ROWS).schema, id="a Polars schema"),
        pytest.param(pd.DataFrame(ROWS), id="a pandas frame"),
    ],
)
def test_a_table_is_created_from_a_frame(given: Any, catalog: Catalog) -> None:
    assert catalog.create_table("shop.t", given).schema == SCHEMA
    assert catalog.create_table("shop.t", given, if_not_exists=True).scan().count() == 0


# ---------------------------------------------------------------- calls with one commit


def test_upserts_replace_rows_of_the_same_key(catalog: Catalog, table: Table) -> None:
    keyed = catalog.create_table("shop.keyed", SCHEMA, primary_key=["id"])
    assert keyed.upsert(ROWS, commit_user="etl", identifier=1) == 1
    assert keyed.upsert([{"id": 2, "status": "paid"}], commit_user="etl", identifier=2) == 2
    assert keyed.upsert([{"id": 9}], commit_user="etl", identifier=2) is None
    assert rows_of(keyed) == [(1, "new", 0.5), (2, "paid", None)]
    with pytest.raises(BadInput, match=r"no primary key .* call append\(\), or merge"):
        table.upsert(ROWS)


def test_overwrites_replace_all_rows_or_partitions(catalog: Catalog, table: Table) -> None:
    table.append(ROWS)
    table.overwrite([{"id": 3}])
    assert rows_of(table) == [(3, None, None)]
    parts = catalog.create_table("shop.parts", SCHEMA, partition_by=["status"])
    parts.append([{"id": 1, "status": "a"}, {"id": 2, "status": "b"}])
    parts.overwrite([{"id": 3, "status": "a"}], partition={"status": "a"})
    assert rows_of(parts) == [(2, "b", None), (3, "a", None)]


def merged(catalog: Catalog, key: tuple[str, ...]) -> Table:
    table = catalog.create_table("shop.merged", SCHEMA, primary_key=key, options=VECTORS if not key else {})
    table.append([{"id": i, "status": "old", "price": float(i)} for i in (1, 2, 3)])
    return table


@pytest.mark.parametrize("key", [pytest.param(("id",), id="with a primary key"), pytest.param((), id="without")])
@pytest.mark.parametrize(
    ("choices", "left"),
    [
        pytest.param({}, [(1, "old", 1.0), (2, "new", 2.0), (3, "old", 3.0), (4, "new", None)], id="update and insert"),
        pytest.param(
            {"when_not_matched": "ignore"}, [(1, "old", 1.0), (2, "new", 2.0), (3, "old", 3.0)], id="update alone"
        ),
        pytest.param(
            {"when_matched": "ignore"},
            [(1, "old", 1.0), (2, "old", 2.0), (3, "old", 3.0), (4, "new", None)],
            id="insert alone",
        ),
        pytest.param(
            {"when_matched": "delete"}, [(1, "old", 1.0), (3, "old", 3.0), (4, "new", None)], id="delete and insert"
        ),
        pytest.param(
            {"when_matched": "delete", "when_not_matched": "ignore"},
            [(1, "old", 1.0), (3, "old", 3.0)],
            id="delete alone",
        ),
    ],
)
def test_a_merge_makes_one_commit(
    choices: dict[str, Any], left: list[tuple[Any, ...]], key: tuple[str, ...], catalog: Catalog
) -> None:
    table = merged(catalog, key)
    assert table.merge(pl.DataFrame({"id": [2, 4], "status": ["new", "new"]}), ["id"], **choices) == 2
    assert rows_of(table) == left


@pytest.mark.parametrize("key", [pytest.param(("id",), id="with a primary key"), pytest.param((), id="without")])
def test_a_merge_equals_nothing_to_a_null_and_compares_all_columns(key: tuple[str, ...], catalog: Catalog) -> None:
    table = merged(catalog, key)
    table.merge([{"id": 2, "status": None, "price": 9.0}, {"id": 3, "status": "old", "price": 9.0}], ["id", "status"])
    found = rows_of(table)
    assert (3, "old", 9.0) in found
    assert (2, None, 9.0) in found
    assert ((2, "old", 2.0) in found) is (not key)


@pytest.mark.parametrize("call", ["append", "upsert", "overwrite", "merge"])
def test_empty_chunks_of_a_stream_are_written_like_others(call: str, catalog: Catalog) -> None:
    """An exporter may send a slice without rows, which begins within its buffers: Arrow can't join it to another."""
    table = merged(catalog, ("id",))
    slices = {"id": pa.array([0, 7, 8]), "status": pa.array([None, "x", None]), "price": pa.array([None, None, 1.0])}
    rows = pa.table({name: pa.chunked_array([a[1:1], a[1:]]) for name, a in slices.items()})

    class Exporter:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return rows.__arrow_c_stream__(requested_schema)

    getattr(table, call)(Exporter(), **({"on": ["id"]} if call == "merge" else {}))
    assert [row for row in rows_of(table) if row[0] > 3] == [(7, "x", None), (8, None, 1.0)]


def test_a_merge_of_many_keys_reads_their_range(catalog: Catalog) -> None:
    table = merged(catalog, ())
    table.merge(pa.table({"id": range(2, 3000), "status": ["new"] * 2998}), ["id"])
    assert table.scan().count() == 2999
    assert table.scan(filter="status = 'old'").count() == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"source": [{"id": 1}, {"id": 1}], "on": ["id"]}, "two of the rows to merge have the same keys"),
        ({"source": [{"id": 1}], "on": []}, "needs the columns"),
        ({"source": [{"id": 1}], "on": ["ident"]}, "no column 'ident'"),
        ({"source": [{"id": 1}], "on": ["id", "status"]}, "which the rows lack"),
        ({"source": [{"id": 1, "idd": 2}], "on": ["id"]}, "no column 'idd' to merge"),
        ({"source": [{"id": "x"}], "on": ["id"]}, "column 'id'"),
        ({"source": [{"id": 1}], "on": ["id"], "when_matched": "replace"}, "expected one of update, delete, ignore"),
    ],
)
def test_a_merge_that_is_not_clear_changes_nothing(arguments: dict[str, Any], says: str, catalog: Catalog) -> None:
    table = merged(catalog, ())
    with pytest.raises(BadInput, match=says):
        table.merge(**arguments)
    assert len(table.snapshots()) == 1


def test_a_merge_needs_no_deletion_vectors(catalog: Catalog) -> None:
    table = catalog.create_table("shop.plain", SCHEMA)
    assert table.merge([{"id": 1}], ["id"], when_matched="ignore") == 1
    assert table.merge([{"id": 1}, {"id": 2}], ["id"]) is not None
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [1, 2]


async def test_async_calls_do_the_same(catalog: Catalog, tmp_path: Path) -> None:
    table = await (await aio.open_catalog(str(tmp_path))).create_table("shop.t", SCHEMA, options=VECTORS)
    await table.append(pl.DataFrame(ROWS))
    await table.merge([{"id": 2, "status": "paid"}], ["id"])
    scan = await table.scan(filter="id = 2")
    assert await scan.count() == 1
    assert (await scan.to_polars()).collect()["status"].to_list() == ["paid"]
    with pytest.warns(ResourceWarning, match=r"shop\.t: .* without commit"):
        async with table.writer() as writer:
            await writer.write(ROWS)


# ---------------------------------------------------------------- forgotten commits


def test_a_block_that_ends_without_its_commit_warns(table: Table) -> None:
    with pytest.warns(ResourceWarning, match=r"shop\.orders: .* without commit") as caught, table.writer() as writer:
        writer.write(ROWS)
    assert caught[0].filename == __file__


def test_a_block_does_not_warn_if_the_caller_knows(table: Table) -> None:
    with table.writer() as writer:
        writer.write(ROWS)
        writer.close()
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist([], SCHEMA))
    with pytest.raises(KeyError), table.writer() as writer:
        writer.write(ROWS)
        raise KeyError


def test_times_of_day_of_a_frame_are_those_of_a_table_if_they_fit(catalog: Catalog) -> None:
    exact = pl.DataFrame({"t": [time(23, 59, 59, 999_000), None]})
    table = catalog.create_table("shop.t", exact)
    table.append(exact)
    table.append(duckdb.sql("select time '12:00:00.001' as t"))
    assert table.scan().to_arrow()["t"].to_pylist() == [time(23, 59, 59, 999_000), None, time(12, 0, 0, 1000)]
    with pytest.raises(BadInput, match=r"column 't' is TIME\(3\), and .* does not fit without loss"):
        table.append(pl.DataFrame({"t": [time(0, 0, 0, 1)]}))
