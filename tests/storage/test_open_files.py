"""A bucket of more files than a process may open is read and compacted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

# In a process of its own, whose limit is low.
SCRIPT: Final = """
import os, resource, sys
from unittest.mock import patch
import pyarrow as pa
import tidelake
from tidelake.storage.merge import multi_pass_merge

warehouse, engine, threshold = sys.argv[1:]
patch.object(multi_pass_merge, "FAN_IN", 12).start()  # fails if the name no longer exists
FILES = 40
SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string())])
catalog = tidelake.open_catalog(warehouse)
catalog.create_database("db")
options = {"bucket": "1", "write-only": "true", "merge-engine": engine}
options |= {"sort-spill-threshold": threshold} if threshold else {}
options |= {"fields.v.aggregate-function": "listagg"} if engine == "aggregation" else {}
table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=options)
with table.writer() as writer:
    for number in range(FILES):
        writer.write(pa.table([[0, 1 + number, 1000], [str(number), "x", "y"]], schema=SCHEMA))
        writer.commit()

newest = ",".join(map(str, range(FILES))) if engine == "aggregation" else str(FILES - 1)
open_now = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 24, open_now + 24))
for compacted in (False, True):
    rows = table.scan().to_arrow().to_pylist()
    assert [row["k"] for row in rows] == [*range(FILES + 1), 1000], rows
    assert rows[0]["v"] == newest, rows[0]
    if not compacted:
        table.compact(full=True)
        assert sum(len(split.files) for split in table.scan().splits()) == 1
"""


@pytest.mark.interop
@pytest.mark.parametrize(
    ("engine", "threshold"),
    [
        pytest.param("deduplicate", "", id="by itself"),
        pytest.param("aggregation", "10", id="as the table's option says, and texts are joined in order"),
    ],
)
def test_more_runs_than_allowed_open_files_are_merged(engine: str, threshold: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), engine, threshold]
    subprocess.run(command, check=True)
