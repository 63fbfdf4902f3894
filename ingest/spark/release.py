"""What the installed release of PySpark can do, and whether Python's workers fit the driver.

3.5, 4.0     the sink, `spark run`, `submit`, `tidelake.spark.read`, changes of rows
4.1          also the Python data sources (`format("tidelake")`, `tidelake-kafka`, `tidelake-changelog-folder`)
4.2          also limits of a stream's batches (`tidelake.spark.read_limits`)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame

from tidelake.errors import UnsupportedFeature

RELEASE: Final = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
RELEASE_MIN: Final = (3, 5)
HAS_DATA_SOURCES: Final = RELEASE >= (4, 1)
HAS_REPARTITION_BY_ID: Final = hasattr(DataFrame, "repartitionById")
_PROBE_SECONDS: Final = 20
_PROBE: Final = (
    "import sys; from importlib.util import find_spec; "
    "print('%d.%d' % sys.version_info[:2], find_spec('tidelake') is not None)"
)
_LOCAL: Final = re.compile(r"local(\[.*)?")


def check_session(session: Any) -> None:
    """Check PySpark's release, and the Python of a session's workers if they run on this machine.

    session: a SparkSession, classic or Connect.

    Raises UnsupportedFeature. The answer for an interpreter is remembered.
    """
    if RELEASE < RELEASE_MIN:
        raise UnsupportedFeature(
            f"PySpark {pyspark.__version__}",
            "tidelake needs PySpark 3.5 or newer",
            "Install one: pip install -U 'tidelake[spark]'",
        )
    try:
        context = session.sparkContext
        is_here, program = _LOCAL.fullmatch(context.master) is not None, str(context.pythonExec)
    except Exception:  # Spark Connect has no context, and its workers run with the server
        return
    if is_here and (problem := _worker_problem(program, os.environ.get("PYTHONPATH", ""))) is not None:
        raise UnsupportedFeature(
            f"Spark's Python workers run {program}, {problem}",
            f"this process runs {sys.executable}, Python {_own_version()}, with tidelake",
            'Before the session starts, set os.environ["PYSPARK_PYTHON"] = sys.executable (or the setting '
            "spark.pyspark.python)",
        )


def check_data_sources(what: str) -> None:
    """Check that this release has what the data sources need. Raises UnsupportedFeature.

    what: as it is called, for the message
    """
    if not HAS_DATA_SOURCES:
        raise UnsupportedFeature(
            what,
            f"it is a Python data source, which needs PySpark 4.1 or newer, and this is PySpark {pyspark.__version__}",
            "Use tidelake.spark.sink to write and tidelake.spark.read to read, which work with PySpark 3.5, or install "
            "a newer PySpark",
        )


def error_condition(error: Any) -> str | None:
    """Return the name of a PySpark error. PySpark 3.5 has another method for it."""
    found: str | None = error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
    return found


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@cache
def _worker_problem(program: str, pythonpath: str) -> str | None:
    """Return why this interpreter can't run our tasks; None if it can, or if that is unknown.

    pythonpath: part of the cache's key
    """
    path = shutil.which(program)
    if path is None or path == sys.executable:
        return None
    try:
        run = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # Spark's own error is about it
    version, has_package = run.stdout.split()
    if version == _own_version() and has_package == "True":
        return None
    return f"which is Python {version}" + ("" if has_package == "True" else " and has no package tidelake")
