"""Each supported release of PySpark, and Spark Connect: what works, and the errors for what does not."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.support.tools import TOOLS, build_tool

PYSPARK: Final = TOOLS / "pyspark"
STEPS: Final = (
    *("register", "write", "read", "append", "sink of typed rows", "sink of change records"),
    *("replay of a batch with state", "stream of changes", "append of a stream", "metrics"),
    *("delete, update, merge", "compact", "read natively", "views of a lake", "spark run"),
)
REFUSED: Final = {
    ("connect", "spark run"): "UnsupportedFeature: a pipeline on Spark Connect",
    ("connect", "metrics"): "UnsupportedFeature: MetricsListener on Spark Connect",
}
"""(kind of session, step) to what the error says."""
REFUSED_WITHOUT_DATA_SOURCES: Final = {
    "register": "UnsupportedFeature: tidelake.spark.register: it is a Python data source, which needs PySpark 4.1",
    **dict.fromkeys(("read", "append", "stream of changes", "append of a stream"), "DATA_SOURCE_NOT_FOUND"),
}
"""Of PySpark before 4.1, by step."""


SLOW_PYTHON: Final = "Python worker failed to connect back"
"""Of Spark, which gives a Python process ten seconds to start: on a busy machine that is no finding."""


def installed_in_name(folder: Path) -> Path:
    """Metadata with the version of this package, next to the code of this repository."""
    info = folder / f"tidelake-{version('tidelake')}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tidelake\nVersion: {version('tidelake')}\n")
    return folder


@pytest.mark.long
@pytest.mark.needs("Spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("release", "kind"),
    [
        ("3.5.6", "classic"),
        ("4.0.1", "classic"),
        *((release, kind) for release in ("4.1.4", "4.2.1", "4.3.0") for kind in ("classic", "connect")),
    ],
)
def test_each_release_does_what_the_documentation_promises(release: str, kind: str, tmp_path: Path) -> None:
    connect = "[connect]" if release >= "4.1" else ""
    python = build_tool(PYSPARK / "build", f"pyspark{connect}=={release}")
    paths = [str(TOOLS.parent), str(installed_in_name(tmp_path / "packages"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"}
    for attempt in range(5):
        home = tmp_path / str(attempt)
        home.mkdir()
        command = [python, str(PYSPARK / "smoke.py"), kind, str(home)]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if SLOW_PYTHON not in run.stdout:
            break
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["pyspark"] == release
    assert found["steps"].keys() == set(STEPS)
    refused = REFUSED_WITHOUT_DATA_SOURCES if release < "4.1" else {}
    for step, outcome in found["steps"].items():
        assert refused.get(step, REFUSED.get((kind, step), "done")) in outcome, (step, outcome)
