"""Builds the documentation site: `make docs`, or `python docs/site.py` with the extra `docs`.

The pages are those of docs/, the README, the changelog, the guide for contributors, and the format on disk. Links that
lead to other files of the repository become links to its address. A link or an anchor without a target is an error.
The build needs no network.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "build" / "pages"

# The pages that have another name in the site. Two pages called README.md and index.md would be one.
_RENAMED: Final = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "docs/decisions/README.md": "decisions/index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "storage/FORMAT.md": "format-on-disk.md",
}
_LINK: Final = re.compile(r"""(\]\(|(?:src|srcset|href)=")([^)"#\s]+)(#[^)"\s]*)?""")
_CODE: Final = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def site_names() -> Mapping[str, str]:
    """Return each file of the repository that is part of the site, and its name there."""
    docs = ROOT / "docs"
    files = [path for path in docs.rglob("*") if path.suffix in (".md", ".svg", ".png")]
    own = {path.relative_to(ROOT).as_posix(): path.relative_to(docs).as_posix() for path in sorted(files)}
    return own | _RENAMED


def with_links_of_the_site(text: str, file: str, names: Mapping[str, str], repository: str) -> str:
    """Let the links of a page lead to pages of the site, or to the repository's address.

    file: the page's path in the repository, by which relative links are understood.
    """
    folder = PurePosixPath(file).parent
    here = PurePosixPath(names[file]).parent

    def moved(match: re.Match[str]) -> str:
        opening, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = normpath((folder / target).as_posix())
        if path in names:
            up = "../" * len(here.parts)
            return f"{opening}{up}{names[path]}{anchor}"
        if not (ROOT / path).exists():
            return match[0]  # the build will name it
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{opening}{repository}/{kind}/main/{path}{anchor}"

    parts = _CODE.split(text)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def collect_pages() -> None:
    """Write the pages, with their links, into the folder from which the site is built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project["urls"]["Source"].rstrip("/")
    names = site_names()
    shutil.rmtree(PAGES, ignore_errors=True)
    for file, name in names.items():
        target = PAGES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            text = (ROOT / file).read_text(encoding="utf-8")
            target.write_text(with_links_of_the_site(text, file, names, repository), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / file, target)


def main() -> int:
    """Build the site, and return the exit code of the generator."""
    collect_pages()
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
