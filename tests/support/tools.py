"""The programs in tools/ that tests use: their location, and building one before its first use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def build_tool(*command: str | Path) -> str:
    """Run a tool's script, quick when its parts are in the cache; what it prints. Fails the test when it cannot."""
    environment = {**os.environ, "PYTHON": sys.executable}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode:
        pytest.fail(f"{Path(command[0]).relative_to(TOOLS.parent)} failed:\n{run.stderr.strip()}", pytrace=False)
    return run.stdout.strip()
