"""What rows of many megabytes take besides the write buffer: a few times the largest, not a few times all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = """
import gc, json, sys
import numpy as np
import pyarrow as pa
import tidelake

warehouse, row_mib, rows, buffer_mib, options = sys.argv[1], *map(int, sys.argv[2:5]), json.loads(sys.argv[5])


def memory_mib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


catalog = tidelake.open_catalog(warehouse)
catalog.create_database("db")
schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("text", pa.string())])
given = {"bucket": "1", "write-only": "true", "write-buffer-size": f"{buffer_mib} mb", **options}
table = catalog.create_table("db.t", schema, primary_key=["k"], options=given)
letters = np.random.default_rng(1).integers(32, 127, row_mib << 20, dtype=np.uint8).tobytes()


def large(key):
    offsets = pa.py_buffer(np.array([0, len(letters)], np.int32))
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(letters[:-1] + b"%d" % (key % 10)))
    return pa.record_batch([pa.array([key]), text], schema=schema)


with table.writer(commit_user="w") as writer:
    writer.write(pa.table({"k": [-1], "text": ["small"]}))
    writer.commit(1)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as peaks:
        peaks.write("5")
    before = memory_mib("VmRSS")
    for key in range(rows):
        writer.write(large(key))
    writer.commit(2)
    peak = memory_mib("VmHWM") - before
keys = sorted(row for batch in table.scan(columns=["k"]).to_batches() for row in batch.column(0).to_pylist())
last = table.scan(columns=["text"], filter=tidelake.col("k") == rows - 1).to_arrow().column(0)[0].as_py()
assert last[-1] == str((rows - 1) % 10) and len(last) == row_mib << 20
print(json.dumps({"peak_mib": peak, "keys": keys}))
"""


def run(warehouse: Path, row_mib: int, rows: int, buffer_mib: int, **options: str) -> float:
    """The memory that writing them took at a time, in MiB."""
    arguments = [str(warehouse), str(row_mib), str(rows), str(buffer_mib), json.dumps(options)]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(done.stdout)
    assert told["keys"] == [-1, *range(rows)]
    return float(told["peak_mib"])


@pytest.mark.parametrize("producer", ["none", "input"])
def test_writing_large_rows_takes_the_buffer_and_a_few_rows(producer: str, tmp_path: Path) -> None:
    assert run(tmp_path, 24, 6, 32, **{"changelog-producer": producer}) < 32 + 5 * 24


@pytest.mark.long
def test_twelve_rows_of_75_mib_through_a_buffer_of_64(tmp_path: Path) -> None:
    assert run(tmp_path, 75, 12, 64) < 64 + 5 * 75
