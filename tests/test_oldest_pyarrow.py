"""The oldest pyarrow that pyproject.toml allows. Everything else runs with the newest one."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
SUITE: Final = (  # what calls Arrow in ways that its releases differ in: files, filters, merges, compactions
    "tests/storage/files/formats/test_parquet.py",
    "tests/storage/files/formats/test_parquet_large_values.py",
    "tests/storage/files/test_reader.py",
    "tests/storage/files/test_statistics.py",
    "tests/storage/merge",
    "tests/storage/read/test_conditions.py",
    "tests/storage/read/test_merge_engines.py",
    "tests/storage/read/test_scan.py",
    "tests/tidelake/test_row_changes.py",
    "tests/tidelake/test_writer.py",
)


def lower_bound(package: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = (one.removeprefix(f"{package}>=") for one in project["dependencies"] if one.startswith(f"{package}>="))
    return str(bound)


def test_pyarrow_has_no_upper_bound() -> None:
    assert lower_bound("pyarrow").replace(".", "").isdigit()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_tables_are_written_and_read_with_the_oldest_pyarrow(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--only-binary=:all:", f"pyarrow=={lower_bound('pyarrow')}"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "packages_of_the_tests.pth").write_text("\n".join([str(ROOT), *others]) + "\n")
    found = subprocess.run(
        [str(python), "-c", "import pyarrow; print(pyarrow.__version__)"], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == lower_bound("pyarrow")
    of_this_run = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "t"),
    ]
    run = subprocess.run([*command, *SUITE], cwd=ROOT, env=of_this_run, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
