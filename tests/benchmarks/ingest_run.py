"""One run of a pipeline in its own process, so that the peak memory is that of the pipeline, without the
expected rows.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from ingest.config.config import parse_config
from ingest.pipeline.builder import run
from tests.benchmarks.clock import Clock, tell
from tests.benchmarks.contest import PIPELINE_PYTHON

_MODULE: Final = "tests.benchmarks.ingest_run"


def run_apart(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The report of such a process (`clock.tell`), and `checkpoints`. settings: a configuration of the pipeline."""
    command = [*PIPELINE_PYTHON, _MODULE, json.dumps(settings)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    reported: dict[str, Any] = json.loads(output.splitlines()[-1])
    return reported


if __name__ == "__main__":
    pa.array([None])  # the first list makes Arrow import pandas where it is installed: half a second that is not ours
    clock = Clock()
    with clock:
        progress = asyncio.run(run(parse_config(sys.argv[1], "benchmark")))  # JSON is YAML
    tell(progress.rows, clock, checkpoints=progress.checkpoints)
