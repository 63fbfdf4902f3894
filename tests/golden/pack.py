"""Packs folders of golden tables into one <name>.tar.zst each. Equal tables give equal bytes.

    python -m tests.golden.pack FOLDER        # FOLDER/java/<name>/…, FOLDER/pypaimon/<name>/… -> next to this file

Golden tables have thousands of small files. Packed they need a tenth of the space, and one line in a diff.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Final

import zstandard

HERE: Final = Path(__file__).parent
ZSTD_LEVEL: Final = 19


def pack(table: Path, target: Path) -> None:
    """Packs all files of a folder, sorted, without owners, times and modes."""
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    with (
        target.open("wb") as file,
        compressor.stream_writer(file) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(table.rglob("*")):
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(table)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o755 if path.is_dir() else 0o644
            if path.is_dir():
                archive.addfile(entry)
            else:
                with path.open("rb") as content:
                    archive.addfile(entry, content)


def main(source: Path) -> None:
    for writer in ("java", "pypaimon"):
        (HERE / writer).mkdir(exist_ok=True)
        for expected in sorted((source / writer).glob("*/expected.json")):
            table = expected.parent
            pack(table, HERE / writer / f"{table.name}.tar.zst")
            print(f"{writer}/{table.name}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
