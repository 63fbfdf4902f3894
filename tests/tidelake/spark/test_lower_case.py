"""A catalog without upper-case letters: tables that a query creates and follows equal those of the service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import tidelake
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run as run_pipeline
from tidelake.spark.pipeline_query import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWER_CASE = {"case-sensitive": "false"}


def line(offset: int, row: dict[str, Any]) -> str:
    value = {"op": "c", "after": row, "source": {"connector": "mysql", "db": "shop", "table": "orders"}}
    record = {"topic": "shop.orders", "partition": 0, "offset": offset, "timestamp_ms": 0}
    return json.dumps({**record, "key": json.dumps({"Id": row["Id"]}), "value": json.dumps(value)}) + "\n"


@pytest.mark.interop
def test_names_are_in_lower_case_like_in_the_service(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    lines = [line(0, {"Id": 1, "Name": "a"}), line(1, {"Id": 2, "Name": "b", "New": "c"})]
    (tmp_path / "changes" / "a.jsonl").write_text("".join(lines))
    text = (
        f"warehouse: {tmp_path}/of-spark\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "warehouse_options: {case-sensitive: 'false'}\n"
        "tables: [{name: shop.orders, match: '*', columns: {Id: INT}, options: {bucket: 1}}]\n"
    )
    on_spark = parse_config(text, "shop.yaml", pipeline="shop")
    running = start_query(spark, on_spark, str(tmp_path / "checkpoint"))
    running.query.awaitTermination()
    assert running.has_ended()
    asyncio.run(run_pipeline(structs.replace(on_spark, warehouse=str(tmp_path / "of-service"))))

    of_spark, of_service = (
        tidelake.open_catalog(str(tmp_path / place), **LOWER_CASE).table("shop.orders")
        for place in ("of-spark", "of-service")
    )
    assert {f.name: str(f.type) for f in of_spark.context.schema.fields} == {
        "id": "INT NOT NULL",
        "name": "STRING",
        "new": "STRING",
    }
    assert of_spark.context.schema.fields == of_service.context.schema.fields
    rows = of_spark.scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "name": "a", "new": None}, {"id": 2, "name": "b", "new": "c"}]
    assert rows == of_service.scan().to_arrow().sort_by("id").to_pylist()
