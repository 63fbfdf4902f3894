"""The notebooks show what their cells give."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.interop
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_give(notebook: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path), "COLUMNS": "100"}
    command = [sys.executable, str(EXAMPLES / "run.py"), str(notebook), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=EXAMPLES.parent, check=False)
    assert run.returncode == 0, run.stderr


def test_there_is_a_notebook() -> None:
    assert list(EXAMPLES.glob("*.ipynb"))
