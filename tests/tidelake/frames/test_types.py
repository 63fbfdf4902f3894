"""The types of a user's code are checked by pyright, too. mypy checks the sample with all other files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.interop
@pytest.mark.needs("pyright")
def test_pyright_finds_no_error_in_the_sample() -> None:
    sample = Path(__file__).parent / "sample_types.py"
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(sample)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
