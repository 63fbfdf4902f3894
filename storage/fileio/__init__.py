"""Reads and writes files on local disks, in object stores and in HDFS.

`open_file_io(location)` chooses the implementation. All other packages use only the `FileIO` protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.fileio.base import FileIO, FileStatus, Output
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.location import (
    HDFS_SCHEMES,
    LOCAL_SCHEME,
    MEMORY_SCHEME,
    REMOTE_SCHEMES,
    S3_ELSEWHERE,
    scheme_of,
)
from tidelake.storage.fileio.retrying import RetryingFileIO

__all__ = ["FileIO", "FileStatus", "Output", "open_file_io", "open_retrying_file_io", "uncached"]


def open_file_io(location: str, options: Mapping[str, str] | None = None) -> FileIO:
    """Return the FileIO for a location. It serves every path of the same kind. Opens no connection.

    options: Paimon's, such as `s3.endpoint`. Options for other kinds of stores are ignored.
    Raises BadInput for an unknown scheme, UnsupportedFeature for one of a store that is reached by another.
    """
    scheme = scheme_of(location)
    if scheme == LOCAL_SCHEME:
        return LocalFileIO()
    # The client of object stores takes 6 MiB and 30 ms, so it is not loaded for tables on a local disk.
    if scheme == MEMORY_SCHEME:
        from tidelake.storage.fileio.memory import MemoryFileIO  # noqa: PLC0415

        return MemoryFileIO()
    if scheme in REMOTE_SCHEMES:
        from tidelake.storage.fileio.object_store import ObjectStoreFileIO  # noqa: PLC0415

        return ObjectStoreFileIO(options)
    if scheme in HDFS_SCHEMES:
        from tidelake.storage.fileio.hdfs import HdfsFileIO  # noqa: PLC0415

        return HdfsFileIO(options)
    if scheme in S3_ELSEWHERE:
        name, endpoint = S3_ELSEWHERE[scheme]
        raise UnsupportedFeature(
            f"{scheme}:// locations",
            f"{name} is reached by the protocol of S3 only",
            f"Write s3://, and set s3.endpoint = {endpoint} and s3.path.style.access = false. Whether it also takes "
            "commits is tried before the first one",
        )
    schemes = (LOCAL_SCHEME, *REMOTE_SCHEMES, *HDFS_SCHEMES, MEMORY_SCHEME)
    known = ", ".join(f"{scheme}://" for scheme in schemes)
    raise BadInput(f"{scheme}:// locations are not supported; use a path or {known}")


def uncached(io: FileIO) -> FileIO:
    """Return the files as they are now, for checks: without what this process or its disk keeps of them."""
    without = getattr(io, "uncached", None)
    return io if without is None else cast(FileIO, without())


def open_retrying_file_io(location: str, options: Mapping[str, str] | None = None) -> FileIO:
    """Open a FileIO for unattended processes: temporary failures are retried (see `RetryingFileIO`)."""
    io = open_file_io(location, options)
    return RetryingFileIO(io) if scheme_of(location) in (LOCAL_SCHEME, *HDFS_SCHEMES) else io
