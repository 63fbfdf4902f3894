"""Columns of a micro-batch become raw batches, one per topic partition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tidelake.errors import BadInput
from tidelake.ingest.formats.debezium.debezium_envelope import OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.spark.raw_columns import raw_batches

Record = Mapping[str, Any]
KAFKA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def record(topic: str, partition: int, offset: int) -> Record:
    name = f"{topic}/{partition}/{offset}".encode()
    return {
        "key": None if offset % 5 == 0 else b"key " + name,
        "value": None if offset % 7 == 0 else b"value " + name,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": offset * 1_000,  # microseconds
        "timestampType": (0, 1, -1, None)[offset % 4],
        "headers": [{"key": OLD_KEY_HEADER, "value": name}, {"key": "other", "value": b""}]
        if offset % 3 == 0
        else None,
    }


def records_of(batch: RawBatch) -> list[Record]:
    columns = (batch.keys.to_pylist(), batch.values.to_pylist(), batch.offsets.tolist(), batch.timestamps_ms.tolist())
    return [
        {"key": key, "value": value, "offset": offset, "timestamp": time, "headers": batch.headers.get(row)}
        | {"timestamp_type": batch.timestamp_type(row)}
        for row, (key, value, offset, time) in enumerate(zip(*columns, strict=True))
    ]


ONE, BIG = [("a", 0)], 2**31 - 1


@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param([], id="an empty batch"),
        pytest.param(ONE, id="one partition"),
        pytest.param([("b", 1), ("a", 1), ("ö", 0), ("a", BIG), ("a", 0), ("b", BIG)], id="three topics"),
    ],
)
@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
def test_kafka_records_are_grouped_by_partition_and_ordered_by_offset(
    partitions: list[tuple[str, int]], shuffled: bool
) -> None:
    rows = [record(topic, partition, offset) for offset in range(3, 60, 2) for topic, partition in partitions]
    if shuffled:
        Random(7).shuffle(rows)
    # begins behind a row of another partition, as slices of Spark's batches may
    batch = pa.RecordBatch.from_pylist([record("before", 9, 0), *rows], KAFKA).slice(1)
    found = {(raw.topic, raw.partition): raw for raw in raw_batches(batch, DebeziumJson.KEPT_HEADERS)}
    assert found.keys() == set(partitions)
    for (topic, partition), raw in found.items():
        assert raw.next_offset == 60
        assert records_of(raw) == [
            {
                "key": expected["key"],
                "value": expected["value"],
                "offset": offset,
                "timestamp": offset,
                "timestamp_type": ("CreateTime", "LogAppendTime", "NoTimestampType", None)[offset % 4],
                "headers": expected["headers"] and ((OLD_KEY_HEADER, expected["headers"][0]["value"]),),
            }
            for offset in range(3, 60, 2)
            for expected in [record(topic, partition, offset)]
        ]


def line(offset: int) -> str:
    return json.dumps({"topic": "t", "partition": 0, "offset": offset, "key": "k", "value": f'{{"n":"}}{{{offset}"}}'})


def of_lines(lines: Sequence[str | None]) -> list[Record]:
    batch = pa.record_batch({"value": pa.array(["before", *lines], pa.string())}).slice(1)
    return [record for raw in raw_batches(batch, frozenset()) for record in records_of(raw)]


def test_change_log_lines_may_contain_blanks() -> None:
    plain = of_lines([line(offset) for offset in range(3)])
    assert [(found["offset"], found["value"]) for found in plain] == [(n, b'{"n":"}{%d"}' % n) for n in range(3)]
    assert of_lines([line(0) + "\r", "", None, f"  {line(1)}", line(2)]) == plain
    assert of_lines([]) == of_lines([None]) == []


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["{}{}", '{"topic":"', '"}'], id="objects that only together are as many as lines"),
        pytest.param([line(0)[:-1], line(1)], id="a line that is cut off"),
        pytest.param([line(0), line(1).replace(": 1", ": -1")], id="an offset that is none"),
        pytest.param([line(0), "[]"], id="another kind of JSON"),
    ],
)
def test_an_invalid_line_is_refused_with_its_first_characters(lines: list[str]) -> None:
    with pytest.raises(BadInput, match="not a record of a change log: b'"):
        of_lines(lines)
