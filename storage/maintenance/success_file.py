"""Files that say to jobs of other systems that something is complete: a tag is there, a partition is done.

Source: Java `partition/file/SuccessFile.java`.
"""

from __future__ import annotations

import json

from storage.fileio.base import FileIO
from storage.pretty_json import pretty_json


def write_success_file(io: FileIO, path: str, now_ms: int) -> None:
    """Says when it was written first, and last. One that can't be read is replaced."""
    try:
        created_ms = int(json.loads(io.read(path))["creationTime"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        created_ms = now_ms
    io.write(path, pretty_json({"creationTime": created_ms, "modificationTime": now_ms}).encode())
