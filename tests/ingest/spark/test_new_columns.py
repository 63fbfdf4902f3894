"""Updates without a column that their table got within the same micro-batch."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import tidelake
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.spark.batch_rows import UNAVAILABLE_COLUMN, RawRecords, open_reader
from tidelake.ingest.spark.batch_statistics import BatchStatistics

TOPIC = "depot"
KAFKA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def update(partition: int, offset: int, **row: str) -> dict[str, object]:
    old = {"note": "x"} if "note" in row else {}  # a column that only the old row names is NULL in the new one
    value = {"type": "UPDATE", "database": "depot", "table": "orders", "data": [row], "old": [old]}
    place = {"topic": TOPIC, "partition": partition, "offset": offset, "timestamp": 1_000_000}
    return {**place, "key": None, "value": json.dumps(value).encode()}


def test_a_column_counts_as_missing_from_the_first_record_of_its_partition_that_has_it(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    columns = pa.schema([pa.field("id", pa.string(), nullable=False), ("note", pa.string()), ("extra", pa.string())])
    catalog.create_table("shop.orders", columns, primary_key=["id"], options={"bucket": "1"})
    batch = pa.RecordBatch.from_pylist(
        [
            update(0, 6, id="before", note="a"),
            update(0, 7, id="without note, too"),
            update(0, 8, id="the first", note="a", extra="b"),
            update(0, 9, id="after", note="a"),
            update(1, 6, id="of a partition without such a record", note="a"),
        ],
        KAFKA,
    )
    records = RawRecords(open_format("canal-json", {}), new_columns={"extra": {TopicPartition(TOPIC, 0): 8}})
    rows = open_reader([(catalog.table("shop.orders").context, records)], BatchStatistics()).rows(batch)
    left_out = {row["id"]: row.get(UNAVAILABLE_COLUMN) for _, part in rows for row in part.to_pylist()}
    assert left_out == {
        "before": None,
        "without note, too": ["note"],
        "the first": None,
        "after": ["extra"],
        "of a partition without such a record": ["extra"],
    }
