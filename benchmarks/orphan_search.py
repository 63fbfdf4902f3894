"""Measures the search for orphans in a table of a million data files.

The files are empty, and one in a hundred is not referenced. As a program this module runs the job.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, ours
from benchmarks.many_files import NAME, write_metadata
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, peak_at_most, race_lines

FILES: Final = 1_000_000
_ORPHANS_OF_FILES: Final = 100
_LIMIT_S: Final = 60.0
_LIMIT_MIB: Final = 500.0


def sections(plan: Plan) -> Iterator[PageSection]:
    files = max(500, int(FILES * plan.scale))
    warehouse = plan.scratch / "orphans"
    write_metadata(str(warehouse), files)
    orphans = _make_files(warehouse)
    sample = ours("orphan_search", {"warehouse": str(warehouse), "files": files + orphans, "orphans": orphans}).run()
    samples = {TIDELAKE: [sample]}
    targets = [
        Goal(f"CPU-s for {files:,} files ≤ {_LIMIT_S:g}", f"{sample.cpu_s:.1f} s", sample.cpu_s <= _LIMIT_S),
        peak_at_most("orphans", samples[TIDELAKE], _LIMIT_MIB),
    ]
    about = (
        f"`clean_orphans(dry_run=True)` of a table with {files:,} live data files and {orphans:,} orphans, on a local "
        "disk. Rows are files."
    )
    yield PageSection("Orphans of many files", about, RACE_HEADER, race_lines("orphans", samples), targets, samples)


def _make_files(warehouse: Path) -> int:
    """Create all files that the table references, and orphans. Returns the number of orphans."""
    paths = tidelake.open_catalog(str(warehouse)).table(f"{NAME}$files").scan(columns=["file_path"]).to_arrow()
    orphans = 0
    for number, path in enumerate(paths.column("file_path").to_pylist()):
        directory, _, name = path.rpartition("/")
        if not number % _ORPHANS_OF_FILES:
            os.makedirs(directory, exist_ok=True)
            Path(directory, f"data-orphan-{number}-{name}").touch()
            orphans += 1
        try:
            Path(path).touch()
        except FileNotFoundError:
            os.makedirs(directory)
            Path(path).touch()
    return orphans


# ---------------------------------------------------------------- the job


def search(warehouse: str, files: int, orphans: int) -> None:
    table = tidelake.open_catalog(warehouse).table(NAME)
    clock = Clock()
    with clock:
        found = table.clean_orphans(older_than_ms=0, dry_run=True)
    assert len(found.paths) == orphans
    tell(files, clock)


if __name__ == "__main__":
    search(**json.loads(sys.argv[1]))
