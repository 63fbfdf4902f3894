"""Reports which file system is full, and how full, for people who must free space."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.fileio.location import local_path

_DISK_FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_disk_full(error: OSError) -> bool:
    """Return whether the error means a full disk, or an exhausted quota."""
    return error.errno in _DISK_FULL_ERRORS


def find_disk_full_error(error: BaseException | None) -> OSError | None:
    """Return the disk-full error: the error itself, a cause of it, or one of a group. None if there is none."""
    while error is not None:
        if isinstance(error, OSError) and is_disk_full(error):
            return error
        if isinstance(error, BaseExceptionGroup):
            return next(
                (found for inner in error.exceptions if (found := find_disk_full_error(inner)) is not None), None
            )
        error = error.__cause__
    return None


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A file system of this machine, with the space available to a user other than root."""

    mounted_at: str
    size_bytes: int
    free_bytes: int
    free_files: int

    @classmethod
    def of_path(cls, path: str) -> DiskSpace | None:
        """Return the file system of a path, which need not exist. None if it is no path of this machine."""
        try:
            place = os.path.abspath(local_path(path))
            while not os.path.lexists(place):
                place = os.path.dirname(place)
            space, device = os.statvfs(place), os.stat(place).st_dev
            while place != "/" and os.stat(os.path.dirname(place)).st_dev == device:
                place = os.path.dirname(place)
        except (OSError, BadInput):
            return None
        return cls(place, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, space.f_favail)
