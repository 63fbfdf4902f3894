"""The memory for rows of many megabytes: written, read and compacted, it is a small multiple of the largest row, not of
all rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

SCRIPT: Final = """
import gc, json, sys
import numpy as np
import pyarrow as pa
import tidelake

warehouse, row_mib, rows, buffer_mib, options = sys.argv[1], *map(int, sys.argv[2:5]), json.loads(sys.argv[5])
is_read = sys.argv[6] == "True"


def memory_mib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


class Peak:
    # mib: what was held at a time at most, beyond what was held before.

    def __enter__(self):
        gc.collect()
        pa.default_memory_pool().release_unused()
        with open("/proc/self/clear_refs", "w") as peaks:
            peaks.write("5")
        self._before = memory_mib("VmRSS")
        return self

    def __exit__(self, *_):
        self.mib = memory_mib("VmHWM") - self._before


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
    with Peak() as written:
        for key in range(rows):
            writer.write(large(key))
        writer.commit(2)


def peak_of_reading():
    batches = table.scan().to_batches()
    with Peak() as peak:
        for batch in batches:
            del batch
    return peak.mib


read = compacted = read_at_once = 0
if is_read:
    with table.writer(commit_user="w") as writer:
        for key in range(rows):
            writer.write(large(key))
        writer.commit(3)
    read = peak_of_reading()
    with Peak() as peak:
        table.compact(full=True)
    compacted = peak.mib
    read_at_once = peak_of_reading()
keys = sorted(row for batch in table.scan(columns=["k"]).to_batches() for row in batch.column(0).to_pylist())
last = table.scan(columns=["text"], filter=tidelake.col("k") == rows - 1).to_arrow().column(0)[0].as_py()
assert last[-1] == str((rows - 1) % 10) and len(last) == row_mib << 20
peaks = {"written": written.mib, "read": read, "compacted": compacted, "read_at_once": read_at_once}
print(json.dumps({**peaks, "keys": keys}))
"""


def run(
    warehouse: Path,
    row_mib: int,
    rows: int,
    buffer_mib: int,
    *,
    is_read: bool = False,
    options: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """The memory that each step took at a time, in MiB.

    is_read: whether they are written twice, read as two runs, compacted, and read as one.
    """
    arguments = [str(warehouse), str(row_mib), str(rows), str(buffer_mib), json.dumps(options or {}), str(is_read)]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    reported: dict[str, Any] = json.loads(done.stdout)
    assert reported.pop("keys") == [-1, *range(rows)]
    return reported


def bound_mib(buffer_mib: int, row_mib: int) -> int:
    """The buffer and three rows: the one that the caller creates, the one being encoded, and the encoded result."""
    return buffer_mib + 3 * row_mib


@pytest.mark.interop
@pytest.mark.parametrize("producer", ["none", "input"])
def test_writing_large_rows_needs_the_buffer_and_three_rows(producer: str, tmp_path: Path) -> None:
    peaks = run(tmp_path, 40, 4, 48, options={"changelog-producer": producer})
    assert peaks["written"] < bound_mib(48, 40)


@pytest.mark.interop
def test_a_compaction_of_large_rows_alternates_with_their_flushes(tmp_path: Path) -> None:
    options = {"write-only": "false", "num-sorted-run.compaction-trigger": "2"}
    assert run(tmp_path, 40, 5, 48, options=options)["written"] < bound_mib(48, 40)


@pytest.mark.interop
def test_the_memory_for_large_rows_does_not_depend_on_the_number_of_runs(tmp_path: Path) -> None:
    peaks = run(tmp_path, 24, 6, 32, is_read=True)
    assert {step: mib for step, mib in peaks.items() if mib >= bound_mib(32, 24)} == {}


@pytest.mark.long
@pytest.mark.parametrize("row_mib", [50, 75])
@pytest.mark.parametrize("write_only", ["true", "false"])
def test_twelve_large_rows_pass_a_buffer_of_64_mib(row_mib: int, write_only: str, tmp_path: Path) -> None:
    options = {"write-only": write_only, "num-sorted-run.compaction-trigger": "2"}
    peaks = run(tmp_path, row_mib, 12, 64, is_read=True, options=options)
    assert {step: mib for step, mib in peaks.items() if mib >= bound_mib(64, row_mib)} == {}
