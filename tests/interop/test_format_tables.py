"""Java uses Tidelake's format tables and Tidelake uses Java's: in a REST catalog and in a Hive metastore."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.hive_metastore import HiveLake
from tests.support.java_oracle import JavaOracle
from tests.support.rest_catalog import RestCatalogServer
from tidelake.storage.model.types import DataField, parse_type

NAME = "shop.visits"
TYPES = {
    "id": "BIGINT",
    "tiny": "TINYINT",
    "ok": "BOOLEAN",
    "ratio": "DOUBLE",
    "share": "FLOAT",
    "amount": "DECIMAL(12, 3)",
    "v": "STRING",
    "raw": "BYTES",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "tiny": -128,
        "ok": True,
        "ratio": 0.1,
        "share": 1.5,
        "amount": "-1234.500",
        "v": "plain",
        "raw": {"hex": "00ff10"},
        "day": "2024-02-29",
        "at": "2024-02-29T23:59:59.123456",
    },
    {
        "id": -(2**63),
        "tiny": 127,
        "ok": False,
        "ratio": 1e300,
        "share": -0.25,
        "amount": "0.001",
        "v": ' he said "yes", \\n and \\\\ went; ünïcode ',
        "raw": {"hex": "41"},
        "day": "1969-12-31",
        "at": "1970-01-01T00:00:00.000001",
    },
    dict.fromkeys(TYPES),
]
PARTITIONS = {"country": "STRING", "hour": "INT"}
PLACES: list[dict[str, Any]] = [
    {"country": "NL", "hour": 7},
    {"country": "a/b=c %", "hour": -1},
    {"country": None, "hour": None},
]
COLUMNS = [{"name": name, "type": text} for name, text in {**TYPES, **PARTITIONS}.items()]
FIELDS = [DataField(0, name, parse_type(text)) for name, text in {**TYPES, **PARTITIONS}.items()]
ALL = [{**row, **place} for row, place in zip(ROWS, PLACES, strict=True)]
TEXT: dict[str, dict[str, str]] = {"csv": {"csv.null-literal": "NULL"}}
FORMATS = pytest.mark.parametrize("format_name", ["csv", "json", "parquet", "orc"])


def options_of(format_name: str, **more: str) -> dict[str, str]:
    return {"type": "format-table", "file.format": format_name, **TEXT.get(format_name, {}), **more}


def as_json(value: Any) -> Any:
    """A value as the oracle writes it."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case Decimal():
            return str(value)
        case bool() | int() | float() | str() | None:
            return value
    text = value.isoformat()
    return text if "T" not in text or "." in text else text + ".000000"


def ours(table: tidelake.Table, **scan: Any) -> list[dict[str, Any]]:
    rows = table.scan(**scan).to_arrow().to_pylist()
    return by_id([{name: as_json(value) for name, value in row.items()} for row in rows])


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"] is None, row["id"]))


def as_java_keeps(rows: list[dict[str, Any]], format_name: str) -> list[dict[str, Any]]:
    """Java's CSV writer does not escape escape characters, and its reader interprets them."""
    if format_name != "csv":
        return rows
    return [
        {**row, "v": None if row["v"] is None else row["v"].replace("\\n", "n").replace("\\\\", "\\")} for row in rows
    ]


def arrow_rows(table: tidelake.Table, rows: list[dict[str, Any]]) -> pa.Table:
    columns = []
    for field in table.schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_binary(field.type):
            values = [None if v is None else bytes.fromhex(v["hex"]) for v in values]
        elif pa.types.is_decimal(field.type):
            values = [None if v is None else Decimal(v) for v in values]
        kind = pa.string() if pa.types.is_temporal(field.type) else field.type
        columns.append(pa.array(values, kind).cast(field.type))
    return pa.table(columns, table.schema)


def write(table: tidelake.Table, rows: list[dict[str, Any]], overwrite: Any = None) -> None:
    with table.writer(overwrite=overwrite) as writer:
        writer.write(arrow_rows(table, rows))
        writer.commit()


@FORMATS
def test_java_and_tidelake_read_each_others_rows(
    format_name: str, rest_catalog: RestCatalogServer, java_oracle: JavaOracle
) -> None:
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    table = lake.create_table(NAME, FIELDS, partition_by=list(PARTITIONS), options=options_of(format_name))
    write(table, ALL)
    assert by_id(java_oracle.read(java, NAME)) == by_id(ALL)
    assert lake.list_tables("shop") == ["visits"]
    lake.drop_table(NAME)

    java_oracle.create(java, "shop.theirs", COLUMNS, partition_keys=list(PARTITIONS), options=options_of(format_name))
    java_oracle.write_format_table(java, "shop.theirs", ALL)
    theirs = lake.table("shop.theirs")
    assert ours(theirs) == by_id(java_oracle.read(java, "shop.theirs")) == by_id(as_java_keeps(ALL, format_name))
    assert ours(theirs, columns=["id", "hour"], filter=tidelake.col("country") == "NL") == [{"id": 1, "hour": 7}]


def test_an_overwrite_by_either_replaces_partitions_for_both(
    rest_catalog: RestCatalogServer, java_oracle: JavaOracle
) -> None:
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    table = lake.create_table(NAME, FIELDS, partition_by=list(PARTITIONS), options=options_of("csv"))
    write(table, ALL)
    first = {**ROWS[0], **PLACES[0]}
    java_oracle.write_format_table(java, NAME, [{**first, "id": 10}], overwrite={"country": "NL", "hour": "7"})
    write(table, [{**ROWS[1], **PLACES[1], "id": 20}], overwrite=True)
    expected = by_id([{**first, "id": 10}, {**ROWS[1], **PLACES[1], "id": 20}, ALL[2]])
    assert ours(table) == by_id(java_oracle.read(java, NAME)) == expected
    write(table, [{**first, "id": 30}], overwrite={"country": "NL"})
    java_oracle.write_format_table(java, NAME, [{**ALL[2], "id": 40}], overwrite={})
    expected = by_id([{**first, "id": 30}, {**ROWS[1], **PLACES[1], "id": 20}, {**ALL[2], "id": 40}])
    assert ours(table) == by_id(java_oracle.read(java, NAME)) == expected


@pytest.mark.parametrize(
    ("format_name", "more"),
    [
        pytest.param("csv", {"csv.field-delimiter": ";", "csv.include-header": "true"}, id="csv with a header"),
        pytest.param("csv", {"csv.quote-character": "'", "csv.escape-character": "!"}, id="other quotes"),
        pytest.param("csv", {"csv.line-delimiter": "|#\n"}, id="another end of lines"),
        pytest.param("json", {"json.line-delimiter": "|#\n"}, id="another end of objects"),
        pytest.param("csv", {"file.compression": "gzip"}, id="csv in gzip"),
        pytest.param("json", {"format-table.file.compression": "bzip2"}, id="json in bzip2"),
        pytest.param("json", {"file.compression": "deflate"}, id="json in deflate"),
        pytest.param("parquet", {"file.compression": "zstd"}, id="parquet in zstd"),
        pytest.param("orc", {"format-table.partition-path-only-value": "true"}, id="values alone in paths"),
        pytest.param("csv", {"partition.default-name": "nothing"}, id="another name of NULL"),
    ],
)
def test_options_have_the_same_meaning_for_both(
    format_name: str, more: dict[str, str], rest_catalog: RestCatalogServer, java_oracle: JavaOracle
) -> None:
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    options = options_of(format_name, **more)
    table = lake.create_table(NAME, FIELDS, partition_by=list(PARTITIONS), options=options)
    write(table, ALL[:2])
    java_oracle.write_format_table(java, NAME, ALL[2:])
    assert ours(table) == by_id(java_oracle.read(java, NAME)) == by_id(ALL)
    files = [path.name for path in rest_catalog.folder.rglob("*") if path.is_file() and path.name[0] not in "._"]
    assert len({name.partition(".")[2] for name in files}) == 1, "a file is named by its format and compression"


@pytest.mark.parametrize(
    "data_type",
    ["ARRAY<INT>", "MAP<STRING, BIGINT>", "ROW<a INT, b ARRAY<STRING>>", "ARRAY<ROW<x DOUBLE, y STRING>>"],
)
@pytest.mark.parametrize("format_name", ["json", "parquet"])
def test_nested_values_are_the_same_for_both(
    data_type: str, format_name: str, rest_catalog: RestCatalogServer, java_oracle: JavaOracle
) -> None:
    samples: dict[str, list[Any]] = {
        "ARRAY<INT>": [[1, None, -3], [], None],
        "MAP<STRING, BIGINT>": [[["a", 1], ["b\"'", None]], [], None],
        "ROW<a INT, b ARRAY<STRING>>": [{"a": 1, "b": ["x", None]}, {"a": None, "b": None}, None],
        "ARRAY<ROW<x DOUBLE, y STRING>>": [[{"x": 0.5, "y": "é"}, {"x": None, "y": None}], [], None],
    }
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    fields = [DataField(0, "id", parse_type("INT")), DataField(0, "v", parse_type(data_type))]
    table = lake.create_table(NAME, fields, options=options_of(format_name))
    rows = [{"id": n, "v": value} for n, value in enumerate(samples[data_type])]
    given = [{**row, "v": [tuple(e) for e in row["v"]]} if data_type[0] == "M" and row["v"] else row for row in rows]
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(given, table.schema))
        writer.commit()
    assert by_id(java_oracle.read(java, NAME)) == rows
    java_oracle.write_format_table(java, NAME, [{**row, "id": row["id"] + 10} for row in rows])
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["v"] for row in found] == [row["v"] for row in given] * 2


@pytest.mark.parametrize("more", [{}, {"text.line-delimiter": "|#"}], ids=["lines", "another end of lines"])
def test_lines_of_text_are_the_same_for_both(
    more: dict[str, str], rest_catalog: RestCatalogServer, java_oracle: JavaOracle
) -> None:
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    table = lake.create_table(NAME, pa.schema([("line", pa.string())]), options=options_of("text", **more))
    with table.writer() as writer:
        writer.write(pa.table({"line": ["one", "", ' two, "three" ']}))
        writer.commit()
    java_oracle.write_format_table(java, NAME, [{"line": "theirs"}])
    expected = ["", ' two, "three" ', "one", "theirs"]
    assert sorted(row["line"] for row in java_oracle.read(java, NAME)) == expected
    assert sorted(table.scan().to_arrow().column("line").to_pylist()) == expected


@pytest.mark.interop
@FORMATS
def test_format_tables_in_a_hive_metastore_are_visible_to_both(
    format_name: str, hive_lake: HiveLake, java_with_hive: JavaOracle
) -> None:
    java, lake = hive_lake.of_java, hive_lake.open()
    lake.create_database(hive_lake.database)
    name, theirs = hive_lake.name("visits"), hive_lake.name("theirs")
    table = lake.create_table(name, FIELDS, partition_by=list(PARTITIONS), options=options_of(format_name))
    write(table, ALL)
    java_with_hive.create(java, theirs, COLUMNS, partition_keys=list(PARTITIONS), options=options_of(format_name))
    java_with_hive.write_format_table(java, theirs, ALL)
    assert lake.list_tables(hive_lake.database) == ["theirs", "visits"]
    assert sorted(row["table"] for row in java_with_hive.command("tables", java, name)) == ["theirs", "visits"]
    for table_name in (name, theirs):
        expected = by_id(ALL if table_name == name else as_java_keeps(ALL, format_name))
        assert ours(lake.table(table_name)) == by_id(java_with_hive.read(java, table_name)) == expected
        lake.drop_table(table_name)
    lake.drop_database(hive_lake.database)
