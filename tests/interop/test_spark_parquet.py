"""Spark's own Parquet reader reads the data files of our append tables with the same values, for every type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.columns import NESTED, SCALARS, Column, cycled
from tests.support.conformance import Outcome, record
from tests.support.expected import difference, json_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED: Final = {
    "time": "TIME is milliseconds in the file, and Spark's own is microseconds",
}
"""Types that Spark's reader refuses, and why."""
CUT: Final = "Spark's times have microseconds: it cuts the nanoseconds of INT96"


@pytest.mark.parametrize("column", [*SCALARS, *NESTED], ids=lambda column: column.name)
def test_spark_reads_the_values_of_each_type_from_our_files(
    column: Column, tmp_path: Path, spark: SparkSession
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    values = cycled(column, "parquet", len(column.values) + 1)
    schema = pa.schema([("id", pa.int64()), (column.name, column.arrow)])
    table = catalog.create_table("db.t", schema)
    table.append(pa.table({"id": pa.array(range(len(values)), pa.int64()), column.name: values}, schema))
    files = [str(path) for path in (tmp_path / "db.db" / "t").glob("bucket-0/*.parquet")]
    if column.name in REFUSED:
        with pytest.raises(Exception, match=r"(?i)time"):
            spark.read.parquet(*files).toArrow()
        record("Spark's Parquet", tmp_path, "db.t", Outcome.REFUSED, reason=REFUSED[column.name])
        return
    found = spark.read.parquet(*files).toArrow()
    problem = difference(table.scan().to_arrow(), [list(row.values()) for row in json_rows(found)])
    is_cut = column.name.startswith("timestamp_ns")
    record(
        "Spark's Parquet",
        tmp_path,
        "db.t",
        Outcome.DIFFERS if problem else Outcome.PASS,
        reason=CUT if is_cut else "",
    )
    assert (problem is not None) == is_cut, problem
