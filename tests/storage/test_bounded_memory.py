"""Far more rows than the memory they may take: writing spills, reading merges batch by batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

# Runs in a process of its own: Arrow's peak can't be set back. NumPy's memory is seen by tracemalloc.
SCRIPT: Final = """
import json, sys, tracemalloc
import numpy as np
import pyarrow as pa
import pyarrow.dataset, pyarrow.parquet  # not to be counted
import tidelake
from storage.read import snapshot_reader
from storage.write import spill

warehouse, runs = sys.argv[1], int(sys.argv[2])  # runs: commits that the rows are spread over
ROWS, PARTS, PART_ROWS = 200_000, 200, 1_000
SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])
random = np.random.default_rng(7)
spill._ROWS_PER_BATCH = 128
snapshot_reader._SECTION_MEMORY_BYTES = 2**20


def some_rows():
    # keys of all parts overlap; texts of 500 characters that don't compress well
    letters = random.integers(48, 122, size=PART_ROWS * 500, dtype=np.uint8)
    offsets = np.arange(0, PART_ROWS * 500 + 1, 500, dtype=np.int32)
    texts = pa.Array.from_buffers(pa.string(), PART_ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    return pa.record_batch([pa.array(random.integers(0, ROWS, PART_ROWS)), texts], schema=SCHEMA)


def peak_of(work):
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    result = work()
    peak = pa.default_memory_pool().max_memory() - before + tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


def write():
    keys = np.zeros(ROWS, np.bool_)
    with table.writer() as writer:
        for part in range(1, PARTS + 1):
            rows = some_rows()
            keys[rows.column("k").to_numpy()] = True
            writer.write(rows)
            if part % (PARTS // runs) == 0:
                writer.commit()
    return int(keys.sum())


catalog = tidelake.open_catalog(warehouse)
catalog.create_database("db")
options = {"bucket": "1", "write-buffer-size": "1 mb", "file.block-size": "1 mb"}
table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=options)
keys, write_peak = peak_of(write)
rows, read_peak = peak_of(lambda: sum(batch.num_rows for batch in table.scan().to_batches()))
print(json.dumps({"keys": keys, "rows": rows, "write_peak": write_peak, "read_peak": read_peak}))
"""
WRITTEN_BYTES: Final = 200_000 * 508


def run(warehouse: Path, runs: int) -> dict[str, int]:
    command = [sys.executable, "-c", SCRIPT, str(warehouse), str(runs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, int] = json.loads(done.stdout)
    return told


def test_one_commit_of_many_times_the_write_budget(tmp_path: Path) -> None:
    told = run(tmp_path, runs=1)
    assert told["rows"] == told["keys"]
    assert told["write_peak"] < WRITTEN_BYTES / 3


def test_reading_merges_overlapping_runs_without_holding_them(tmp_path: Path) -> None:
    told = run(tmp_path, runs=5)
    assert told["rows"] == told["keys"]
    assert told["read_peak"] < WRITTEN_BYTES / 3
