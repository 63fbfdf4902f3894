"""The tables of a pipeline: opened if they exist, created from their first record otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.ingest.pipeline.fakes import raw_batch
from tidelake.errors import BadInput
from tidelake.ingest.formats.debezium.table_inference import infer_table
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.write.memory_budget import MemoryBudget

ORDERS = SourceTable("log", "shop", "public", "orders")
GROUP = {"fields.at.sequence-group": "n"}
SUM = {"fields.n.aggregate-function": "sum"}


def record(**after: object) -> RawBatch:
    value = {"before": None, "after": after, "op": "c", "source": {"db": "shop", "schema": "public", "table": "orders"}}
    batch = raw_batch([0], [json.dumps(value).encode()])
    return RawBatch(
        batch.topic,
        batch.partition,
        batch.offsets,
        batch.timestamps_ms,
        pa.array([json.dumps({"id": after.get("id")}).encode()], pa.binary()),
        batch.values,
        batch.next_offset,
    )


class Lake:
    def __init__(self, path: Path) -> None:
        self.catalog = FileSystemCatalog(LocalFileIO(), str(path))

    def tables(self, **settings: Any) -> PipelineTables:
        memory = MemoryBudget(1 << 20)
        table = TableSettings(name="shop.orders", **settings)
        return PipelineTables([table], self.catalog, lambda context: TableSink(context, "p", memory), infer_table)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_an_existing_table_is_opened(lake: Lake) -> None:
    lake.catalog.create_database("shop")
    lake.catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]), primary_key=["id"])
    tables = lake.tables(source_types={"id": "bigint unsigned"})
    assert set(tables.sinks) == {"shop.orders"}
    target = tables.router.target_of(ORDERS)
    assert target is not None
    assert (target.schema.names, target.emit_update_before) == (("id",), False)
    assert target.source_types == {"id": "bigint unsigned"}


@pytest.mark.parametrize(
    ("primary_key", "options", "emits"),
    [
        pytest.param(["id"], {}, False, id="by key"),
        pytest.param([], {}, True, id="append"),
        pytest.param(["id"], {"changelog-producer": "input"}, True, id="the input is the changelog"),
        pytest.param(["id"], {"merge-engine": "aggregation"}, True, id="sums"),
        pytest.param(["id"], {"merge-engine": "aggregation", "ignore-delete": "true"}, False, id="sums that only grow"),
        pytest.param(["id"], {"merge-engine": "partial-update", **GROUP}, False, id="partial update"),
        pytest.param(["id"], {"merge-engine": "partial-update", **GROUP, **SUM}, True, id="partial update with a sum"),
    ],
)
def test_old_images_are_required_where_they_are_needed(
    lake: Lake, primary_key: list[str], options: dict[str, str], emits: bool
) -> None:
    lake.catalog.create_database("shop")
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
    lake.catalog.create_table("shop.orders", schema, primary_key=primary_key, options=options)
    target = lake.tables().router.target_of(ORDERS)
    assert target is not None
    assert target.emit_update_before is emits
    assert target.needs_retractions is (emits and "merge-engine" in options)


@pytest.mark.parametrize(
    ("options", "is_ordered"),
    [
        ({}, False),
        ({"sequence.field": "at"}, True),
        ({"sequence.field": "at", "ignore-delete": "true"}, False),
        ({"merge-engine": "partial-update", **GROUP}, True),
        ({"merge-engine": "partial-update", **GROUP, "ignore-delete": "true"}, False),
    ],
    ids=str,
)
def test_a_table_with_sequence_columns_is_marked_as_ordered_by_columns(
    lake: Lake, options: dict[str, str], is_ordered: bool
) -> None:
    lake.catalog.create_database("shop")
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
    lake.catalog.create_table("shop.orders", schema, primary_key=["id"], options=options)
    target = lake.tables().router.target_of(ORDERS)
    assert target is not None
    assert target.is_ordered_by_columns is is_ordered


def test_a_table_is_created_from_its_first_record(lake: Lake) -> None:
    tables = lake.tables(partition_by=["day"], primary_key=["day", "id"], options={"bucket": 3, "ignore-delete": True})
    assert (tables.sinks, tables.router.target_of(ORDERS)) == ({}, None)
    assert tables.create(record(id=1, day="mon", note=None), {ORDERS: 0})
    context = lake.catalog.load("shop.orders")
    assert context.schema.names == ("id", "day", "note")
    assert (context.schema.primary_keys, context.schema.partition_keys) == (("day", "id"), ("day",))
    assert (context.options["bucket"], context.options["ignore-delete"]) == ("3", "true")
    assert set(tables.sinks) == {"shop.orders"}
    assert tables.router.target_of(ORDERS) is not None


def test_the_key_comes_from_the_record_unless_configured(lake: Lake) -> None:
    lake.tables().create(record(id=1, code="a"), {ORDERS: 0})
    assert lake.catalog.load("shop.orders").schema.primary_keys == ("id",)


def test_a_table_is_created_once_and_others_are_untouched(lake: Lake) -> None:
    tables = lake.tables()
    assert not tables.create(record(id=1), {SourceTable("log", table="users"): 0})
    assert tables.create(record(id=1), {ORDERS: 0})
    assert not tables.create(record(id=1, more=2), {ORDERS: 0})
    assert lake.catalog.load("shop.orders").schema.names == ("id",)


def test_a_configured_key_missing_in_the_record_raises(lake: Lake) -> None:
    with pytest.raises(
        BadInput, match=r"shop\.orders can't be created: shop\.public\.orders has no column uid, only id"
    ):
        lake.tables(primary_key=["uid"]).create(record(id=1), {ORDERS: 0})
    assert not lake.catalog.table_exists("shop.orders")


def test_a_partition_outside_of_the_key_is_refused_with_the_setting_that_helps(lake: Lake) -> None:
    with pytest.raises(BadInput, match=r"Set `primary_key: \[id, day\]`, .* or set `bucket: -1`"):
        lake.tables(partition_by=["day"]).create(record(id=1, day="mon"), {ORDERS: 0})
    assert lake.catalog.list_databases() == []


def test_keys_may_move_between_partitions_where_the_options_say_so(lake: Lake) -> None:
    tables = lake.tables(partition_by=["day"], options={"bucket": -1})
    assert tables.create(record(id=1, day="mon"), {ORDERS: 0})
    schema = lake.catalog.load("shop.orders").schema
    assert (schema.primary_keys, schema.partition_keys) == (("id",), ("day",))


@pytest.mark.parametrize("settings", [{"rounded_columns": ["nmae"]}, {"source_types": {"nmae": "bits"}}], ids=str)
def test_a_setting_for_a_missing_column_is_refused_before_the_table_is_created_or_read(
    lake: Lake, settings: dict[str, Any]
) -> None:
    message = f"{next(iter(settings))} of shop.orders: the table has no column 'nmae'; did you mean 'name'\\?"
    with pytest.raises(BadInput, match=message):
        lake.tables(**settings).create(record(id=1, name="a"), {ORDERS: 0})
    assert lake.catalog.list_databases() == []
    lake.tables().create(record(id=1, name="a"), {ORDERS: 0})
    with pytest.raises(BadInput, match=message):
        lake.tables(**settings)
