"""Pages that are generated from the code are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tidelake.ingest import settings, source_settings
from tidelake.ingest.formats.base import FailureKind
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, TABLE_REGISTRY

DOCS = Path(__file__).parent.parent / "docs"
FOLDERS: Final = ("tidelake", "ingest", "checkpoint", "compaction", "storage")


def test_the_reference_pages_are_current() -> None:
    run = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_every_setting_has_its_line() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    defined = {**vars(settings), **vars(source_settings)}.values()
    structs = [kind for kind in defined if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    named = set(re.findall(r"^\| `(?:[\w.\[\]]*\.)?(\w+)` \|", text, re.MULTILINE))
    assert named - {"type"} == {name for kind in structs for name in kind.__struct_fields__}
    assert [line for line in text.splitlines() if line.startswith("| `") and line.endswith("|  |")] == []  # no meaning


def test_every_error_has_its_line() -> None:
    """Looked for in the text of the code, not by importing it."""
    bases = {"TidelakeError"}
    found: set[str] = set()
    sources = [path.read_text(encoding="utf-8") for name in FOLDERS for path in (DOCS.parent / name).rglob("*.py")]
    while True:
        new = {
            name
            for text in sources
            for name, inherited in re.findall(r"^class (\w+)\(([^)]*)\):", text, re.MULTILINE)
            if bases & set(re.findall(r"\w+", inherited)) and not name.startswith("_")
        } - found
        if not new:
            break
        found |= new
        bases |= new
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+) \|$", text, re.MULTILINE)
    assert {name for name, *_ in listed} == found
    records = set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))
    assert records == {kind.name for kind in FailureKind}


def test_every_option_has_its_line() -> None:
    text = (DOCS / "options.md").read_text(encoding="utf-8")
    lines = Counter(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))
    assert lines == Counter(option.key for option in (*TABLE_REGISTRY.options, *CATALOG_REGISTRY.options))


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as they are linked."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_links_between_pages_have_targets(page: str) -> None:
    path = DOCS / page
    missing = []
    prose = re.sub(r"`[^`]*`", "", path.read_text(encoding="utf-8"))  # code has brackets, too
    for link in re.findall(r"""\]\(([^):"]+?)(?: "[^"]*")?\)""", prose):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def test_every_dependency_and_extra_has_its_cost() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"(?m)^\| `([\w-]+)` \|", (DOCS / "installing.md").read_text(encoding="utf-8"))
    packages = [re.match(r"[\w-]+", text)[0] for text in project["dependencies"]]  # type: ignore[index]
    extras = project["optional-dependencies"].keys() - {"dev", "docs", "release"}  # those of a checkout
    assert sorted(named) == sorted([*packages, *extras])


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in DOCS.glob("*.md") if path.name != "README.md" and f"({path.name}" not in index] == []
