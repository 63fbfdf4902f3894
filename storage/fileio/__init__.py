"""Reading and writing files, wherever they are.

`open_file_io(location)` picks the implementation; everyone else talks to the `FileIO` protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

from storage.errors import BadInput
from storage.fileio.base import FileIO, FileStatus, Output
from storage.fileio.local import LocalFileIO
from storage.fileio.location import LOCAL_SCHEME, MEMORY_SCHEME, REMOTE_SCHEMES, scheme_of
from storage.fileio.retrying import RetryingFileIO

__all__ = ["FileIO", "FileStatus", "Output", "open_file_io", "open_retrying_file_io"]


def open_file_io(location: str, options: Mapping[str, str] | None = None) -> FileIO:
    """The FileIO for a location; it serves every path of the same kind, not only those below.

    options: Paimon's, such as `s3.endpoint`; those of other kinds of store are left alone. Opens no connection.
    Raises BadInput for an unknown scheme.
    """
    scheme = scheme_of(location)
    if scheme == LOCAL_SCHEME:
        return LocalFileIO()
    # The client of object stores takes 6 MiB and 30 ms: a process whose tables are on a disk does without.
    if scheme == MEMORY_SCHEME:
        from storage.fileio.memory import MemoryFileIO  # noqa: PLC0415

        return MemoryFileIO()
    if scheme in REMOTE_SCHEMES:
        from storage.fileio.object_store import ObjectStoreFileIO  # noqa: PLC0415

        return ObjectStoreFileIO(options)
    known = ", ".join(f"{scheme}://" for scheme in (LOCAL_SCHEME, *REMOTE_SCHEMES, MEMORY_SCHEME))
    raise BadInput(f"nothing here reads {scheme}:// locations; known are paths and {known}")


def open_retrying_file_io(location: str, options: Mapping[str, str] | None = None) -> FileIO:
    """The same for who runs unattended: what fails for a passing reason is tried again (see `RetryingFileIO`)."""
    io = open_file_io(location, options)
    return RetryingFileIO(io) if isinstance(io, LocalFileIO) else io
