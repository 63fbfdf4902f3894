"""Branches: lines of snapshots beside the table's main one. `TableContext.open(branch=…)` opens one.

Source: Java `utils/FileSystemBranchManager.java`.
"""

from __future__ import annotations

from storage.fileio.base import FileIO
from storage.paths import TablePaths, parse_branch_name


def branch_names(io: FileIO, paths: TablePaths) -> list[str]:
    """Of one table, in alphabetical order; `main` is not among them."""
    entries = io.list_directory(paths.branch_directory)
    return sorted(name for e in entries if e.is_directory and (name := parse_branch_name(e.name)) is not None)
