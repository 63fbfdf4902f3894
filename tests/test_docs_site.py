"""The documentation site: its pages, its links, and its reference of the Python API."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import tidelake
from tidelake import arguments, conditions, errors, results, schema

ROOT: Final = Path(__file__).parents[1]
NAMES: Final = {"README.md": "index.md", "docs/sql.md": "sql.md", "docs/api/tables.md": "api/tables.md"}
REPOSITORY: Final = "https://example.org/tidelake"


def program(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SITE: Final = program("site")


@pytest.mark.parametrize(
    ("file", "text", "moved"),
    [
        pytest.param("README.md", "[a](docs/sql.md)", "[a](sql.md)", id="a page of docs"),
        pytest.param("README.md", "[a](docs/sql.md#usage)", "[a](sql.md#usage)", id="with an anchor"),
        pytest.param("docs/sql.md", "[a](../README.md)", "[a](index.md)", id="a page from elsewhere"),
        pytest.param("docs/sql.md", "[a](api/tables.md)", "[a](api/tables.md)", id="a folder below"),
        pytest.param("docs/api/tables.md", "[a](../sql.md)", "[a](../sql.md)", id="a folder above"),
        pytest.param(
            "docs/sql.md",
            "[a](../docker/compose.yaml)",
            f"[a]({REPOSITORY}/blob/main/docker/compose.yaml)",
            id="a file",
        ),
        pytest.param("docs/sql.md", "[a](../deploy)", f"[a]({REPOSITORY}/tree/main/deploy)", id="a folder"),
        pytest.param("docs/sql.md", "[a](https://a.org/b.md)", "[a](https://a.org/b.md)", id="another site"),
        pytest.param("docs/sql.md", "[a](#usage)", "[a](#usage)", id="the same page"),
        pytest.param("docs/sql.md", "[a](nowhere.md)", "[a](nowhere.md)", id="nothing: the build will say so"),
        pytest.param("docs/sql.md", '<img src="../README.md">', '<img src="index.md">', id="a tag"),
        pytest.param("docs/sql.md", "`[a](../README.md)`", "`[a](../README.md)`", id="code"),
        pytest.param("docs/sql.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```", id="a block of code"),
    ],
)
def test_links_lead_to_pages_of_the_site_or_to_the_repository(file: str, text: str, moved: str) -> None:
    assert SITE.with_links_of_the_site(text, file, NAMES, REPOSITORY) == moved


def pages_of(nav: Any) -> Iterable[str]:
    match nav:
        case str():
            yield nav
        case list():
            for entry in nav:
                yield from pages_of(entry)
        case dict():
            for entry in nav.values():
                yield from pages_of(entry)


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    decisions = {name for name in SITE.site_names().values() if re.match(r"decisions/\d", name)}  # their index has them
    pages = {name for name in SITE.site_names().values() if name.endswith(".md")}
    assert sorted(pages_of(nav)) == sorted(pages - decisions)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            "Do.\n\na: one\n    more\nb: two", "Do.\n\n\nArgs:\n    a: one\n        more\n    b: two", id="two"
        ),
        pytest.param("Do.\n\nc: no argument", "Do.\n\nc: no argument", id="another word"),
        pytest.param("Do.\n\na: one\n\nRaises X.", "Do.\n\n\nArgs:\n    a: one\n\nRaises X.", id="text below"),
    ],
)
def test_lines_about_arguments_become_a_list(text: str, shown: str) -> None:
    assert program("docstring_arguments").with_section(text, {"a", "b"}) == shown


@pytest.mark.interop
def test_the_site_has_every_page_and_every_public_name() -> None:
    """A link or an anchor without a target fails the build."""
    run = subprocess.run([sys.executable, ROOT / "docs" / "site.py"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    site = ROOT / "build" / "site"
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    assert {name for name in SITE.site_names().values() if name.endswith(".md")} <= built
    reference = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    shown = {name.rpartition(".")[2] for name in re.findall(r'id="(tidelake[\w.]+)"', reference)}
    modules = (tidelake, arguments, conditions, results, schema)
    own_errors = [name for name, kind in vars(errors).items() if getattr(kind, "__module__", "") == errors.__name__]
    public = {*own_errors, *(name for module in modules for name in module.__all__)}
    assert {name for name in public - shown if not name.startswith("_")} == set()
