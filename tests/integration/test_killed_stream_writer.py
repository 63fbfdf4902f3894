"""A query into `format("tidelake")` whose driver is killed at each step of a batch: each row once, a snapshot a batch.

The table has no key, and rows come again in the next batch: what is written twice shows, and so does lost state.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.crash.points import Points

_SCHEMA: Final = pa.schema([("k", pa.string()), ("n", pa.int64())])
_BATCHES: Final = 6
_ROWS: Final = 40
_KILLS: Final = (("task", 0), ("files", 1), ("publish", 2), ("publish", 3), ("files", 5), ("publish", 5))


def rows_of(batch: int) -> list[dict[str, Any]]:
    """The first half was in the batch before."""
    return [{"k": f"ü{n % 7}", "n": n} for n in range(batch * _ROWS // 2, batch * _ROWS // 2 + _ROWS)]


@pytest.mark.long
@pytest.mark.needs("Spark")
@pytest.mark.timeout(1800)
def test_a_killed_query_goes_on_as_if_nothing_had_happened(tmp_path: Path, points: Points) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("s")
    table = catalog.create_table("s.t", _SCHEMA)
    (tmp_path / "in").mkdir()
    for batch in range(_BATCHES):
        path = tmp_path / "in" / f"{batch}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(batch)), encoding="utf-8")
        os.utime(path, (batch + 1, batch + 1))  # Spark reads files in the order of their times
    command = [sys.executable, "-m", "tests.integration.stream_writer_driver", str(tmp_path)]
    for step, batch in (*_KILLS, ("none", 0)):
        run = subprocess.run(
            [*command, step, str(batch)], capture_output=True, text=True, start_new_session=True, check=False
        )
        assert run.returncode == (0 if step == "none" else -signal.SIGKILL), (step, batch, run.stderr[-3000:])
        points.tried(f"stream writer: {step}")
    found = sorted((row["n"], row["k"]) for row in table.scan().to_arrow().to_pylist())
    assert found == [(n, f"ü{n % 7}") for n in range((_BATCHES + 1) * _ROWS // 2)]
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == list(range(_BATCHES))
