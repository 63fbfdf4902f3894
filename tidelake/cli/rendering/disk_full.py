"""The message for a full disk: the file system, what happens next, and how to free space."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from tidelake.cli.formatting import size_text
from tidelake.errors import TidelakeError
from tidelake.storage.fileio.disk_space import DiskSpace


class DiskFull(TidelakeError):
    """A pipeline stopped because the disk was full."""


def free_space_text(error: OSError) -> str:
    """Return one line on how to free space.

    error: returned by `find_disk_full_error`
    """
    reason = os.strerror(error.errno or errno.ENOSPC)
    if not isinstance(error.filename, str):
        return f"{reason}; the error doesn't say for which file"
    room = DiskSpace.of_path(error.filename)
    if room is None:
        return f"{reason}: {error.filename}"
    return (
        f"{reason}: the file system at {room.mounted_at}, for {error.filename}: {size_text(room.free_bytes)} of "
        f"{size_text(room.size_bytes)} and {room.free_files:,} files are free now"
    )


def pipeline_disk_full_text(error: OSError, command: str, warehouse: str, tables: Sequence[str]) -> str:
    """Return the message for a pipeline that stopped.

    tables: those whose names are known
    """
    shown = [f"tidelake table expire {table} -w {warehouse}" for table in tables[:5]] or [
        f"tidelake table expire TABLE -w {warehouse}"
    ]
    more = [f"… and the same for {len(tables) - 5} more tables"] if len(tables) > 5 else []
    lines = [
        free_space_text(error),
        "The pipeline has stopped. Committed rows are kept. The next start continues where each table ends: no "
        "record is lost or written twice.",
        "Free space on that file system, then start the pipeline again:",
        f"  {command}",
        "Old snapshots use space. Expiring them needs no free space "
        "(--retain-time '10 min' or --retain-max 10 expire more than the table's options):",
        *(f"  {line}" for line in [*shown, *more]),
    ]
    return "\n".join(lines)
