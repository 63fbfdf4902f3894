"""System tables of metadata: their rows, pushed-down conditions, and when they are read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tidelake import col
from tidelake.storage.kinds.system_tables.by_name import SYSTEM_TABLES
from tidelake.storage.kinds.system_tables.references import iso_duration
from tidelake.storage.kinds.system_tables.row_text import object_row_texts, sql_row_texts
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.types import DataField, arrow_type, parse_type

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), False), ("v", pa.string())]
)


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    """Three commits; the last adds a row in another day."""
    catalog = tidelake.open_catalog(str(tmp_path), **{"catalog-options-table.enabled": "true"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table(
        "db.t", SCHEMA, primary_key=["id", "day"], partition_by=["day"], options=options, comment="of a test"
    )
    for commit, day in enumerate(["mon", "mon", "tue"], 1):
        with table.writer(commit_user="u") as writer:
            writer.write(pa.table({"id": [commit], "day": [day], "v": [None]}, SCHEMA))
            writer.commit(commit)
    return catalog


def rows(catalog: tidelake.Catalog, name: str, **scan: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = catalog.table(name).scan(**scan).to_arrow().to_pylist()
    return found


def test_files_contain_partition_keys_and_bounds(catalog: tidelake.Catalog) -> None:
    found = rows(catalog, "db.t$files")
    assert [(f["partition"], f["min_key"], f["record_count"], f["file_source"]) for f in found] == [
        ("{mon}", "[1]", 1, "APPEND"),
        ("{mon}", "[2]", 1, "APPEND"),
        ("{tue}", "[3]", 1, "APPEND"),
    ]
    assert found[2]["min_value_stats"] == "{day=tue, id=3, v=null}"
    assert found[2]["null_value_counts"] == "{day=0, id=0, v=1}"
    assert all(Path(f["file_path"]).is_file() for f in found)


def test_the_files_of_an_older_snapshot_are_listed(catalog: tidelake.Catalog) -> None:
    assert [len(rows(catalog, "db.t$files", snapshot=n)) for n in (1, 2, 3)] == [1, 2, 3]
    assert [p["partition"] for p in rows(catalog, "db.t$partitions", snapshot=2)] == ["day=mon"]


def test_partitions_and_buckets_are_the_sums_of_their_files(catalog: tidelake.Catalog) -> None:
    sizes = {f["partition"]: 0 for f in rows(catalog, "db.t$files")}
    for file in rows(catalog, "db.t$files"):
        sizes[file["partition"]] += file["file_size_in_bytes"]
    counts = [
        (p["partition"], p["record_count"], p["file_count"], p["file_size_in_bytes"], p["total_buckets"])
        for p in rows(catalog, "db.t$partitions")
    ]
    assert counts == [("day=mon", 2, 2, sizes["{mon}"], 1), ("day=tue", 1, 1, sizes["{tue}"], 1)]
    assert [(b["partition"], b["bucket"], b["file_count"]) for b in rows(catalog, "db.t$buckets")] == [
        ("{mon}", 0, 2),
        ("{tue}", 0, 1),
    ]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        (col("snapshot_id") == 2, [2]),
        (col("snapshot_id") > 1, [2, 3]),
        (col("snapshot_id").is_in([1, 3, 9]), [1, 3]),
        ((col("snapshot_id") > 1) & (col("commit_identifier") < 3), [2]),
        (pc.field("snapshot_id") * 2 > 4, [3]),
        (col("watermark").is_not_null(), []),
    ],
)
def test_a_condition_filters_snapshots(catalog: tidelake.Catalog, condition: Any, ids: list[int]) -> None:
    found = rows(catalog, "db.t$snapshots", filter=condition, columns=["snapshot_id"])
    assert found == [{"snapshot_id": i} for i in ids]


def test_snapshots_excluded_by_a_condition_are_not_read(catalog: tidelake.Catalog) -> None:
    table = catalog.table("db.t")
    Path(table.context.paths.snapshot(1)).write_text("no JSON")
    assert len(rows(catalog, "db.t$snapshots", filter=col("snapshot_id") > 1)) == 2
    with pytest.raises(tidelake.CorruptFile, match="snapshot-1"):
        rows(catalog, "db.t$snapshots")


def test_schemas_and_options_are_as_stored(catalog: tidelake.Catalog) -> None:
    (schema,) = rows(catalog, "db.t$schemas")
    assert (schema["schema_id"], schema["primary_keys"], schema["comment"]) == (0, '["id","day"]', "of a test")
    assert schema["fields"].startswith('[{"id":0,"name":"id","type":"BIGINT NOT NULL"}')
    assert {o["key"]: o["value"] for o in rows(catalog, "db.t$options")} == {"bucket": "1", "write-only": "true"}


@pytest.mark.parametrize("name", sorted(set(SYSTEM_TABLES) - {"audit_log", "binlog", "ro", "row_tracking"}))
def test_every_table_has_the_columns_it_declares(catalog: tidelake.Catalog, name: str) -> None:
    table = catalog.table(f"db.t${name}")
    whole = table.scan().to_arrow()
    assert whole.schema == table.schema
    for column in table.schema.names:
        assert table.scan(columns=[column]).to_arrow()[column] == whole[column]
    assert catalog.create_table("db.empty", SCHEMA, if_not_exists=True).snapshots() == []
    assert catalog.table(f"db.empty${name}").scan().to_arrow().schema == table.schema


def test_a_table_of_metadata_has_no_changes(catalog: tidelake.Catalog) -> None:
    with pytest.raises(tidelake.UnsupportedFeature, match="its changes are not recorded"):
        catalog.table("db.t$files").changes(start=1)
    with pytest.raises(tidelake.UnsupportedFeature, match="its changes are not recorded"):
        catalog.table("db.t$files").scan(between=(1, 2)).to_arrow()
    with pytest.raises(tidelake.BadInput, match="is a system table"):
        catalog.table("db.t$files").writer()


def test_the_tables_of_the_warehouse_are_listed(catalog: tidelake.Catalog) -> None:
    for name in ("sys.tables", "sys.all_tables"):
        (table,) = rows(catalog, name)
        assert (table["database_name"], table["table_name"], table["partitioned"]) == ("db", "t", True)
    partitions = rows(catalog, "sys.all_partitions", columns=["partition_name", "file_count"])
    assert partitions == [
        {"partition_name": "day=mon", "file_count": 2},
        {"partition_name": "day=tue", "file_count": 1},
    ]
    options = rows(catalog, "sys.all_table_options", filter=col("key") == "bucket")
    assert options == [{"database_name": "db", "table_name": "t", "key": "bucket", "value": "1"}]
    assert "warehouse" in {option["key"] for option in rows(catalog, "sys.catalog_options")}


def test_the_options_of_a_catalog_are_shown_on_request_only(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    with pytest.raises(tidelake.BadInput, match="may show secrets"):
        tidelake.open_catalog(str(tmp_path)).table("sys.catalog_options")
    shown = tidelake.open_catalog(str(tmp_path), **{"catalog-options-table.enabled": "true"})
    assert {"key": "catalog-options-table.enabled", "value": "true"} in rows(shown, "sys.catalog_options")
    with pytest.raises(tidelake.BadInput, match=r"no table sys\.tabels; .*tables"):
        catalog.table("sys.tabels")
    with pytest.raises(tidelake.BadInput, match="leave out snapshot"):
        catalog.table("sys.tables").scan(snapshot=1)


TEXTS = [
    ("DATE", 19_857, "2024-05-14", "19857"),
    ("BOOLEAN", True, "true", "true"),
    ("DECIMAL(10, 7)", "0.0000001", "0.0000001", "0.0000001"),
    ("DOUBLE", 1e20, "1.0E20", "1.0E20"),
    ("STRING", "a, b", "a, b", "a, b"),
    ("TIMESTAMP(3)", 1_700_000_000_000, "2023-11-14 22:13:20.000", "2023-11-14T22:13:20"),
    ("INT", None, "null", "null"),
]


@pytest.mark.parametrize(("sql", "value", "cast", "printed"), TEXTS, ids=[row[0] for row in TEXTS])
def test_values_are_printed_in_two_ways(sql: str, value: Any, cast: str, printed: str) -> None:
    field = DataField(0, "c", parse_type(sql))
    kind = arrow_type(field.type)
    column = pa.array([value]).cast(kind) if isinstance(value, str) else pa.array([value], kind)
    row = serialize_rows([column], [field.type])
    assert sql_row_texts(row, [field], "t").to_pylist() == [f"{{{cast}}}"]
    assert object_row_texts(row, [field], "t").to_pylist() == [f"[{printed}]"]


def test_rows_without_fields_may_be_between_others() -> None:
    field = DataField(0, "c", parse_type("INT"))
    one = serialize_rows([pa.array([1], pa.int32())], [field.type])[0]
    assert sql_row_texts([one, bytes(12), one], [field], "t").to_pylist() == ["{1}", "{}", "{1}"]
    assert object_row_texts([bytes(12), one], [field], "t").to_pylist() == [None, "[1]"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(86_400, "PT24H"), (5_400, "PT1H30M"), (0, "PT0S"), (0.5, "PT0.5S"), (3_661.25, "PT1H1M1.25S")],
)
def test_a_duration_is_printed_as_java_does(seconds: float, text: str) -> None:
    assert iso_duration(timedelta(seconds=seconds)) == text
