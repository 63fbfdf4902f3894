"""A compaction of gigabytes needs no more memory than one of megabytes, with files of any writer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake.storage.maintenance.verify import verify

NAME: Final = "db.t"
SCHEMA: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
TEXT_BYTES: Final = 500
BATCH_ROWS: Final = 20_000
PEAK_BYTES: Final = 600_000_000
REPOSITORY: Final = Path(__file__).parents[2]
OPTIONS: Final = {"bucket": "1", "write-only": "true"}

# In a process of its own, whose peak is that of the compaction.
COMPACT: Final = """
import json, sys
import tidelake
from benchmarks.clock import peak_memory_mib
table = tidelake.open_catalog(sys.argv[1]).table(sys.argv[2])
report = table.compact(full=True)
print(json.dumps([peak_memory_mib(), sum(one.bytes_before for one in report.buckets)]))
"""


def batches(total_bytes: int) -> Iterator[pa.Table]:
    """Random keys of a tenth of the rows that there are, and letters that hardly compress."""
    random = np.random.default_rng(11)
    count = total_bytes // (BATCH_ROWS * (TEXT_BYTES + 8))
    offsets = pa.py_buffer(np.arange(0, BATCH_ROWS * TEXT_BYTES + 1, TEXT_BYTES, dtype=np.int32))
    for _ in range(count):
        letters = random.integers(48, 91, size=BATCH_ROWS * TEXT_BYTES, dtype=np.uint8)
        texts = pa.Array.from_buffers(pa.string(), BATCH_ROWS, [None, offsets, pa.py_buffer(letters)])
        keys = random.integers(0, count * BATCH_ROWS, BATCH_ROWS)
        yield pa.table([keys, texts], schema=SCHEMA)


def check_compaction(warehouse: Path) -> None:
    table = tidelake.open_catalog(str(warehouse)).table(NAME)
    command = [sys.executable, "-c", COMPACT, str(warehouse), NAME]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    peak_mib, read_bytes = json.loads(done.stdout)
    sys.stdout.write(f"{read_bytes / 1e9:.1f} GB of files compacted at a peak of {peak_mib:.0f} MiB\n")
    assert peak_mib * 2**20 <= PEAK_BYTES
    assert verify(table.context) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_five_gigabytes_of_overlapping_runs_are_compacted_in_bounded_memory(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["k"], options=OPTIONS)
    with table.writer() as writer:
        for number, rows in enumerate(batches(6_800_000_000), 1):  # compression removes a quarter
            writer.write(rows)
            if number % 60 == 0:
                writer.commit()
        writer.commit()
    check_compaction(tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_javas_row_groups_of_128_mib_are_compacted_in_bounded_memory(tmp_path: Path, java_oracle: JavaOracle) -> None:
    columns: list[dict[str, object]] = [
        {"name": "k", "type": "BIGINT", "nullable": False},
        {"name": "v", "type": "STRING"},
    ]
    java_oracle.create(tmp_path, NAME, columns, primary_keys=["k"], options=OPTIONS)
    for rows in _joined(batches(1_500_000_000), 25):
        java_oracle.write(tmp_path, NAME, rows, commit_user="java")
    check_compaction(tmp_path)


def _joined(parts: Iterator[pa.Table], count: int) -> Iterator[Iterator[dict[str, object]]]:
    """Rows of so many tables at a time."""
    while (first := next(parts, None)) is not None:

        def rows(first: pa.Table = first) -> Iterator[dict[str, object]]:
            yield from first.to_pylist()
            for _ in range(count - 1):
                yield from next(parts, first.slice(0, 0)).to_pylist()

        yield rows()
