"""The published repository: its tracked files, its version, and how its packages import."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import tidelake

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("tidelake", "ingest", "checkpoint", "compaction", "storage")

NOTES: Final = re.compile(r"(?i)\bnotes\s+(?:sections?\s+)?[a-z]?\d|\bdesign,?\s+section\b")
MACHINE_PATH: Final = re.compile(r"(?<![\w.~$}>-])/(?:root|home/\w+|Users/\w+|work|farm)/|\.\.[/]shared")


def tracked_files() -> list[Path]:
    """Tracked files, and new ones that are not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / os.fsdecode(name) for name in listing.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_tracked_file_names_a_path_of_somebody_s_machine() -> None:
    found = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data or path.suffix == ".jsonl":  # packed material, recorded values
            continue
        for number, line in enumerate(data.decode("utf-8").splitlines(), 1):
            if match := MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        pytest.param('open("/' + 'home/ada/data.json")', True, id="a home directory"),
        pytest.param("see .." + "/shared/notes.md", True, id="a folder beside the repository"),
        pytest.param("/opt/spark/" + "work/app-1", False, id="work inside another path"),
        pytest.param("$HOME/" + "work/x", False, id="a path below a variable"),
    ],
)
def test_a_machine_s_path_is_recognised(line: str, is_found: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is is_found


MODULE_LINES_MAX: Final = 450
PACKAGE_MODULES_MAX: Final = 16


def test_modules_and_packages_stay_within_their_size_limits() -> None:
    modules = [path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES]
    long = {path for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > MODULE_LINES_MAX}
    assert {str(path.relative_to(ROOT)) for path in long} == set()
    sizes = Counter(path.parent for path in modules if path.name != "__init__.py")
    assert {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > PACKAGE_MODULES_MAX} == {}


LAYERED_FROM: Final = 4  # number of modules and packages from which a package needs an import contract


def test_each_larger_package_has_an_import_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layered = {name for one in settings["contracts"] if one.get("exhaustive") for name in one["containers"]}
    modules = [path.relative_to(ROOT) for path in tracked_files() if path.suffix == ".py"]
    inside = [path.parent if path.name == "__init__.py" else path for path in modules if path.parts[0] in PACKAGES]
    sizes = Counter(".".join(path.parent.parts) for path in inside)
    large = {package for package, n in sizes.items() if package and n >= LAYERED_FROM}
    assert large - layered == set()
    assert layered - sizes.keys() == set()


def test_no_source_cites_missing_notes() -> None:
    sources = [path for path in tracked_files() if path.suffix in (".py", ".md") and path != Path(__file__)]
    texts = ((path, path.read_text(encoding="utf-8")) for path in sources)
    assert [f"{path.relative_to(ROOT)}: {match[0]!r}" for path, text in texts for match in NOTES.finditer(text)] == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        pytest.param("Source: merge-engines notes 6.3.", True, id="by number"),
        pytest.param("storage-format notes\nsection 2", True, id="by section, over a line's end"),
        pytest.param("spark notes B6 to B8", True, id="by letter"),
        pytest.param("costs more (design, section 7)", True, id="the design"),
        pytest.param("breaks that a person accepted are notes.", False, id="the plain word"),
    ],
)
def test_a_citation_of_notes_is_recognised(text: str, is_found: bool) -> None:
    assert bool(NOTES.search(text)) is is_found


def test_the_version_is_the_one_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tidelake.__version__ == importlib.metadata.version("tidelake") == project["version"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_where_the_working_directory_has_a_folder_of_its_name(package: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "data.txt").write_text("not a package")
    program = f"import {package}; print({package}.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).parent == ROOT / package


@pytest.mark.parametrize(
    "package", [path for path in sorted((ROOT / "tests").rglob("*")) if list(path.glob("test_*.py"))]
)
def test_a_folder_of_tests_is_a_package(package: Path) -> None:
    assert (package / "__init__.py").exists(), "without it this folder would hide the package of its name"
