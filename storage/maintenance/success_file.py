"""Files that tell jobs of other systems that a tag was created or that a partition is done.

Source: Java `partition/file/SuccessFile.java`.
"""

from __future__ import annotations

import json

from tidelake.storage.base.pretty_json import pretty_json
from tidelake.storage.fileio.base import FileIO


def write_success_file(io: FileIO, path: str, now_ms: int) -> None:
    """Write the file with the times of its first and its last write. A file that can't be read is replaced."""
    try:
        created_ms = int(json.loads(io.read(path))["creationTime"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        created_ms = now_ms
    io.write(path, pretty_json({"creationTime": created_ms, "modificationTime": now_ms}).encode())
