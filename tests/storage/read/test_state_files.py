"""Which files of a state a read takes: the table of docs/reading-changes.md."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.read.state_files import StateFiles

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
VECTORS = {"deletion-vectors.enabled": "true"}
MERGED = {**VECTORS, "deletion-vectors.merge-on-read": "true"}
FIRST_ROW = {"merge-engine": "first-row"}
POSTPONE = {"bucket": "-2"}

SCAN, START, ALL = StateFiles.VISIBLE, StateFiles.STREAM_START, StateFiles.ALL

STARTS = {"none": [0, 1, 2], "input": [0, 1, 2], "lookup": [1, 2], "full-compaction": [2]}

# which of the levels 0, 1, 2 (the highest)
LEVELS = [
    pytest.param(SCAN, {}, [0, 1, 2], id="a scan"),
    pytest.param(SCAN, VECTORS, [1, 2], id="a scan with deletion vectors"),
    pytest.param(SCAN, MERGED, [0, 1, 2], id="a scan with deletion vectors that merges"),
    pytest.param(SCAN, FIRST_ROW, [1, 2], id="a scan of first rows"),
    *(
        pytest.param(START, {"changelog-producer": producer, **options}, levels, id=f"a start, {producer}, {name}")
        for producer, levels in STARTS.items()
        for name, options in (("plain", {}), ("deletion vectors", VECTORS), ("first-row", FIRST_ROW))
        if (producer, name) not in [("full-compaction", "deletion vectors"), ("full-compaction", "first-row")]
        and (producer, name) != ("input", "first-row")
    ),
    *(
        pytest.param(ALL, options, [0, 1, 2], id=f"a difference, {name}")
        for name, options in (("plain", {}), ("deletion vectors", VECTORS), ("first-row", FIRST_ROW))
    ),
]


def table_of(tmp_path: Path, options: dict[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    given = {"bucket": "1", "num-levels": "3", **options}
    return catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=given)


@pytest.mark.parametrize(("files", "options", "levels"), LEVELS)
def test_a_read_takes_these_levels(
    files: StateFiles, options: dict[str, str], levels: list[int], tmp_path: Path
) -> None:
    context = table_of(tmp_path, options).context
    assert [level for level in range(3) if files.include_level(level, context)] == levels


POSTPONED = [
    pytest.param(SCAN, "none", False, id="not in a scan"),
    pytest.param(START, "none", True, id="in a start, as no later change repeats them"),
    pytest.param(START, "input", False, id="not in a start, input"),
    pytest.param(START, "lookup", False, id="not in a start, lookup"),
    pytest.param(START, "full-compaction", False, id="not in a start, full-compaction"),
    pytest.param(ALL, "none", False, id="not in a difference"),
]


@pytest.mark.parametrize(("files", "producer", "expected"), POSTPONED)
def test_rows_that_wait_for_a_bucket_are_read(files: StateFiles, producer: str, expected: bool, tmp_path: Path) -> None:
    context = table_of(tmp_path, {**POSTPONE, "changelog-producer": producer}).context
    assert files.include_postponed(context) is expected
