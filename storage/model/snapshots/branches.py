"""Branches of a table, each with its own sequence of snapshots. `TableContext.open(branch=…)` opens one.

Source: Java `utils/FileSystemBranchManager.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.paths import TablePaths, parse_branch_name

FALLBACK_BRANCH: Final = "scan.fallback-branch"
PRIMARY_BRANCH: Final = "scan.primary-branch"


def branch_names(io: FileIO, paths: TablePaths) -> list[str]:
    """Return the branches of a table in alphabetical order, without `main`."""
    entries = io.list_directory(paths.branch_directory)
    return sorted(name for e in entries if e.is_directory and (name := parse_branch_name(e.name)) is not None)


def check_branches_read(io: FileIO, paths: TablePaths, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Check options of a table before they are stored. Raises BadInput if reads would have no or two branches."""
    given = [key for key in (FALLBACK_BRANCH, PRIMARY_BRANCH) if new.get(key, "").strip()]
    if len(given) > 1:
        raise BadInput(f"options {FALLBACK_BRANCH} and {PRIMARY_BRANCH} can't both be set; set one")
    for key in given:
        name = new[key].strip()
        if name != old.get(key) and name not in (DEFAULT_BRANCH, *branch_names(io, paths)):
            raise BadInput(f"option {key} = {name}: this branch does not exist; create it first")
