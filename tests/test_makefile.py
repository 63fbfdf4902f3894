"""The output of `make` for a newcomer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP_LOG = """\
Obtaining file:///tidelake
  Installing build dependencies: started
Collecting pyarrow>=20 (from tidelake==0.1.0)
  Downloading pyarrow-22.0.0-cp311-cp311-manylinux_2_28_x86_64.whl (47.6 MB)
Collecting rich
  Using cached rich-14.2.0-py3-none-any.whl.metadata (18 kB)
Installing collected packages: pyarrow, rich, tidelake
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment whose python only says what pip says."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    return tmp_path


def make_runtime(venv: Path, *, exit_code: int) -> subprocess.CompletedProcess[str]:
    python = venv / "bin" / "python"
    python.write_text(f"#!/bin/sh\ncat <<'EOF'\n{PIP_LOG}EOF\necho 'ERROR: no more' >&2\nexit {exit_code}\n")
    python.chmod(0o755)
    command = ["make", f"VENV={venv}", f"{venv}/.runtime"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_installing_shows_progress_instead_of_pip_output(venv: Path) -> None:
    run = make_runtime(venv, exit_code=0)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[-1] == "   2 packages checked"
    assert "manylinux" not in run.stdout
    assert (venv / ".runtime").exists()


def test_a_failed_installation_shows_the_pip_output(venv: Path) -> None:
    run = make_runtime(venv, exit_code=1)
    assert run.returncode != 0
    assert PIP_LOG in run.stderr
    assert "ERROR: no more" in run.stderr
    assert not (venv / ".runtime").exists()
