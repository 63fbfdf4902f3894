"""The published repository: its tracked files, its version, and how its packages import."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

import tidelake

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("ingest", "checkpoint", "compaction", "storage")

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


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_at_the_top_is_a_package_of_tidelake(name: str) -> None:
    """Another way in (a bare `import storage`) would make a second copy of each class; ruff bans it."""
    link = ROOT / "tidelake" / name
    assert os.readlink(link) == f"../{name}"
    assert importlib.util.find_spec(f"tidelake.{name}") is not None


@pytest.mark.parametrize(
    "package", [path for path in sorted((ROOT / "tests").rglob("*")) if list(path.glob("test_*.py"))]
)
def test_a_folder_of_tests_is_a_package(package: Path) -> None:
    assert (package / "__init__.py").exists(), "without it this folder would hide the package of its name"
