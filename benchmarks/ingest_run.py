"""Runs a pipeline in a separate process, so that its peak memory does not include the expected rows."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from benchmarks.clock import Clock, tell
from benchmarks.contest import PIPELINE_PYTHON
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run

_MODULE: Final = "benchmarks.ingest_run"


def run_apart(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a pipeline in a separate process. Returns its report (`clock.tell`), with `checkpoints`.

    settings: the configuration of the pipeline.
    """
    command = [*PIPELINE_PYTHON, _MODULE, json.dumps(settings)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    reported: dict[str, Any] = json.loads(output.splitlines()[-1])
    return reported


if __name__ == "__main__":
    pa.array([None])  # Arrow imports pandas for its first list: half a second, not to be measured
    clock = Clock()
    with clock:
        progress = asyncio.run(run(parse_config(sys.argv[1], "benchmark")))  # JSON is YAML
    tell(progress.rows, clock, checkpoints=progress.checkpoints)
