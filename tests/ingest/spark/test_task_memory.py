"""The memory of a task does not grow with the rows of its bucket."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

# In a process of its own, as a worker is. The file of chunks is mapped, and not counted: the system takes it back.
SCRIPT: Final = """
import json, pickle, sys, threading, time
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyspark.worker
import tidelake
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.spark.batch_rows import RawRecords, TypedColumns
from tidelake.ingest.spark.bucket_task import BucketTask
from tidelake.ingest.spark.shuffling.shuffle import ShuffleMap
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify import verify

home, kind, count, width = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("text", pa.string())])
KAFKA = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
PARTITIONS, BATCHES = 4, 2
PART = min(20_000, (8 << 20) // width)
random = np.random.default_rng(15)


def text(i):
    return f"x{i:039}" if width == 40 else f"x{i}" + random.bytes(width // 2).hex()


def typed():
    for start in range(0, count, PART):
        ids = np.arange(start, min(count, start + PART))
        texts = pa.array([text(i) for i in ids])
        yield pa.record_batch([pa.array(ids * 7 % count), pa.array(ids), texts], schema=SCHEMA)


def records():
    for start in range(0, count, PART):
        numbers = range(start, min(count, start + PART))
        value = b'{"before":null,"after":{"id":%d,"n":%d,"text":"%b"},"op":"c","source":{"table":"t"}}'
        values = [value % (i * 7 % count, i, text(i).encode()) for i in numbers]
        part = start // PART
        columns = {
            "topic": ["t"] * len(numbers),
            "partition": [part % PARTITIONS] * len(numbers),
            "offset": [part // PARTITIONS * PART + i - start for i in numbers],
            "timestamp": [i * 1_000 for i in numbers],
        }
        arrays = {name: pa.array(of, KAFKA[name]) for name, of in columns.items()}
        keys = pa.nulls(len(numbers), pa.binary())
        yield pa.record_batch({**arrays, "key": keys, "value": pa.array(values, pa.binary())})


def anonymous_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def watch():
    global peak
    while not done.wait(0.01):
        peak = max(peak, anonymous_mib())


catalog = tidelake.open_catalog(home)
catalog.create_database("x")
options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"}
table = catalog.create_table("x.t", SCHEMA, primary_key=["id"], options=options)
tables = [(table.context, TypedColumns() if kind == "typed" else RawRecords(open_format("debezium-json", {})))]
peak = 0.0
for batch_id in range(BATCHES):
    chunks = Path(home) / "chunks"
    with pa.OSFile(str(chunks), "wb") as file:
        parts = ShuffleMap(tables, 8)(typed() if kind == "typed" else records())
        first = next(parts)
        with pa.ipc.new_stream(file, first.schema) as stream:
            stream.write_batch(first)
            for part in parts:
                stream.write_batch(part)
    pa.default_memory_pool().release_unused()
    done = threading.Event()
    watching = threading.Thread(target=watch)
    watching.start()
    with pa.OSFile(str(chunks)) as file:
        rows = list(BucketTask(tables, batch_id)(iter(pa.ipc.open_stream(file))))
    done.set()
    watching.join()
    messages = [m for row in rows for m in pickle.loads(row.column("payload")[0].as_py())]
    TableCommit(table.context, "spark").commit(Committable(batch_id, messages))
found = table.scan().to_arrow().group_by([]).aggregate([("id", "count_distinct"), ("id", "count"), ("n", "sum")])
print(json.dumps({"mib": peak, "bytes": chunks.stat().st_size, **found.to_pylist()[0]}))
"""
PEAK_MIB: Final = 400


LONG: Final = pytest.mark.long


@pytest.mark.interop
@pytest.mark.parametrize(
    ("kind", "count", "text_bytes"),
    [
        pytest.param("typed", 3_000_000, 40, id="short rows"),
        pytest.param("records", 2_000_000, 40, marks=LONG, id="short records"),
        pytest.param("typed", 36_000, 10_000, marks=LONG, id="rows of 10 KB"),
        pytest.param("records", 360, 1_000_000, id="records of 1 MB"),
        pytest.param("records", 36_000, 10_000, marks=LONG, id="records of 10 KB"),
        pytest.param("records", 3_600, 100_000, marks=LONG, id="records of 100 KB"),
        pytest.param("typed", 360, 1_000_000, marks=LONG, id="rows of 1 MB"),
    ],
)
def test_the_memory_of_a_task_does_not_depend_on_the_batch(
    kind: str, count: int, text_bytes: int, tmp_path: Path
) -> None:
    """With two compactions, of all that is there."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), kind, str(count), str(text_bytes)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    assert (found["id_count"], found["id_count_distinct"]) == (count, count)
    assert found["n_sum"] == count * (count - 1) // 2
    assert found["bytes"] > 150 << 20
    assert found["mib"] < PEAK_MIB, found
