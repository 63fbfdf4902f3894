"""Comparing a changelog with its table needs the same memory for millions of rows as for few."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

import tidelake

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
COMMITS: Final = 40
ROWS: Final = 50_000  # of a commit
TEXT_BYTES: Final = 200
PEAK_BYTES: Final = 600_000_000  # less than the changes and the rows they come to, in memory
REPOSITORY: Final = Path(__file__).parents[4]

# In a process of its own, whose peak is that of the check.
CHECK: Final = """
import json, sys
import tidelake
from tidelake.storage.maintenance.verify.changelog_check import check_changelog
from benchmarks.clock import peak_memory_mib
report = check_changelog(tidelake.open_catalog(sys.argv[1]).table("db.t").context)
print(json.dumps([peak_memory_mib(), report.keys, report.changes, report.differing]))
"""


def commit_of(random: np.random.Generator) -> pa.Table:
    """Random keys, and letters that hardly compress."""
    offsets = pa.py_buffer(np.arange(0, ROWS * TEXT_BYTES + 1, TEXT_BYTES, dtype=np.int32))
    letters = random.integers(48, 91, size=ROWS * TEXT_BYTES, dtype=np.uint8)
    texts = pa.Array.from_buffers(pa.string(), ROWS, [None, offsets, pa.py_buffer(letters)])
    return pa.table([random.choice(COMMITS * ROWS // 2, ROWS, replace=False), texts], schema=SCHEMA)


@pytest.mark.long
def test_two_million_changes_are_compared_in_bounded_memory(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    random = np.random.default_rng(13)
    with table.writer() as writer:
        for _ in range(COMMITS):
            writer.write(commit_of(random))
            writer.commit()
    sound = check(tmp_path)
    assert sound[2:] == (COMMITS * ROWS, 0)
    with tidelake.Table(table.context.with_options({"changelog-producer": "none"})).writer() as writer:
        writer.write(commit_of(random))
        writer.commit()
    assert check(tmp_path)[2:] == (COMMITS * ROWS, ROWS)  # all ranges of keys differ


def check(warehouse: Path) -> tuple[float, int, int, int]:
    command = [sys.executable, "-c", CHECK, str(warehouse)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    peak_mib, keys, changes, differing = json.loads(done.stdout)
    stored = sum(path.stat().st_size for path in warehouse.rglob("*.parquet"))
    sys.stdout.write(f"{keys:,} keys of {stored / 1e6:.0f} MB of files at a peak of {peak_mib:.0f} MiB\n")
    assert peak_mib * 2**20 <= PEAK_BYTES
    return peak_mib, keys, changes, differing
