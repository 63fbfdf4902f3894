"""Far more rows than the allowed memory: writing spills, and reading and compacting merge batch by batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

# Runs in a process of its own: Arrow's peak can't be set back. NumPy's memory is seen by tracemalloc.
SCRIPT: Final = """
import json, sys, tracemalloc
from unittest.mock import patch
import numpy as np
import pyarrow as pa
import pyarrow.dataset, pyarrow.parquet  # not to be counted
import tidelake
from tidelake.storage.files.formats import parquet_writer
from tidelake.storage.merge import sections
from tidelake.storage.write import write_buffer

warehouse, runs, texts_are = sys.argv[1], int(sys.argv[2]), sys.argv[3]  # runs: commits that the rows are spread over
ROWS, PARTS, PART_ROWS = 100_000, 100, 1_000
SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])
random = np.random.default_rng(7)
patch.object(write_buffer, "PIECE_ROWS_MAX", 128).start()  # fails if the name no longer exists; an assignment would not
patch.object(sections, "SECTION_MEMORY_BYTES", 2**20).start()
# what a writer waits for where rows compress to nothing
patch.object(parquet_writer, "ROW_GROUP_HELD_BYTES", 2**22).start()


def some_rows():
    # keys of all parts overlap; texts of 500 characters that don't compress well, or to nothing
    letters = random.integers(48, 122, size=PART_ROWS * 500, dtype=np.uint8)
    if texts_are == "alike":
        letters[:] = 48
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
options = {"bucket": "1", "write-buffer-size": "1 mb", "file.block-size": "1 mb", "write-only": "true"}
table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=options)
keys, write_peak = peak_of(write)
rows, read_peak = peak_of(lambda: sum(batch.num_rows for batch in table.scan().to_batches()))
compact_peak = 0
if runs > 1:
    _, compact_peak = peak_of(lambda: table.compact(full=True))
    assert len(table.snapshots()) == runs + 1
    compacted = sum(batch.num_rows for batch in table.scan().to_batches())
    assert compacted == rows
peaks = {"write_peak": write_peak, "read_peak": read_peak, "compact_peak": compact_peak}
print(json.dumps({"keys": keys, "rows": rows, **peaks}))
"""
WRITTEN_BYTES: Final = 100_000 * 508


def run(warehouse: Path, runs: int, texts_are: str = "different") -> dict[str, int]:
    command = [sys.executable, "-c", SCRIPT, str(warehouse), str(runs), texts_are]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    reported: dict[str, int] = json.loads(done.stdout)
    return reported


@pytest.mark.interop  # slow; several commits are tried below
def test_one_commit_may_exceed_the_write_budget_many_times(tmp_path: Path) -> None:
    reported = run(tmp_path, runs=1)
    assert reported["rows"] == reported["keys"]
    assert reported["write_peak"] < WRITTEN_BYTES / 3


@pytest.mark.interop
@pytest.mark.exhaustive
@pytest.mark.parametrize("texts_are", ["different", "alike"])
def test_writing_reading_and_compacting_overlapping_runs_hold_few_of_their_rows(texts_are: str, tmp_path: Path) -> None:
    reported = run(tmp_path, 5, texts_are)
    assert reported["rows"] == reported["keys"]
    assert reported["write_peak"] < WRITTEN_BYTES / 3
    assert reported["read_peak"] < WRITTEN_BYTES / 3
    assert reported["compact_peak"] < WRITTEN_BYTES / 3
