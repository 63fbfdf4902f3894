"""Which files Spark's own reader may read, tested without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import BadInput
from tidelake.spark.data_source_options import ReadOptions
from tidelake.spark.native.native_files import has_unsafe_pushdown, is_native, native_files, without_files
from tidelake.spark.native.parquet_frame import spark_path
from tidelake.spark.native.pinned_read import PINNED_READ, PinnedRead
from tidelake.storage.model.types import parse_type

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    return catalog


def put(table: tidelake.Table, ids: range, **columns: Any) -> None:
    with table.writer() as writer:
        rows = {"id": list(ids), "n": list(ids)} | {name: [value] * len(ids) for name, value in columns.items()}
        writer.write(pa.table(rows, table.schema))
        writer.commit()


def made(
    lake: tidelake.Catalog, name: str = "shop.t", schema: pa.Schema = SCHEMA, options: dict[str, str] | None = None
) -> tidelake.Table:
    key = ["id"] if "bucket" in (options or {}) else []
    return lake.create_table(name, schema, primary_key=key, options=options or {})


def counts(scan: tidelake.Scan) -> tuple[int, int]:
    """Files that Spark's reader reads, and others."""
    native = native_files(scan, any_store=False)
    rest = without_files(scan.splits(), native)
    others = [file for split in rest for file in split.files]
    assert len(native) + len(others) == sum(len(split.files) for split in scan.splits())
    return len(native), len(others)


# ---------------------------------------------------------------- files


def test_compacted_files_of_a_keyed_table_are_native(lake: tidelake.Catalog) -> None:
    table = made(lake, options={"bucket": "1", "write-only": "true"})
    put(table, range(10))
    assert counts(table.scan()) == (0, 1), "a file of level 0 may hold deletes that nobody counted"
    put(table, range(10))
    assert counts(table.scan()) == (0, 2)
    table.compact(full=True)
    assert counts(table.scan()) == (1, 0)
    put(table, range(20, 30))
    assert counts(table.scan()) == (1, 1), "no key of the new file lies in the old one"
    put(table, range(5))
    assert counts(table.scan()) == (0, 3)


def test_files_with_deletes_are_not_native(lake: tidelake.Catalog) -> None:
    table = made(lake, options={"bucket": "1", "num-sorted-run.compaction-trigger": "2"})
    with table.writer() as writer:
        writer.write(pa.table({"id": [1, 2], "n": [1, 2], "_VALUE_KIND": pa.array([0, 3], pa.int8())}))
        writer.commit()
    assert counts(table.scan()) == (0, 1)


def test_files_of_an_append_table_are_native_until_rows_are_deleted(lake: tidelake.Catalog) -> None:
    table = made(lake, options={"deletion-vectors.enabled": "true"})
    put(table, range(10))
    put(table, range(10, 20))
    assert counts(table.scan()) == (2, 0)
    table.delete(tidelake.col("id") == 3)
    assert counts(table.scan()) == (1, 1)


@pytest.mark.parametrize("form", ["orc", "avro"])
def test_files_of_other_formats_are_not_native(lake: tidelake.Catalog, form: str) -> None:
    table = made(lake, options={"file.format": form})
    put(table, range(10))
    assert counts(table.scan()) == (0, 1)


def test_a_file_with_a_name_hidden_from_spark_is_not_native(lake: tidelake.Catalog) -> None:
    for number, prefix in enumerate(("_data-", ".data-", "data-")):
        table = made(lake, f"shop.t{number}", options={"data-file.prefix": prefix})
        put(table, range(10))
        assert counts(table.scan()) == ((1, 0) if prefix == "data-" else (0, 1))


def test_files_of_another_schema_are_native_if_the_read_columns_are_equal(
    lake: tidelake.Catalog,
) -> None:
    put(made(lake), range(10))
    lake.alter_table("shop.t", [tidelake.SetOption("snapshot.num-retained.max", "99")])
    assert counts(lake.table("shop.t").scan()) == (1, 0)
    lake.alter_table("shop.t", [tidelake.AddColumn("text", pa.string())])
    assert counts(lake.table("shop.t").scan()) == (0, 1)
    assert counts(lake.table("shop.t").scan(columns=["id", "n"])) == (1, 0)
    put(lake.table("shop.t"), range(10), text="a")
    assert counts(lake.table("shop.t").scan()) == (1, 1)
    lake.alter_table("shop.t", [tidelake.RenameColumn("n", "m")])
    assert counts(lake.table("shop.t").scan(columns=["id"])) == (2, 0)
    assert counts(lake.table("shop.t").scan(columns=["m"])) == (0, 2)


def test_files_with_columns_that_differ_only_in_case_are_not_native(lake: tidelake.Catalog) -> None:
    table = made(lake, schema=pa.schema([("id", pa.int64()), ("n", pa.int64()), ("N", pa.int64())]))
    put(table, range(10), N=1)
    assert counts(table.scan(columns=["id"])) == (0, 1), "Spark looks for them in the whole file"


def test_files_of_row_id_groups_are_not_native(lake: tidelake.Catalog) -> None:
    table = made(lake, options={"data-evolution.enabled": "true", "row-tracking.enabled": "true"})
    put(table, range(10))
    assert counts(table.scan()) == (0, 1)


def test_files_in_process_memory_are_not_native() -> None:
    catalog = tidelake.open_catalog("memory://native/lake")
    catalog.create_database("shop")
    table = made(catalog)
    put(table, range(10))
    assert native_files(table.scan(), any_store=True) == {}


def test_migrated_files_are_not_native(lake: tidelake.Catalog, tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    folder = tmp_path / "foreign"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "n": [1, 2]}), folder / "data-1.parquet")
    lake.migrate_table(str(folder), "shop.migrated")
    assert counts(lake.table("shop.migrated").scan()) == (0, 1)


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("kind", "native"),
    [
        ("INT", True),
        ("CHAR(3)", True),
        ("BINARY(3)", True),
        ("DECIMAL(38, 10)", True),
        ("TIMESTAMP(0)", True),
        ("TIMESTAMP(6)", True),
        ("TIMESTAMP(7)", False),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", False),
        ("TIME(3)", False),
        ("VARIANT", False),
        ("BLOB", False),
        ("ARRAY<DOUBLE>", True),
        ("ARRAY<TIME(0)>", False),
        ("MAP<STRING, ARRAY<INT>>", True),
        ("MAP<STRING, TIMESTAMP(9)>", False),
        ("MULTISET<INT>", False),
        ("ROW<`a` INT, `b` ROW<`c` STRING>>", True),
        ("ROW<`a` INT, `b` ROW<`c` FLOAT>>", False),
        ("ROW<`a` ARRAY<FLOAT>>", True),
        ("ROW<`at` TIMESTAMP(3) WITH LOCAL TIME ZONE>", False),
    ],
)
def test_types_that_spark_reads_identically_are_native(kind: str, native: bool) -> None:
    assert is_native(parse_type(kind)) is native


@pytest.mark.parametrize(
    ("kind", "misleads"),
    [
        ("DOUBLE", True),
        ("FLOAT", True),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", True),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", False),
        ("TIMESTAMP(3)", False),
        ("DECIMAL(3, 1)", False),
        ("ARRAY<DOUBLE>", False),
    ],
)
def test_filters_on_some_types_are_not_pushed_to_parquet(kind: str, misleads: bool) -> None:
    assert has_unsafe_pushdown(parse_type(kind)) is misleads


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/lake/dt=a b%3A/x.parquet", "file:///lake/dt=a b%3A/x.parquet"),
        ("file:/lake/x.parquet", "file:///lake/x.parquet"),
        ("file:///lake/x.parquet", "file:///lake/x.parquet"),
        ("/lake/[a]{b}*?\\/x.parquet", "file:///lake/\\[a\\]\\{b\\}\\*\\?\\\\/x.parquet"),
        ("s3://bucket/lake/x.parquet", "s3a://bucket/lake/x.parquet"),
        ("gs://bucket/lake/x.parquet", "gs://bucket/lake/x.parquet"),
    ],
)
def test_spark_does_not_read_a_path_as_a_glob(path: str, given: str) -> None:
    assert spark_path(path) == given


# ---------------------------------------------------------------- what is left, in another process


def test_the_rest_of_a_read_is_restored_from_its_text(lake: tidelake.Catalog, tmp_path: Path) -> None:
    table = made(lake, options={"bucket": "1", "write-only": "true"})
    put(table, range(10))
    table.compact(full=True)
    put(table, range(20, 30))
    scan = table.scan()
    pinned = PinnedRead.of(scan, native_files(scan, any_store=False), any_store=False)
    put(table, range(20))
    lake.alter_table("shop.t", [tidelake.RenameColumn("n", "m")])
    given = {"warehouse": str(tmp_path / "lake"), "table": "shop.t", PINNED_READ: pinned.to_text()}
    options = ReadOptions.of(given)
    assert options.pinned == pinned
    again = options.scan()
    assert again.schema == SCHEMA
    assert again.snapshot_id == scan.snapshot_id
    left = pinned.rest(again.context, again.splits())
    assert sorted(again.to_arrow(left).column("id").to_pylist()) == list(range(20, 30))
    filtered = again.where(tidelake.col("id") < 5)
    assert pinned.rest(again.context, filtered.splits()) == []


def test_a_read_split_differently_by_another_process_raises(lake: tidelake.Catalog) -> None:
    table = made(lake, options={"bucket": "1"})
    put(table, range(10))
    table.compact(full=True)
    scan = table.scan()
    pinned = PinnedRead.of(scan, [(b"", 0, "another.parquet")], any_store=False)
    with pytest.raises(BadInput, match=r"snapshot 2 are no longer divided.*Call tidelake\.spark\.read again"):
        pinned.rest(scan.context, scan.splits())


@pytest.mark.parametrize("text", ["1", "{}", "[]", "x"])
def test_an_invalid_read_text_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=f"option {PINNED_READ}"):
        ReadOptions.of({"warehouse": "w", "table": "a.b", PINNED_READ: text})
