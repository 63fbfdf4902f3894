"""Java's commit and ours drop the same partitions under the same options."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle

AGE = timedelta(days=3)
COMMON = {
    "bucket": "-1",
    "partition.expiration-time": "3 d",
    "partition.expiration-check-interval": "0 s",
    "partition.expiration-max-num": "20",
}
TEXTS = [
    *("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%-m-%-d", "%Y%m%d", "%Y/%m/%d", "%Y-%m-%dT%H", "%Y-%m-%d %H"),
    *("%Y-00-%d", "%d.%m.%Y", "x%Y-%m-%d", "%Y-%m-%d %H:%M:%S.%f"),
]


@pytest.mark.parametrize(
    ("options", "column"),
    [
        pytest.param({}, pa.string(), id="no pattern"),
        pytest.param({"partition.timestamp-formatter": "yyyyMMdd"}, pa.string(), id="days without dashes"),
        pytest.param({"partition.timestamp-formatter": "yyyy-MM-dd HH:mm:ss"}, pa.string(), id="to the second"),
        pytest.param({"partition.timestamp-formatter": "d.M.yyyy"}, pa.string(), id="the day first"),
        pytest.param({"partition.timestamp-formatter": "yyyyMMdd"}, pa.int32(), id="numbers"),
        pytest.param({}, pa.date32(), id="dates, which name no time"),
        pytest.param({"partition.expiration-strategy": "update-time"}, pa.string(), id="when they were written"),
    ],
)
@pytest.mark.interop
def test_java_and_we_drop_the_same_partitions(
    options: dict[str, str], column: pa.DataType, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    now = datetime.now().replace(microsecond=0)
    times = [now - AGE + timedelta(days=day) for day in (-400, -2, 2)]
    if pa.types.is_string(column):
        values: list[object] = [None, "", *(time.strftime(text) for time in times for text in TEXTS)]
    elif pa.types.is_date(column):
        values = [None, *(time.date().isoformat() for time in times)]
    else:
        values = [None, 0, 7, *(int(time.strftime("%Y%m%d")) for time in times)]
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([("k", pa.int32()), ("p", column)])
    java, ours = (
        catalog.create_table(f"db.{name}", schema, partition_by=["p"], options=COMMON | options)
        for name in ("java", "ours")
    )
    rows = [{"k": number, "p": value} for number, value in enumerate(values)]
    java_oracle.write(tmp_path, "db.java", rows)
    with ours.writer() as writer:
        typed = pa.array([row["p"] for row in rows])
        writer.write(pa.table([pa.array(range(len(rows)), pa.int32()), typed.cast(column)], schema))
        writer.commit()

    def left(table: tidelake.Table) -> list[int]:
        return sorted(row["k"] for row in table.scan().to_arrow().to_pylist())

    assert left(ours) == left(java)
    assert left(java), "what names no time stays"
