"""The protocols of a place that stores a table's files.

A path is a full location as text, with `/` between its parts: `/data/shop.db/orders/...`, `s3://bucket/shop.db/...`,
`memory://name/...`. A directory exists if files are in it. An empty directory may or may not be listed, unless
`make_directory` created it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One entry of a directory.

    name: the last part of the path.
    size_bytes: 0 for directories.
    modified_ms: 0 for directories if the store does not record it.
    is_link: this is a symbolic link; all other members describe its target.
    """

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    is_link: bool = False


class Output(Protocol):
    """A file that is being written. If the `with` block succeeds, the file appears under its path at its end, complete
    and durable. If the block raises, no file appears, and the data is dropped. After a power cut before the end of the
    block, a part of the file may exist. So it is for files that count only once something durable names them.

    stream: a stream for Arrow and fastavro, to be used inside the block by one thread at a time. They may or may not
        close it.
    write: writes the whole content. It is called once, instead of using `stream`.
    """

    @property
    def stream(self) -> pa.NativeFile: ...
    @property
    def path(self) -> str: ...
    def write(self, data: bytes) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class FileIO(Protocol):
    """The contract of a file system or store; `tests/contracts/test_file_io.py` defines it.

    A missing file raises FileNotFoundError from every call that needs it. Other failures of a disk or store are an
    OSError with the path. A path that is invalid here raises BadInput. All calls are thread-safe and block.
    Implementations can be pickled (Spark sends them to executors).
    """

    def read(self, path: str) -> bytes:
        """Return the whole file. For small files of metadata."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access. Reading one column of a Parquet file must not fetch the whole remote file."""
        ...

    def open_output(self, path: str) -> Output:
        """Open a new file with a unique name (data files, manifests). `Output` says when it appears.

        Files that are found by listing a directory (dead letters) must use `create_if_absent`.
        """
        ...

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a file atomically: a reader sees the old bytes or the new ones (consumers, hints).

        durable: the same applies after a power cut, and the new bytes survive it once this returned. If false, the file
            may have any content after a power cut, or none. This is for the hint `LATEST`.
        """
        ...

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create the file, unless `path` already exists: then return False, and the existing file is unchanged.

        Atomic among all processes and machines that use the store; True means durable. Commits depend on this. An
        implementation must never use a rename that could replace, or a check followed by a write. A store that can't do
        this raises UnsupportedFeature. After that, and after BadInput, nothing was published. After any other exception
        the outcome is unknown.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file (not a directory) exists."""
        ...

    def size_bytes(self, path: str) -> int:
        """Return the size of one file."""
        ...

    def list_directory(self, path: str) -> list[FileStatus]:
        """Return the direct children, in any order; an empty list if the directory does not exist."""
        ...

    def make_directory(self, path: str) -> None:
        """Create an empty directory that its parent lists. An existing directory is no error."""
        ...

    def delete(self, path: str) -> None:
        """Delete one file. A missing file is no error."""
        ...

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete many files, in parallel if that helps. Missing files are no error."""
        ...

    def delete_directory(self, path: str) -> None:
        """Delete a directory and everything below it. A missing directory is no error."""
        ...

    def delete_empty_directory(self, path: str) -> bool:
        """Delete an empty directory, and return whether it did. A directory with content, or a missing one, is not
        changed. A store without empty directories does nothing.
        """
        ...

    def rename_directory(self, source: str, target: str) -> None:
        """Move everything below `source` to `target`. Atomic on local disks only.

        Raises FileExistsError if there are files below `target`, FileNotFoundError if there are none below `source`.
        """
        ...
