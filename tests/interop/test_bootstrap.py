"""Java reads, streams, continues and compacts a table that was bootstrapped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.shared_table import NAME
from tests.support.java_oracle import JavaOracle

COLUMNS: Final = (Column("k", "INT", pa.int32(), ()), Column("v", "STRING", pa.string(), ()))
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "no changelog": {"bucket": "2"},
    "changelog of the input": {"bucket": "1", "changelog-producer": "input"},
    "changelog by lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "changelog by full compaction": {"bucket": "1", "changelog-producer": "full-compaction"},
    "deletion vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "first rows": {"bucket": "1", "merge-engine": "first-row", "changelog-producer": "lookup"},
    "dynamic buckets": {"bucket": "-1"},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_java_reads_streams_and_continues_what_was_bootstrapped(
    options: Mapping[str, str], new_table: NewTable, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    table = new_table(COLUMNS, primary_key=["k"], options=options)
    rows = [{"k": number % 50, "v": f"é{number}"} for number in range(120)]
    table.ours.bootstrap(pa.Table.from_pylist(rows, pa.schema([("k", pa.int32()), ("v", pa.string())])))
    table.model.write([{"_kind": "+I", **row} for row in _kept(rows, options)])
    table.check()
    table.check_history()
    newer = pa.table({"k": pa.array([1, 100], pa.int32()), "v": ["newer", "new"]})
    if options.get("merge-engine") != "first-row":
        table.java_writes(newer)
        table.java_compacts(full=True)
        table.check()
        table.check_history()
    assert tidelake.open_catalog(str(table.warehouse)).table(NAME).snapshots()[0].commit_kind == "APPEND"


def _kept(rows: list[dict[str, object]], options: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the rows for the model, in which the last row of a key wins."""
    return rows[::-1] if options.get("merge-engine") == "first-row" else rows
