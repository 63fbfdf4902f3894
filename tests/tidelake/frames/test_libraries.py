"""A table in pandas, Polars, DuckDB, Ibis and Arrow: which rows they get, and which files are read for it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tidelake import BadInput, Catalog, Scan, Table
from tidelake.frames import dataset
from tidelake.frames.dataset import Opened, ScanDataset
from tidelake.frames.readable import Readable, check_installed
from tidelake.sql import Session
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.read import snapshot_reader

SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("price", pa.float64()), ("address", pa.struct([("zip", pa.int32())]))]
)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Three files with ids 0 to 9, 10 to 19, 20 to 29."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", SCHEMA)
    for start in (0, 10, 20):
        table.append([row(i) for i in range(start, start + 10)])
    return catalog


def row(i: int) -> dict[str, Any]:
    price = None if i % 10 == 3 else float("nan") if i % 10 == 4 else i * 1.5
    return {"id": i, "city": None if i % 10 == 5 else f"B{i}", "price": price, "address": {"zip": i % 4}}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.table("shop.orders")


# ---------------------------------------------------------------- Arrow


def test_a_scan_and_a_table_are_arrow_streams_that_can_be_read_again(table: Table) -> None:
    scan = table.scan(columns=["id"], filter="id > 26")
    for _ in range(2):
        assert pa.table(scan).column("id").to_pylist() == [27, 28, 29]
        assert pl.DataFrame(table).height == 30
    assert pa.schema(scan) == scan.schema
    assert pa.schema(table) == table.schema
    assert scan.to_arrow_batch_reader().read_all() == scan.to_arrow()
    assert sum(batch.num_rows for batch in scan) == 3


def test_a_stream_is_read_batch_by_batch(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    batches = Scan._batches

    def counted(scan: Scan, splits: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(scan, splits):
            opened.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(Scan, "_batches", counted)
    reader = pa.RecordBatchReader.from_stream(table)
    assert reader.read_next_batch().num_rows == 10
    assert opened == [10]


# ---------------------------------------------------------------- pushdown

Read = Callable[[Scan], list[int]]


def ids_by_duckdb(where: str) -> Read:
    return lambda scan: [i for (i,) in scan.to_duckdb("t").execute(f"select id from t where {where}").fetchall()]


def ids_by_polars(where: Callable[[], pl.Expr]) -> Read:
    return lambda scan: scan.to_polars().filter(where()).select("id").collect()["id"].to_list()


@pytest.mark.parametrize(
    ("read", "ids", "files"),
    [
        pytest.param(ids_by_duckdb("id = 7"), [7], 1, id="DuckDB: equal"),
        pytest.param(ids_by_duckdb("id > 18 and id <= 21"), [19, 20, 21], 2, id="DuckDB: a range"),
        pytest.param(ids_by_duckdb("id in (1, 25)"), [1, 25], 2, id="DuckDB: one of"),
        pytest.param(ids_by_duckdb("id = 1 or id = 2"), [1, 2], 1, id="DuckDB: or"),
        pytest.param(ids_by_duckdb("city is null and id < 20"), [5, 15], 2, id="DuckDB: null"),
        pytest.param(ids_by_duckdb("id not in (1, 2) and id < 4"), [0, 3], 1, id="DuckDB: not one of"),
        pytest.param(ids_by_duckdb("price > 40"), [4, 14, 24, 27, 28, 29], 3, id="DuckDB: NaN is above all numbers"),
        pytest.param(ids_by_duckdb("address.zip = 3 and id < 5"), [3], 1, id="DuckDB: a field of a row"),
        pytest.param(ids_by_duckdb("id % 7 = 0 and id > 20"), [21, 28], 1, id="DuckDB: arithmetic beside a range"),
        pytest.param(ids_by_polars(lambda: pl.col("id") == 7), [7], 1, id="Polars: equal"),
        pytest.param(ids_by_polars(lambda: pl.col("id").is_between(19, 21)), [19, 20, 21], 2, id="Polars: a range"),
        pytest.param(ids_by_polars(lambda: pl.col("id").is_in([1, 25])), [1, 25], 2, id="Polars: one of"),
        pytest.param(ids_by_polars(lambda: (pl.col("id") == 1) | (pl.col("id") == 2)), [1, 2], 1, id="Polars: or"),
        pytest.param(
            ids_by_polars(lambda: pl.col("city").is_null() & (pl.col("id") < 20)), [5, 15], 2, id="Polars: null"
        ),
        pytest.param(
            ids_by_polars(lambda: ~pl.col("id").is_in([1, 2]) & (pl.col("id") < 4)), [0, 3], 1, id="Polars: not one of"
        ),
        pytest.param(
            ids_by_polars(lambda: pl.col("price") > 40),
            [4, 14, 24, 27, 28, 29],
            3,
            id="Polars: NaN is above all numbers",
        ),
        pytest.param(
            ids_by_polars(lambda: (pl.col("address").struct.field("zip") == 3) & (pl.col("id") < 5)),
            [3],
            1,
            id="Polars: a field of a row",
        ),
        pytest.param(
            ids_by_polars(lambda: (pl.col("id") % 7 == 0) & (pl.col("id") > 20)),
            [21, 28],
            1,
            id="Polars: arithmetic beside a range",
        ),
        pytest.param(
            ids_by_polars(lambda: pl.col("city").str.starts_with("B19")), [19], 2, id="Polars: the start of a text"
        ),
    ],
)
def test_a_condition_of_a_query_reads_only_files_that_may_match(
    read: Read, ids: list[int], files: int, table: Table, reads: list[Scan]
) -> None:
    assert sorted(read(table.scan())) == ids
    assert len(reads) == 1
    assert sum(len(split.files) for split in reads[0].splits()) == files


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """The scans whose rows were read."""
    made: list[Scan] = []
    batches = Scan._batches

    def recorded(scan: Scan, splits: Any) -> Iterator[pa.RecordBatch]:
        made.append(scan)
        return batches(scan, splits)

    monkeypatch.setattr(Scan, "_batches", recorded)
    return made


def test_a_query_reads_only_its_columns(table: Table, reads: list[Scan]) -> None:
    table.scan().to_duckdb("t").execute("select sum(price) from t").fetchall()
    table.scan().to_polars().select(pl.col("price").sum()).collect()
    table.scan().to_polars().filter(pl.col("id") > 3).select("city").collect()
    assert [sorted(scan.schema.names) for scan in reads] == [["price"], ["price"], ["city", "id"]]


def test_a_limit_of_a_polars_query_ends_the_read(table: Table, reads: list[Scan]) -> None:
    assert table.scan().to_polars().head(2).collect().height == 2
    assert sum(len(split.files) for split in reads[0].splits()) == 1


def test_a_lazy_frame_is_read_again_at_each_collect_and_applies_conditions_after_a_limit(table: Table) -> None:
    frame = table.scan(limit=10).to_polars().filter(pl.col("id") > 100)
    assert frame.collect().height == 0
    whole = table.scan().to_polars()
    assert whole.collect().equals(whole.collect(engine="streaming"))


def test_joins_and_windows_of_duckdb_read_a_view_several_times(table: Table) -> None:
    found = table.scan().to_duckdb("t").execute("select count(*) from t a join t b on a.id + 1 = b.id").fetchall()
    assert found == [(29,)]


# ---------------------------------------------------------------- an Arrow dataset


def test_a_dataset_has_the_calls_that_engines_use(table: Table) -> None:
    of = ScanDataset(table.schema, Opened(table.scan()))
    assert of.count_rows() == 30
    assert of.count_rows(filter=pc.field("id") > 27) == 2
    assert of.head(3, columns=["id"]).num_rows == 3
    assert (
        of.to_table(columns={"twice": pc.multiply(pc.field("id"), 2)}, filter=pc.field("id") == 4)["twice"][0].as_py()
        == 8
    )
    assert of.filter(pc.field("id") > 27).to_table(columns=["id"])["id"].to_pylist() == [28, 29]
    assert pickle.loads(pickle.dumps(of)).to_table(columns=["id"]).num_rows == 30
    with pytest.raises(NotImplementedError, match="no fragments"):
        of.get_fragments()
    with pytest.raises(BadInput, match="no column 'nope'"):
        of.to_table(columns=["nope"])
    assert dataset.columns_of(pc.field("id") + 1, table.schema) == {"id"}


# ---------------------------------------------------------------- all tables in DuckDB


def test_attached_tables_are_views_of_their_newest_snapshot(catalog: Catalog, tmp_path: Path) -> None:
    connection = duckdb.connect()
    assert tidelake.duckdb.attach(connection, str(tmp_path / "lake")) == ["shop.orders"]
    query = "select count(*), max(id) from shop.orders where id > 15"
    assert connection.execute(query).fetchall() == [(14, 29)]
    before = datetime.now(UTC)
    catalog.table("shop.orders").append([row(100)])
    assert connection.execute(query).fetchall() == [(15, 100)]
    tidelake.duckdb.attach(connection, catalog, as_of=before)
    assert connection.execute(query).fetchall() == [(14, 29)]
    with pytest.raises(duckdb.Error):
        connection.execute("insert into shop.orders select * from shop.orders")


TWO_READS: Final = {
    "self join": "select a.price - b.price from shop.orders a join shop.orders b using (id) where id < 3",
    "subqueries": "select (select sum(price) from shop.orders) - (select sum(price) from shop.orders where id >= 0)",
    "a condition": "select id from shop.orders where id < 3 and price not in (select price from shop.orders)",
    "a common table": "with x as (select max(price) m from shop.orders) "
    "select m - (select max(price) from shop.orders) from x",
    "a union": "select max(n) - min(n) from "
    "(select count(*) n from shop.orders union all select count(*) from shop.orders)",
    "except": "select id, price from shop.orders where id < 3 except select id, price from shop.orders where id < 3",
    "a correlated subquery": "select 1 from shop.orders a where id < 3 and not exists "
    "(select 1 from shop.orders b where b.id = a.id and b.price = a.price)",
    "a prepared statement": "execute prepared",
}


@pytest.mark.exhaustive(kept=6)
@pytest.mark.parametrize("query", TWO_READS.values(), ids=TWO_READS.keys())
@pytest.mark.parametrize("reader", ["attach", "sql"])
def test_all_reads_of_a_query_see_one_snapshot(
    catalog: Catalog, reader: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits before each read: a query that saw two states would find a difference."""
    catalog.drop_table("shop.orders")
    table = catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    versions = iter(range(1, 1000))

    def change() -> None:
        version = next(versions)
        table.append([{"id": i, "price": float(version)} for i in range(3)] + [{"id": 10 + version, "price": 0.0}])

    change()
    connection, session = duckdb.connect(), Session(catalog)
    tidelake.duckdb.attach(connection, catalog)
    connection.execute(f"prepare prepared as {TWO_READS['self join']}")
    if reader == "sql" and query == "execute prepared":
        query = TWO_READS["self join"]  # the session has no prepared statements

    def run(text: str) -> list[Any]:
        if reader == "attach":
            rows: list[Any] = connection.execute(text).fetchall()
            return rows
        return [tuple(one.values()) for batch in session.run(text) or () for one in batch.to_pylist()]

    scans = ScanDataset.scanner

    def scanner(dataset: ScanDataset, *arguments: Any, **named: Any) -> Any:
        change()
        return scans(dataset, *arguments, **named)

    monkeypatch.setattr(ScanDataset, "scanner", scanner)
    for _ in range(2):
        assert {value for row in run(query) for value in row} <= {0}
        newest = run("select price from shop.orders where id = 1")
        monkeypatch.setattr(ScanDataset, "scanner", scans)
        assert newest < run("select price from shop.orders where id = 1"), "the next query sees the newest state"
        monkeypatch.setattr(ScanDataset, "scanner", scanner)


def test_a_query_that_fails_or_is_left_does_not_hold_its_snapshot(catalog: Catalog) -> None:
    connection = duckdb.connect()
    tidelake.duckdb.attach(connection, catalog)
    kept = []
    for left in ("select error(city) from shop.orders where id = 1", "select cast(city as int) from shop.orders"):
        with pytest.raises(duckdb.Error) as error:
            connection.execute(left).fetchall()
        kept.append(error.value)
    stream = connection.sql("select a.id from shop.orders a, shop.orders b").to_arrow_reader(2)
    stream.read_next_batch()
    del stream
    catalog.table("shop.orders").append([row(100)])
    assert connection.execute("select max(id) from shop.orders").fetchall() == [(100,)]


def test_views_do_not_go_into_a_file_of_duckdb(catalog: Catalog, tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "own.duckdb") as connection:
        with pytest.raises(BadInput, match='pass name="lake"'):
            tidelake.duckdb.attach(connection, catalog)
        assert tidelake.duckdb.attach(connection, catalog, name="lake") == ["lake.shop.orders"]
        assert connection.execute("select count(*) from lake.shop.orders").fetchall() == [(30,)]


def test_a_name_that_duckdb_has_is_refused(catalog: Catalog) -> None:
    connection = duckdb.connect()
    connection.execute("create schema shop; create table shop.orders as select 1 a")
    with pytest.raises(BadInput, match="Attach the warehouse to a database of its own"):
        tidelake.duckdb.attach(connection, catalog)


def test_tables_and_columns_that_duckdb_can_t_tell_apart_are_never_read_for_one_another(catalog: Catalog) -> None:
    """DuckDB compares names without their case: it would read `orders` for `ORDERS`, and column `id` for `ID`."""
    shop = catalog.create_table("shop.ORDERS", SCHEMA)
    shop.append([row(77)])
    catalog.create_database("SHOP")
    catalog.create_table("SHOP.other", SCHEMA).append([row(5)])
    columns = pa.schema([("id", pa.int64()), ("ID", pa.string())])
    both = catalog.create_table("shop.both", columns)
    both.append([{"id": 1, "ID": "x"}])
    connection = duckdb.connect()
    with pytest.warns(UserWarning, match="upper from lower case") as warned:
        assert tidelake.duckdb.attach(connection, catalog) == ["SHOP.other"]
    assert [str(one.message).partition(" ")[0] for one in warned] == ["shop.ORDERS", "shop.both", "shop.orders"]
    with pytest.raises(BadInput, match="column 'id' from 'ID'"):
        both.scan().to_duckdb("both")
    assert both.scan().select(["ID"]).to_duckdb("v").execute("from v").fetchall() == [("x",)]
    session = Session(catalog)

    def ids(query: str) -> list[Any]:
        return [one for batch in session.run(query) or () for one in batch["id"].to_pylist()]

    for _ in range(2):
        assert ids('select id from shop."ORDERS"') == [77]
        assert ids("select id from shop.orders where id = 3") == [3]
        assert ids('select id from "SHOP".other') == [5]
    with pytest.raises(BadInput, match=r"can't read both shop\.(orders|ORDERS) and"):
        session.run('select * from shop.orders a, shop."ORDERS" b')
    with pytest.raises(BadInput, match=r"shop\.both can't be read by SQL"):
        session.run("select * from shop.both")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")  # of Ibis
def test_ibis_works_over_attached_tables(catalog: Catalog) -> None:
    connection = duckdb.connect()
    tidelake.duckdb.attach(connection, catalog)
    orders = ibis.duckdb.from_connection(connection).table("orders", database="shop")
    assert orders.filter(orders.id > 20).aggregate(n=ibis._.count()).to_pyarrow().to_pylist() == [{"n": 9}]


# ---------------------------------------------------------------- counts, limits, texts


@pytest.mark.parametrize(
    ("arguments", "count", "opens_files"),
    [
        pytest.param({}, 30, False, id="all rows"),
        pytest.param({"limit": 12}, 12, False, id="a limit"),
        pytest.param({"limit": 0}, 0, False, id="no rows"),
        pytest.param({"filter": "id > 27"}, 2, True, id="a condition"),
        pytest.param({"filter": "id > 0", "limit": 5}, 5, True, id="a condition and a limit"),
    ],
)
def test_rows_are_counted(
    arguments: dict[str, Any], count: int, opens_files: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.scan(**arguments).to_arrow().num_rows == count
    opened: list[object] = []
    read = read_data_file

    def recorded(*given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        opened.append(given)
        return read(*given, **named)

    monkeypatch.setattr(snapshot_reader, "read_data_file", recorded)
    assert table.scan(**arguments).count() == count
    assert bool(opened) == opens_files


def test_rows_with_several_versions_deletes_or_deletion_vectors_are_counted(catalog: Catalog) -> None:
    keyed = catalog.create_table("shop.keyed", SCHEMA, primary_key=["id"])
    marked = catalog.create_table("shop.marked", SCHEMA, options={"deletion-vectors.enabled": "true"})
    parts = catalog.create_table("shop.parts", SCHEMA, partition_by=["city"])
    for of in (keyed, marked, parts):
        of.append([row(i) for i in range(5)])
    keyed.append([row(i) for i in range(3, 8)])
    keyed.delete("id = 0")
    marked.delete("id < 2")
    for of in (keyed, marked, parts):
        assert of.scan().count() == of.scan().to_arrow().num_rows
    keyed.compact(full=True)
    assert keyed.scan().count() == 7
    assert parts.scan(filter="city in ('B1', 'B2')").count() == 2
    assert catalog.table("shop.parts$snapshots").scan().count() == 1


def test_a_condition_comes_before_a_limit(table: Table) -> None:
    with pytest.raises(BadInput, match="put the condition before the limit"):
        table.scan(limit=3).where("id > 1")
    assert table.scan(limit=3).select(["id"]).limit(9).to_arrow().num_rows == 3
    assert table.scan().head(4).num_rows == 4
    assert sum(len(split.files) for split in table.scan(limit=11).splits()) == 2


def test_conditions_of_an_engine_apply_to_the_rows_of_a_limited_read(table: Table) -> None:
    limited = table.scan(limit=10).to_duckdb("t")
    assert limited.execute("select count(*) from t where id >= 0").fetchall() == [(10,)]
    assert limited.execute("select count(*) from t where id > 100").fetchall() == [(0,)]


def test_fields_of_a_row_are_columns(table: Table) -> None:
    scan = table.scan(columns=["address.zip", "id"], filter="address.zip = 3 and id < 8")
    assert scan.schema == pa.schema([("address.zip", pa.int32()), ("id", pa.int64())])
    assert scan.to_arrow().to_pylist() == [{"address.zip": 3, "id": 3}, {"address.zip": 3, "id": 7}]
    assert scan.select(["address.zip"]).to_arrow().column_names == ["address.zip"]
    assert (scan.count(), scan.head(1).num_rows) == (2, 1)
    found = table.scan(columns=["address.zip"]).to_duckdb("t")
    assert found.execute('select count(*) from t where "address.zip" = 3').fetchall() == [(7,)]
    assert scan.to_polars().select(pl.col("address.zip").sum()).collect().item() == 6
    with pytest.raises(BadInput, match="put the condition into scan"):
        scan.where("id > 1")
    with pytest.raises(BadInput, match=r"no column 'address\.street'"):
        table.scan(columns=["address.street"])
    with pytest.raises(BadInput, match="names a column twice"):
        table.scan(columns=["address.zip", "address.zip"])


def test_a_scan_says_what_it_reads(table: Table) -> None:
    text = repr(table.scan(columns=["id"], filter="id > 10 and city like 'B%'", limit=2))
    assert text.startswith(
        """Scan(shop.orders, snapshot=3, filter="id > 10 AND city LIKE 'B%'", columns=[id], limit=2,"""
    )
    assert "reads 2 files, " in text


def test_notebooks_get_escaped_texts(catalog: Catalog) -> None:
    table = catalog.create_table("shop.texts", pa.schema([("<b>", pa.string())]))
    table.append([{"<b>": "<script>alert(1)</script>"}, {"<b>": None}, {"<b>": "x" * 500}])
    for html in (table._repr_html_(), table.scan()._repr_html_()):
        assert "<script>" not in html
        assert "<b>" not in html
        assert "&lt;script&gt;" in html
        assert "<i>null</i>" in html
        assert "x" * 101 not in html


def test_a_missing_package_is_named_with_its_extra(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.frames.readable.find_spec", lambda name: None)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("pandas", table.scan().to_pandas),
        ("polars", table.scan().to_polars),
        ("duckdb", lambda: table.scan().to_duckdb("t")),
    ]
    for package, call in calls:
        with pytest.raises(tidelake.UnsupportedFeature, match=rf"pip install 'tidelake\[{package}\]'"):
            call()
    with pytest.raises(tidelake.UnsupportedFeature, match=r"tidelake\[sql\]"):
        check_installed("duckdb", "tidelake sql", "sql")


def test_a_scan_is_what_frames_ask_for(table: Table) -> None:
    found: Readable = table.scan()
    assert found.schema == table.schema
    assert isinstance(table.scan().to_pandas(), pd.DataFrame)


UNFINISHED = """\
import duckdb, pyarrow as pa, tidelake, tidelake.duckdb
catalog = tidelake.open_catalog("memory://unfinished/lake")
catalog.create_database("d")
columns = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
table = catalog.create_table("d.t", columns, primary_key=["k"], options={"bucket": "1"})
table.upsert(pa.table({"k": range(300_000), "v": [str(k) for k in range(300_000)]}))
connection = duckdb.connect()
%s
print(connection.execute("select a.k, b.v from d.t a join d.t b using (k)").fetchone() is not None)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "views",
    [
        pytest.param("tidelake.duckdb.attach(connection, catalog)", id="attach"),
        pytest.param(
            "connection.execute('create schema d'); table.scan().to_duckdb('t', connection); "
            "connection.execute('create view d.t as from temp.t')",
            id="to_duckdb",
        ),
    ],
)
def test_a_script_may_end_with_a_result_that_it_has_not_read_to_the_end(views: str) -> None:
    """Threads of DuckDB wait for rows from Python then: the process hung or was aborted."""
    for _ in range(2):
        script = [sys.executable, "-c", UNFINISHED % views]
        run = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
        assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr
