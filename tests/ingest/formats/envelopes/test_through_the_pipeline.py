"""Every format runs in the service and in Spark's sink by its name alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.formats.debezium.changes import Record, batch_of
from tests.ingest.formats.envelopes.histories import RENDERED, SCHEMA, Change
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.spark.batch_rows import RawRecords, open_reader
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.storage.model.format import KIND_COLUMN
from tidelake.storage.model.types import arrow_type

_ROW = {
    "id": 1,
    "note": "é",
    "price": Decimal("12.50"),
    "qty": 7,
    "ratio": 0.1,
    "flag": True,
    "at": datetime(2024, 2, 29, 23, 59, 59, 125000),
    "day": datetime(2024, 2, 29).date(),
    "data": b"\xff\0",
}
_HISTORY = (
    Change(None, _ROW),
    Change(None, {**_ROW, "id": 2}),
    Change(_ROW, {**_ROW, "id": 3, "note": None}),
    Change({**_ROW, "id": 2}, None),
)


def _lines(folder: Path, records: Sequence[Record]) -> None:
    folder.mkdir()
    place = {"topic": "depot.orders", "partition": 0, "key": None}
    lines = [{**place, "offset": i, "value": (r.value or b"").decode()} for i, r in enumerate(records)]
    (folder / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _schema() -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type), f.name != "id") for f in SCHEMA.fields])


@pytest.mark.parametrize("name", RENDERED)
def test_the_service_keeps_a_table_from_records_of_the_format(name: str, tmp_path: Path) -> None:
    _lines(tmp_path / "in", list(RENDERED[name](_HISTORY)))
    catalog = tidelake.open_catalog(f"{tmp_path}/lake")
    catalog.create_database("shop")
    catalog.create_table("shop.orders", _schema(), primary_key=["id"], options={"bucket": "1"})
    text = f"""
        warehouse: {tmp_path}/lake
        source: {{type: change-log-folder, path: {tmp_path}/in, until: end}}
        format: {name}
        tables: [{{name: shop.orders, match: depot.orders}}]
    """
    asyncio.run(build_pipeline(parse_config(text, "shop.yaml", pipeline="shop")).run())
    (row,) = catalog.table("shop.orders").scan().to_arrow().to_pylist()
    assert row == {**_ROW, "id": 3, "note": None}


@pytest.mark.parametrize("name", RENDERED)
def test_a_spark_sink_decodes_records_of_the_format(name: str, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(f"{tmp_path}/lake")
    catalog.create_database("shop")
    context = catalog.create_table("shop.orders", _schema(), primary_key=["id"], options={"bucket": "1"}).context
    records = batch_of(list(RENDERED[name](_HISTORY)))
    n = len(records)
    columns: dict[str, Any] = {"topic": ["depot.orders"] * n, "partition": pa.array([0] * n, pa.int32())}
    batch = pa.record_batch({**columns, "offset": records.offsets, "key": records.keys, "value": records.values})
    reader = open_reader([(context, RawRecords(open_format(name, {})))], BatchStatistics())
    rows = pa.Table.from_batches([rows for _, rows in reader.rows(batch)])
    kinds_and_ids = list(zip(rows[KIND_COLUMN].to_pylist(), rows["id"].to_pylist(), strict=True))
    assert kinds_and_ids == [(0, 1), (0, 2), (3, 1), (0, 3), (3, 2)]
