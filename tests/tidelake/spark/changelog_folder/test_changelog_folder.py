"""`format("tidelake-changelog-folder")` in a real Spark: every record once, with Kafka's columns."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelake.errors import BadInput
from tidelake.spark import register
from tidelake.spark.changelog_folder.folder_options import FORMAT, FolderReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lines(first: int, last: int, **more: Any) -> str:
    records = (
        {"topic": "t", "partition": i % 2, "offset": i, "timestamp_ms": 1_000 * i, "key": None, "value": f"v{i}"} | more
        for i in range(first, last)
    )
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.interop
def test_a_batch_read_returns_every_record_of_every_file(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    (tmp_path / "b.jsonl").write_text(lines(3, 6))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(0, 3).encode()))
    raw = {
        "topic": "u",
        "partition": 7,
        "offset": 1,
        "timestamp_type": "LogAppendTime",
        "value_base64": base64.b64encode(b"\xff\x00").decode(),
    }
    (tmp_path / "c.jsonl").write_text(json.dumps({**raw, "headers": [["h", "1"], ["other", "2"]]}))
    found = spark.read.format(FORMAT).option("headers", "h").load(str(tmp_path)).orderBy("topic", "offset").collect()
    assert [(row.topic, row.partition, row.offset, bytes(row.value)) for row in found] == [
        *(("t", i % 2, i, f"v{i}".encode()) for i in range(6)),
        ("u", 7, 1, b"\xff\x00"),
    ]
    assert [None if row.timestamp is None else row.timestamp.second for row in found] == [0, 1, 2, 3, 4, 5, None]
    assert [row.timestampType for row in found] == [*[None] * 6, 1]
    assert [(pair.key, bytes(pair.value)) for pair in found[6].headers] == [("h", b"1")]
    some = spark.read.format(FORMAT).schema("offset long, value binary").option("startingOffsets", '{"t": {"0": 3}}')
    assert sorted(row.offset for row in some.load(str(tmp_path)).collect()) == [1, 1, 3, 4, 5]


@pytest.mark.interop
def test_a_stream_continues_with_appended_records(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    folder = tmp_path / "log"
    folder.mkdir()
    for name, first in (("a", 0), ("b", 10), ("c", 20)):
        (folder / f"{name}.jsonl").write_text(lines(first, first + 10))
    batches: list[list[int]] = []

    def run() -> None:
        source = spark.readStream.format(FORMAT).option("maxFilesPerTrigger", 2).load(str(folder))
        writer = source.writeStream.foreachBatch(
            lambda rows, _: batches.append(sorted(r.offset for r in rows.collect()))
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    assert batches == [list(range(20)), list(range(20, 30))]
    with (folder / "b.jsonl").open("a") as file:
        file.write(lines(30, 33))
    (folder / "a.jsonl").unlink()  # it was read
    run()
    run()
    assert batches[2:] == [[30, 31, 32]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "needs the option path", id="no folder"),
        pytest.param({"path": "/x", "maxFilesPerTriger": "1"}, "did you mean 'maxFilesPerTrigger'", id="a slip"),
        pytest.param({"path": "/x", "maxBytesPerTrigger": "0"}, "expected a whole number from 1 on", id="a number"),
        pytest.param({"path": "/x", "startingOffsets": "earliest"}, "expected JSON such as", id="offsets"),
        pytest.param({"path": "s3://x/y"}, "reads folders of a file system", id="a store"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        FolderReadOptions.of(options)


def test_an_invalid_line_is_named(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    (tmp_path / "a.jsonl").write_text(lines(0, 2) + "nothing\n")
    at = len(lines(0, 2))
    with pytest.raises(Exception, match=rf"a\.jsonl, byte {at}: not a change record"):
        spark.read.format(FORMAT).load(str(tmp_path)).collect()
