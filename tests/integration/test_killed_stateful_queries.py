"""Queries with state whose driver is killed at each step of a batch: each row of the result once, and the right counts.

The table of the join has no key, so a batch that is written twice would show.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.crash.points import Points

_SCHEMA: Final = pa.schema([("w", pa.string()), ("k", pa.string()), ("n", pa.int64())])
_BATCHES: Final = 6
_KILLS: Final = (("plan", 1), ("write", 2), ("commit", 3))  # (step, batch)

Row = dict[str, Any]


def rows_of(batch: int) -> list[Row]:
    """Keys come again in later batches, so that each batch needs the state of those before."""
    rows = []
    for i in range(12):
        n = batch * 12 + i
        rows.append({"t": f"2026-01-01T00:{n % 50:02}:00Z", "k": f"k{n % 7 + batch}", "n": n, "side": "lr"[n % 2]})
    return rows


def expected(query: str, rows: Sequence[Row]) -> Counter[tuple[str, str, int]]:
    if query == "windows":
        counts = Counter((f"2026-01-01 00:{int(row['t'][14:16]) // 10 * 10:02}:00", row["k"]) for row in rows)
        return Counter((w, k, n) for (w, k), n in counts.items())
    sides = {side: [row for row in rows if row["side"] == side] for side in "lr"}
    pairs = ((left, right) for left in sides["l"] for right in sides["r"] if left["k"] == right["k"])
    return Counter((str(right["n"]), left["k"], left["n"]) for left, right in pairs)


@pytest.mark.long
@pytest.mark.needs("Spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("query", ["windows", "join"])
def test_a_killed_query_with_state_goes_on_as_if_nothing_had_happened(
    query: str, tmp_path: Path, points: Points
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("s")
    key = ["w", "k"] if query == "windows" else []
    table = catalog.create_table("s.t", _SCHEMA, primary_key=key, options={"bucket": "2" if key else "-1"})
    (tmp_path / "in").mkdir()
    for batch in range(_BATCHES):
        path = tmp_path / "in" / f"{batch}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(batch)))
        os.utime(path, (batch + 1, batch + 1))  # Spark reads files in the order of their times
    command = [sys.executable, "-m", "tests.integration.stateful_driver", str(tmp_path), query]
    for step, batch in (*_KILLS, ("none", 0)):
        run = subprocess.run(
            [*command, step, str(batch)], capture_output=True, text=True, start_new_session=True, check=False
        )
        assert run.returncode == (0 if step == "none" else -signal.SIGKILL), (step, run.stderr[-3000:])
        points.tried(f"stateful {query}: {step}")
    found = Counter((row["w"], row["k"], row["n"]) for row in table.scan().to_arrow().to_pylist())
    assert found == expected(query, [row for batch in range(_BATCHES) for row in rows_of(batch)])
