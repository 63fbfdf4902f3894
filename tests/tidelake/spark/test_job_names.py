"""Each job and stage that our calls start says on Spark's page what it does, and to which table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from tests.tidelake.spark.test_pipeline_query import run
from tidelake.ingest.config.config import parse_config
from tidelake.spark import delete, merge, procedures, update, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())])


def descriptions(of: Any) -> list[str]:
    """The last line of each description: before it is what a query says of its batch. Skipped stages have none."""
    listed = (of.apply(number) for number in range(of.size()))
    found = [one for one in listed if one.status().toString() not in ("SKIPPED", "PENDING")]
    return [one.description().get() if one.description().isDefined() else f"none: {one.name()}" for one in found]


def steps(spark: SparkSession) -> Counter[str]:
    """Of all jobs and stages so far, with their number."""
    store = spark.sparkContext._jsc.sc().statusStore()
    context: Any = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = store.stageList(None, False, False, no_quantiles, None)
    return Counter(line.splitlines()[-1] for of in (store.jobsList(None), stages) for line in descriptions(of))


@pytest.mark.interop
def test_each_job_and_stage_says_its_step_and_table(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    catalog = tidelake.open_catalog(lake)
    catalog.create_database("shop")
    options = {"bucket": "3", "changelog-producer": "input"}
    catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options=options)
    before = steps(spark)
    rows = spark.createDataFrame([(number, "a") for number in range(100)], "id long, name string")
    write(rows, "shop.t", lake)
    update(spark, "shop.t", lake, {"name": "upper(name)"}, "id < 50")
    merge(rows.limit(3), "shop.t", lake, matched_update="*", not_matched_insert="*")
    delete(spark, "shop.t", lake, "id > 90")
    procedures.compact(spark, "shop.t", lake)

    (tmp_path / "log").mkdir()
    value = {"op": "c", "after": {"id": 1}, "source": {"db": "d", "table": "u"}}
    line = {"topic": "d.u", "partition": 0, "offset": 0, "key": '{"id": 1}', "value": json.dumps(value)}
    (tmp_path / "log" / "1.jsonl").write_text(json.dumps(line) + "\n")
    text = (
        f"warehouse: {lake}\nsource: {{type: change-log-folder, path: {tmp_path}/log, until: end}}\n"
        "tables: [{name: 'many.{table}', options: {bucket: 1}}]\n"
    )
    run(spark, parse_config(text, "many.yaml", pipeline="many"), tmp_path / "checkpoint")

    found = set(steps(spark) - before)
    assert [step for step in found if not step.startswith("tidelake: ")] == []
    assert found >= {
        *("tidelake: decode shop.t", "tidelake: write shop.t, 3 buckets", "tidelake: check keys of shop.t"),
        *("tidelake: compact shop.t, 3 buckets", "tidelake: decode", "tidelake: decode many.u"),
        "tidelake: write many.u, 1 bucket",
    }
