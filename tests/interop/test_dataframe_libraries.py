"""Ray, Dask, Daft and PyTorch read a table: each row once, by several tasks, workers and nodes.

They are in an environment of their own (`tools/dataframes`), PyTorch in that of the system (Debian's package
python3-torch), and import our packages from the one of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.external_services import SYSTEM_PYTHON
from tests.support.tools import TOOLS, build_tool

pytestmark = pytest.mark.interop

ROWS: Final = 300
IDS: Final = list(range(ROWS))
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ok", pa.bool_(), nullable=False),
        pa.field("price", pa.float32(), nullable=False),
        ("text", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three files."""
    folder = tmp_path_factory.mktemp("lake")
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA)
    for start in range(0, ROWS, 100):
        table.append([{"id": i, "ok": True, "price": 0.5, "text": "é"} for i in range(start, start + 100)])
    return folder


def read(python: str, library: str, warehouse: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TOOLS.parent), *(p for p in sys.path if "site-packages" in p)]),
    }
    command = [python, str(TOOLS / "dataframes" / "read.py"), library, str(warehouse)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def python() -> str:
    return build_tool(TOOLS / "dataframes" / "build").splitlines()[-1]


@pytest.mark.timeout(700)
def test_ray_reads_by_as_many_tasks_as_asked_for(python: str, warehouse: Path) -> None:
    assert read(python, "ray", warehouse) == {
        "ids": IDS,
        "tasks": 3,
        "schema": ["int64", "bool", "float", "string"],
        "filtered": 50,
        "mapped": 2 * sum(IDS),
        "empty": 0,
    }


@pytest.mark.timeout(700)
def test_dask_reads_groups_of_splits(python: str, warehouse: Path) -> None:
    assert read(python, "dask", warehouse) == {"ids": IDS, "tasks": 3, "mapped": 2 * sum(IDS)}


@pytest.mark.timeout(700)
def test_daft_reads_arrow(python: str, warehouse: Path) -> None:
    assert read(python, "daft", warehouse) == {"ids": IDS, "mapped": 2 * sum(IDS)}


@pytest.mark.needs("PyTorch")
@pytest.mark.timeout(700)
def test_pytorch_reads_each_row_by_one_worker_of_one_node(warehouse: Path) -> None:
    assert read(SYSTEM_PYTHON, "torch", warehouse) == {
        "fork": IDS,
        "spawn": IDS,
        "types": ["torch.int64", "torch.bool", "torch.float32"],
        "rows": IDS,
        "nodes": [100, 100, 100],
        "of all nodes": IDS,
        "distributed": ROWS,
        "again": True,
        "orders": [True, True, True],
    }
