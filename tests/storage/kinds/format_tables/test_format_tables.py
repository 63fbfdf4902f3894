"""A format table in a REST catalog: created, written, overwritten, read, and its refused operations."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.rest_catalog import RestCatalogServer
from tests.support.s3_server import S3Server
from tidelake.storage.kinds.format_tables import format_table_scan, partition_directories

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.date32()), ("hour", pa.int32())])
CSV = {"type": "format-table", "file.format": "csv"}


@pytest.fixture
def lake(rest_catalog: RestCatalogServer) -> tidelake.Catalog:
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    return lake


def new_table(lake: tidelake.Catalog, **options: str) -> tidelake.Table:
    return lake.create_table("shop.visits", SCHEMA, partition_by=["day", "hour"], options={**CSV, **options})


def rows(*given: tuple[int, str, str | None, int | None]) -> pa.Table:
    columns = [pa.array(column) for column in zip(*given, strict=True)]
    return pa.table([column.cast(f.type) for column, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def write(table: tidelake.Table, *given: tuple[int, str, str | None, int | None], overwrite: Any = None) -> None:
    with table.writer(overwrite=overwrite) as writer:
        writer.write(rows(*given))
        writer.commit()


def ids(table: tidelake.Table, condition: Any = None) -> list[int]:
    return sorted(table.scan(columns=["id"], filter=condition).to_arrow().column("id").to_pylist())


FOUR = [(1, "a", "2026-05-01", 7), (2, "b", "2026-05-01", 8), (3, "c", "2026-05-02", 7), (4, "d", None, None)]


def test_rows_become_visible_with_the_commit(lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    with table.writer() as writer:
        writer.write(rows(*FOUR))
        assert ids(table) == []
        writer.commit()
        assert ids(table) == [1, 2, 3, 4]
        writer.write(rows(*FOUR))
        writer.close()
    assert ids(table) == [1, 2, 3, 4]  # the rest was dropped
    assert not [path for path in Path(table.location).rglob("*") if path.name.startswith((".", "_"))]


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        pytest.param(tidelake.col("day") == "2026-05-01", ["day=20574/hour=7", "day=20574/hour=8"], id="a partition"),
        pytest.param(
            (tidelake.col("hour") > 7) & (tidelake.col("id") == 2), ["day=20574/hour=8"], id="a partition and a column"
        ),
        pytest.param(
            tidelake.col("day").is_null(), ["day=__DEFAULT_PARTITION__/hour=__DEFAULT_PARTITION__"], id="NULL"
        ),
        pytest.param((tidelake.col("hour") == 8) | (tidelake.col("id") == 1), None, id="not of partitions alone"),
    ],
)
def test_only_partitions_that_may_match_are_read(
    condition: Any, read: list[str] | None, lake: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(lake)
    write(table, *FOUR)
    listed: list[str] = []

    def noted(context: Any, location: str) -> list[str]:
        listed.append(location.removeprefix(f"{table.location}/"))
        return partition_directories.list_files(context, location)

    monkeypatch.setattr(format_table_scan, "list_files", noted)
    expected = table.scan().to_arrow()
    assert len(listed) == 4
    listed.clear()
    found = table.scan(filter=condition).to_arrow()
    assert found.num_rows == expected.filter(condition.expression(SCHEMA)).num_rows
    assert read is None or listed == read


@pytest.mark.parametrize(
    ("overwrite", "given", "left"),
    [
        pytest.param(True, [(9, "z", "2026-05-01", 7)], [2, 3, 4, 9], id="the partitions that rows are written to"),
        pytest.param({"day": "2026-05-01"}, [(9, "z", "2026-05-01", 9)], [3, 4, 9], id="the first level"),
        pytest.param({"day": "2026-05-01", "hour": 7}, [(9, "z", "2026-05-01", 7)], [2, 3, 4, 9], id="one partition"),
        pytest.param({"hour": 7}, [(9, "z", "2026-05-09", 7)], [2, 4, 9], id="the second level alone"),
        pytest.param({"day": None}, [(9, "z", None, 1)], [1, 2, 3, 9], id="NULL"),
    ],
)
def test_an_overwrite_replaces_the_named_partitions(
    overwrite: Any, given: list[Any], left: list[int], lake: tidelake.Catalog
) -> None:
    table = new_table(lake)
    write(table, *FOUR)
    write(table, *given, overwrite=overwrite)
    assert ids(table) == left


def test_an_overwrite_of_a_table_without_partitions_replaces_all(lake: tidelake.Catalog) -> None:
    table = lake.create_table("shop.plain", SCHEMA, options={"type": "format-table"})
    write(table, *FOUR)
    write(table, FOUR[0], overwrite=True)
    assert ids(table) == [1]
    with table.writer(overwrite=True) as writer:
        writer.commit()
    assert ids(table) == []


def test_a_row_outside_of_the_overwritten_partition_is_refused(lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    write(table, *FOUR)
    with pytest.raises(tidelake.BadInput, match="hour = 7, but a row is in another partition"):
        write(table, (9, "z", "2026-05-01", 8), overwrite={"hour": 7})
    assert ids(table) == [1, 2, 3, 4]


@pytest.mark.parametrize("overwrite", [{"day": datetime(2026, 5, 1, 12)}, {"day": 20574}, {"hour": 7.5}])
def test_a_value_that_is_not_exactly_a_partition_s_is_refused(overwrite: Any, lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    write(table, *FOUR)
    with pytest.raises(tidelake.BadInput, match="is not a valid value of partition column"):
        write(table, (9, "z", "2026-05-01", 7), overwrite=overwrite)
    assert ids(table) == [1, 2, 3, 4]


def test_a_crash_while_an_overwrite_commits_loses_no_row(
    lake: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(lake)
    write(table, *FOUR)
    with table.writer(overwrite=True) as writer:
        writer.write(rows((9, "z", "2026-05-01", 7)))
        monkeypatch.setattr(type(table.context.io), "delete_all", _crash)
        with pytest.raises(OSError, match="power"):
            writer.commit()
    monkeypatch.undo()
    assert ids(table) == [1, 2, 3, 4, 9]
    write(table, (9, "z", "2026-05-01", 7), overwrite=True)
    assert ids(table) == [2, 3, 4, 9]


def _crash(*_: object) -> None:
    raise OSError("no power")


@pytest.mark.parametrize("format_name", ["csv", "parquet"])
def test_on_an_object_store_rows_become_visible_with_the_commit(
    format_name: str, s3_server: S3Server, rest_catalog: RestCatalogServer
) -> None:
    bucket = s3_server.new_bucket()
    lake = tidelake.open_catalog("lake", **{**rest_catalog.options, **s3_server.options})
    lake.create_database("shop")
    options = {"type": "format-table", "file.format": format_name, "path": f"s3://{bucket}/visits"}
    table = lake.create_table("shop.visits", SCHEMA, partition_by=["day", "hour"], options=options)
    with table.writer() as writer:
        writer.write(rows(*FOUR))
        assert ids(table) == []
        writer.commit()
    write(table, (9, "z", "2026-05-01", 7), overwrite=True)
    assert ids(table) == [2, 3, 4, 9]
    assert ids(table, tidelake.col("hour") == 8) == [2]


def test_rows_refused_by_the_format_end_the_writer_without_files(lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    with table.writer() as writer:
        with pytest.raises(tidelake.BadInput, match="a line break"):
            writer.write(rows((1, "a", "2026-05-01", 7), (2, "two\nlines", "2026-05-02", 8)))
        with pytest.raises(tidelake.BadInput, match="is closed"):
            writer.commit()
    assert ids(table) == []


def test_files_roll_at_their_target_row_count(lake: tidelake.Catalog) -> None:
    table = lake.create_table("shop.plain", SCHEMA, options={**CSV, "target-file-row-num": "3"})
    write(table, *FOUR, *FOUR)
    assert len(list(Path(table.location).glob("data-*.csv"))) == 3
    assert ids(table) == sorted([1, 2, 3, 4] * 2)


def test_staging_files_of_writers_are_not_read(lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    write(table, *FOUR)
    aside = Path(table.location, "day=20574", "hour=7", "_temporary")
    aside.mkdir()
    (aside / "data.csv").write_text("9,z\n")
    Path(table.location, "day=20574", "hour=7", ".hidden.csv").write_text("9,z\n")
    Path(table.location, "_SUCCESS").touch()
    assert ids(table) == [1, 2, 3, 4]


def test_a_directory_with_an_invalid_partition_value_raises(lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    Path(table.location, "day=2026-05-01", "hour=noon").mkdir(parents=True)
    with pytest.raises(tidelake.CorruptFile, match="partition column 'hour', INT, found 'noon'"):
        ids(table)


@pytest.mark.parametrize("word", ["", "  ", "__DEFAULT_PARTITION__"])
def test_a_partition_value_that_reads_as_null_is_refused(word: str, lake: tidelake.Catalog) -> None:
    table = lake.create_table("shop.words", pa.schema([("id", pa.int64()), ("w", pa.string())]), partition_by=["w"],
                              options=CSV)  # fmt: skip
    with table.writer() as writer, pytest.raises(tidelake.BadInput, match="means NULL"):
        writer.write(pa.table({"id": [1], "w": [word]}))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"file.format": "avro"}, "expected one of csv, json", id="a format that Java has none of"),
        pytest.param({"file.format": "mosaic"}, "mosaic", id="a format that we have none of"),
        pytest.param({"bucket": "2"}, "option bucket does not apply to a format table", id="an option of snapshots"),
        pytest.param({"csv.field-delimiter": "||"}, "expected one character", id="a delimiter of two characters"),
        pytest.param({"csv.quote-character": "\\"}, "must differ", id="quote and escape alike"),
        pytest.param({"csv.line-delimiter": ""}, "is empty", id="no line's end"),
        pytest.param({"file.compression": "snappy"}, "Hadoop's framing", id="a codec of Hadoop"),
        pytest.param({"file.compression": "brotli"}, "expected one of none, gzip", id="no codec"),
        pytest.param({"metastore.partitioned-table": "true"}, "partitions are read from", id="a list of partitions"),
        pytest.param({"format-table.commit-hive-sync-url": "thrift://x"}, "to a metastore", id="a metastore beside"),
        pytest.param({"primary-key": "id"}, "a primary key", id="a primary key"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, str], reason: str, lake: tidelake.Catalog) -> None:
    with pytest.raises((tidelake.BadInput, tidelake.UnsupportedFeature), match=reason):
        new_table(lake, **options)
    assert lake.list_tables("shop") == []


@pytest.mark.parametrize(
    ("format_name", "column", "reason"),
    [
        pytest.param("csv", pa.list_(pa.int32()), "the format has no representation of it", id="a list in csv"),
        pytest.param("json", pa.timestamp("us", "UTC"), "in the zone of its process", id="a zone in json"),
        pytest.param("text", pa.int32(), "one column, a STRING", id="a number in text"),
    ],
)
def test_unsupported_column_types_are_refused(
    format_name: str, column: pa.DataType, reason: str, lake: tidelake.Catalog
) -> None:
    with pytest.raises((tidelake.BadInput, tidelake.UnsupportedFeature), match=reason):
        lake.create_table(
            "shop.t", pa.schema([("a", column)]), options={"type": "format-table", "file.format": format_name}
        )


def test_operations_that_need_snapshots_are_refused(lake: tidelake.Catalog) -> None:
    table = new_table(lake)
    for call in (table.compact, table.expire, table.rollback, lambda: table.changes(start=1)):
        with pytest.raises(tidelake.BadInput, match="is a format table"):
            call()
    with pytest.raises(tidelake.BadInput, match="is a format table"):
        lake.alter_table("shop.visits", [tidelake.DropColumn("v")])
    with pytest.raises(tidelake.BadInput, match="is a format table"):
        lake.clone_table(table, "shop.copy")
    with pytest.raises(tidelake.BadInput, match="can only be read in its current state; leave out snapshot"):
        table.scan(snapshot=1)
    assert (table.snapshots(), table.tags(), table.branches()) == ([], {}, [])


@pytest.mark.parametrize("metastore", ["filesystem", "jdbc"])
def test_catalogs_that_keep_no_columns_refuse_format_tables(metastore: str, tmp_path: Path) -> None:
    options = {} if metastore == "filesystem" else {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db"}
    lake = tidelake.open_catalog(str(tmp_path / "lake"), **options)
    lake.create_database("shop")
    with pytest.raises(tidelake.UnsupportedFeature, match="metastore hive or rest"):
        lake.create_table("shop.t", SCHEMA, options=CSV)


async def test_async_callers_scan_and_write_the_same(rest_catalog: RestCatalogServer) -> None:
    catalog = await tidelake.aio.open_catalog("lake", **rest_catalog.options)
    await catalog.create_database("shop")
    table = await catalog.create_table("shop.visits", SCHEMA, partition_by=["day", "hour"], options=CSV)
    async with table.writer(overwrite=True) as writer:
        await writer.write(rows(*FOUR))
        await writer.commit()
    found = await (await table.scan(filter=tidelake.col("hour") == 7)).to_arrow()
    assert found.column("id").to_pylist() == [1, 3]
