"""An orphan cleaner beside an open writer: its commit succeeds with all rows, or fails by name and publishes nothing.

A cleaner whose `--older-than` is shorter than a commit deletes files of running commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.verification import inspect_table

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
EARLY = {
    "write-buffer-size": "10 kb",
    "page-size": "1 kb",
    "write-buffer-spillable": "false",
}  # rows are in files before the commit
TABLES: Mapping[str, tuple[bool, Mapping[str, str]]] = {
    "primary key": (True, {"bucket": "1"}),
    "primary key, files before the commit": (True, {"bucket": "1", **EARLY}),
    "append, files before the commit": (False, EARLY),
    "append, several files": (False, {"target-file-size": "20 kb", **EARLY}),
    "changelog of the input": (True, {"bucket": "1", "changelog-producer": "input", **EARLY}),
    "dynamic buckets": (True, {"bucket": "-1", **EARLY}),
    "compacted while written": (True, {"bucket": "1", "num-sorted-run.compaction-trigger": "2", **EARLY}),
    "deletion vectors": (True, {"bucket": "1", "deletion-vectors.enabled": "true", **EARLY}),
}


def rows(start: int) -> pa.Table:
    return pa.table({"k": range(start, start + 500), "v": ["x" * 100] * 500}, COLUMNS)


@pytest.mark.parametrize(("has_key", "options"), TABLES.values(), ids=TABLES)
def test_a_commit_has_all_of_its_rows_or_fails_by_name(
    has_key: bool, options: Mapping[str, str], tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    key = ["k"] if has_key else []
    table = catalog.create_table("d.t", COLUMNS, primary_key=key, options=options)
    expected = 0
    for round_number in range(3):
        with suppress(tidelake.TidelakeError), table.writer() as writer:
            for start in (0, 500):
                writer.write(rows(round_number * 1000 + start))
            removed = table.clean_orphans(older_than_ms=0).paths
            writer.write(rows(round_number * 1000 + 200))
            if removed:
                with pytest.raises(tidelake.CommitConflict, match=r"was deleted before it was committed.*--older-than"):
                    writer.commit()
            else:
                writer.commit()
                expected += 1000 if has_key else 1500
        assert table.scan().to_arrow().num_rows == expected
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []
    with table.writer() as writer:
        writer.write(rows(10_000))
        writer.commit()
    assert table.scan().to_arrow().num_rows == expected + 500
