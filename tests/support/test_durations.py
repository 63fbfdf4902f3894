"""The end of a run reports the longest tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.durations import SHOWN


@pytest.mark.interop
def test_the_end_of_a_run_shows_the_longest_modules_and_the_end_of_each_worker(tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / f"test_{number}.py").write_text("def test_nothing(): pass\n")
    (tmp_path / "test_slow.py").write_text("import time\ndef test_slow(): time.sleep(1)\n")
    options = ["-p", "tests.support.durations", "-n", "2", "--dist", "loadfile", "-c", "/dev/null"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    summary = run.stdout.partition("longest modules")[2].splitlines()
    assert summary[1].split() == ["1", "s", "test_slow.py"]
    assert len(summary) == 1 + SHOWN + 2
    assert re.fullmatch(r"last tests ended: gw0 after \d+ s, gw1 after \d+ s", summary[1 + SHOWN])
