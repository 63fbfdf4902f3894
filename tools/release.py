"""Make a release of what is committed: `make release VERSION=0.2.0`.

Sets the version (also of the Helm chart), closes the section "Unreleased" of the changelog, builds and checks the
packages, commits and tags. Nothing leaves the machine: pushing the tag starts `.github/workflows/release.yml`, which
publishes.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
UNRELEASED: Final = "## Unreleased\n"
RESERVED: Final = (".example", ".test", ".invalid")  # names of RFC 2606, which lead nowhere


class Refused(Exception):
    """A release that must not be made. The text names the reason and the remedy."""


def numbers(version: str) -> tuple[int, ...]:
    """Read the three numbers of a version. Raises Refused for anything else."""
    if re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version) is None:
        raise Refused(f"{version!r} is no version: name three numbers, as in make release VERSION=0.2.0")
    return tuple(map(int, version.split(".")))


def of_version(project: str, version: str, tags: set[str]) -> str:
    """Return pyproject.toml with this version.

    Raises Refused for a version that exists or is older, and for addresses that lead nowhere.
    """
    metadata = tomllib.loads(project)["project"]
    current = metadata["version"]
    if f"v{version}" in tags:
        raise Refused(f"the tag v{version} exists: releases don't change. Choose the next version")
    if numbers(version) < numbers(current):
        raise Refused(f"{version} is older than {current}, the version in pyproject.toml: choose a newer one")
    for name, address in metadata["urls"].items():
        host = re.sub(r"^\w+://([^/:]*).*$", r"\1", address)
        if host.endswith(RESERVED):
            raise Refused(
                f"the address {name} in pyproject.toml is {address}, a reserved name: "
                "set [project.urls] to the public addresses first"
            )
    return re.sub(r'(?m)^version = "[^"]*"$', f'version = "{version}"', project, count=1)


def closed(changelog: str, version: str, day: datetime.date) -> str:
    """Return the changelog with its unreleased changes as this version. Raises Refused if there are none."""
    before, found, after = changelog.partition(UNRELEASED)
    if not found:
        raise Refused('CHANGELOG.md has no section "Unreleased": add it, with a line for each change')
    if re.search(r"^- ", after.partition("\n## ")[0], re.MULTILINE) is None:
        raise Refused('the section "Unreleased" of CHANGELOG.md has no changes: add a line for each of them')
    return f"{before}{UNRELEASED}\n## {version} ({day.isoformat()})\n{after}"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def release(version: str) -> None:
    numbers(version)
    if git("status", "--porcelain"):
        raise Refused("there are changes that aren't committed: commit them, or put them aside with git stash")
    project, changelog = ROOT / "pyproject.toml", ROOT / "CHANGELOG.md"
    chart = ROOT / "deploy" / "helm" / "tidelake" / "Chart.yaml"
    today = datetime.datetime.now(datetime.UTC).date()
    texts = {
        project: of_version(project.read_text(encoding="utf-8"), version, set(git("tag", "--list").split())),
        changelog: closed(changelog.read_text(encoding="utf-8"), version, today),
        chart: re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {version}", chart.read_text(encoding="utf-8")),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    try:
        subprocess.run(["make", "dist"], cwd=ROOT, check=True)
        git("commit", "--quiet", "--message", f"Release {version}", "--", *map(str, texts))
    except (subprocess.CalledProcessError, KeyboardInterrupt):
        git("reset", "--quiet", "--", *map(str, texts))
        git("checkout", "--quiet", "--", *map(str, texts))
        raise
    git("tag", "--annotate", f"v{version}", "--message", f"Tidelake {version}")
    print(f"\nv{version} is committed and tagged. To publish it: git push origin HEAD v{version}")


if __name__ == "__main__":
    try:
        release(sys.argv[1] if len(sys.argv) > 1 else "")
    except Refused as refused:
        sys.exit(f"error: {refused}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"error: {' '.join(map(str, failed.cmd))} failed, and nothing was released\n{failed.stderr or ''}")
