"""A release: its version, its changelog, and the workflows that test and publish it."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[1]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def program() -> ModuleType:
    """tools/release.py, which is no package."""
    spec = spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RELEASE: Final = program()
DAY: Final = datetime.date(2026, 5, 1)
TOML: Final = """\
[project]
version = "0.2.0"
[project.urls]
Source = "https://tidelake.org/code"
[tool.other]
version = "9"
"""


def test_the_changes_since_the_last_release_get_its_version_and_day() -> None:
    text = "# Changelog\n\n## Unreleased\n\n- One.\n\n## 0.2.0 (2026-01-01)\n\n- Zero.\n"
    assert RELEASE.closed(text, "0.3.0", DAY) == (
        "# Changelog\n\n## Unreleased\n\n## 0.3.0 (2026-05-01)\n\n- One.\n\n## 0.2.0 (2026-01-01)\n\n- Zero.\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("# Changelog\n\n## Unreleased\n\n## 0.2.0\n\n- Zero.\n", "has no changes", id="no change"),
        pytest.param("# Changelog\n\n## 0.2.0\n\n- Zero.\n", 'no section "Unreleased"', id="no section"),
    ],
)
def test_a_release_without_a_changelog_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RELEASE.Refused, match=reason):
        RELEASE.closed(text, "0.3.0", DAY)


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0", "1.0.0", "0.10.0"])
def test_the_version_of_the_project_is_set(version: str) -> None:
    changed = RELEASE.of_version(TOML, version, {"v0.1.0"})
    assert changed == TOML.replace('version = "0.2.0"', f'version = "{version}"')


@pytest.mark.parametrize(
    ("project", "version", "reason"),
    [
        pytest.param(TOML, "0.1.9", "is older than 0.2.0", id="older"),
        pytest.param(TOML, "0.3.0", "the tag v0.3.0 exists", id="released"),
        pytest.param(TOML, "", "'' is no version", id="nothing"),
        pytest.param(TOML, "v0.4.0", "is no version", id="with a letter"),
        pytest.param(TOML, "0.04.0", "is no version", id="a leading zero"),
        pytest.param(TOML.replace("tidelake.org", "tidelake.example"), "0.4.0", "a reserved name", id="no address"),
    ],
)
def test_a_version_that_must_not_be_released_is_refused(project: str, version: str, reason: str) -> None:
    with pytest.raises(RELEASE.Refused, match=reason):
        RELEASE.of_version(project, version, {"v0.3.0"})


def test_the_changelog_has_its_releases_newest_first() -> None:
    titles = re.findall(r"(?m)^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert titles[0] == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", title) for title in titles[1:]]
    assert None not in released
    order = [(RELEASE.numbers(found[1]), found[2]) for found in released if found]
    assert order == sorted(order, reverse=True)


def test_each_change_is_one_line_of_a_group() -> None:
    """A paragraph belongs to the page that the line links to."""
    _, *releases = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
    for release in releases:
        _, *groups = release.split("\n### ")
        for group in groups:
            title, *changes = [line for line in group.splitlines() if line]
            assert changes, title
            assert [line for line in changes if not (line.startswith("- ") and len(line) <= 180)] == [], title
        assert groups == [] or "\n- " not in release.partition("\n### ")[0]


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return found


def steps(path: Path) -> Iterable[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job.get("steps", [])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_of_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):.* ## ", MAKEFILE))
    commands = [line for step in steps(path) if "run" in step for line in step["run"].splitlines()]
    assert commands
    for command in commands:
        program, target, *variables = command.split()
        assert (program, variables) == ("make", ["PYTHON=python"]), command
        assert target in targets, command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_name_the_release_of_each_action_and_what_they_may_do(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in jobs(path).items():
        assert (
            {job["uses"]} <= {f"./{other.relative_to(ROOT)}" for other in WORKFLOWS} if "uses" in job else job["steps"]
        )
        needed = job.get("needs", [])
        assert {needed} if isinstance(needed, str) else set(needed) <= jobs(path).keys(), name
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"])


def test_the_wheel_is_tested_and_installed_by_each_python_that_the_project_names() -> None:
    named = [found[1] for line in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", line))]
    ci = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    assert ci["test"]["strategy"]["matrix"]["python"] == named
    assert set(named) < set(ci["install"]["strategy"]["matrix"]["python"])  # also by one that isn't promised yet
    assert f">={named[0]}" == PROJECT["requires-python"]


def test_only_the_job_that_publishes_has_the_trust_of_the_package_index() -> None:
    """It runs after the tests and the attestations, and nothing of this repository runs in it."""
    release = jobs(ROOT / ".github" / "workflows" / "release.yml")
    assert {name for name, job in release.items() if job.get("environment") == "pypi"} == {"publish"}
    assert (release["publish"]["needs"], release["prove"]["needs"]) == ("prove", "ci")
    assert [step["uses"].partition("@")[0] for step in release["publish"]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    proofs = {step["uses"].partition("@")[0] for step in release["prove"]["steps"] if "uses" in step}
    assert {"actions/attest-build-provenance", "actions/attest-sbom"} <= proofs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_understood_by_their_linter(path: Path) -> None:
    """Without actionlint here only the keys of the jobs are compared with those that GitHub documents."""
    known = {
        *("uses", "needs", "runs-on", "permissions", "environment", "strategy", "steps", "timeout-minutes"),
    }
    for job in jobs(path).values():
        assert job.keys() <= known
    if (actionlint := shutil.which("actionlint")) is not None:
        run = subprocess.run([actionlint, path], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout
