"""What the table needs from a place that keeps files.

A path is a full location as text, with `/` between its parts: `/data/shop.db/orders/...`, `s3://bucket/shop.db/...`,
`memory://name/...`. Directories exist as far as files are in them; an empty one may or may not be listed, unless
`make_directory` made it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One entry of a directory. `name` is the last part of the path.

    `size_bytes` is 0 for directories, and so is `modified_ms` where the store does not keep it. `is_link`: what it
    stands for is elsewhere (a symbolic link); the other members are of that.
    """

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    is_link: bool = False


class Output(Protocol):
    """A file being written. It appears under its path, whole and durable, when the `with` block ends well;
    when the block raises, nothing appears and what was written is dropped. After a power cut before the block's end a
    part of it may be there: it is for files that count only once something durable names them.

    `stream` is what Arrow and fastavro write to, inside the block; one thread at a time. Whether they close it is all
    the same. `write`, once and instead of it, is for who has the whole content.
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
    """The contract; `tests/contracts/test_file_io.py` is its text.

    A missing file raises FileNotFoundError from every call that needs it. What else goes wrong with a disk or store
    is an OSError that names the path; a path that cannot be one here is BadInput. All calls are thread-safe and
    block. Implementations pickle (Spark ships them to executors).
    """

    def read(self, path: str) -> bytes:
        """The whole file. For metadata: small files."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Random access. Reading one column of a Parquet file must not fetch the whole file from a remote store."""
        ...

    def open_output(self, path: str) -> Output:
        """A new file under a unique name (data files, manifests). See `Output` for when it appears.

        What is found by listing a directory (dead letters) is for `create_if_absent`.
        """
        ...

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace, all at once: a reader sees the old bytes or the new ones (consumers, hints).

        Durable: after a power cut too; once this returned, the new ones. Not durable: after a power cut the file may
        hold anything, or nothing. That is for the hint `LATEST`.
        """
        ...

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Publish `data` under `path`, unless something is there already: then False, and what is there stays.

        Atomic among all processes and machines that use the store; True means durable. This is what a commit stands on.
        Never a rename that could replace, never exists-then-write. A store that cannot do this is refused with
        UnsupportedFeature; after that, and after BadInput, nothing was published. After any other exception the outcome
        is unknown.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether a file (not a directory) is there."""
        ...

    def size_bytes(self, path: str) -> int:
        """Of one file."""
        ...

    def list_directory(self, path: str) -> list[FileStatus]:
        """Direct children, in any order. A directory that does not exist is an empty list."""
        ...

    def make_directory(self, path: str) -> None:
        """Make an empty directory that is listed by its parent. One that is there already is no error."""
        ...

    def delete(self, path: str) -> None:
        """Remove one file. A file that is not there is no error."""
        ...

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many files, in parallel where that helps. Missing ones are no error."""
        ...

    def delete_directory(self, path: str) -> None:
        """Remove a directory and all below it. A missing one is no error."""
        ...

    def delete_empty_directory(self, path: str) -> bool:
        """Remove a directory that holds nothing; whether it was removed. One that holds something, or is not there,
        stays as it is. Where directories exist only as far as files are in them, there is nothing to do.
        """
        ...

    def rename_directory(self, source: str, target: str) -> None:
        """Move everything below `source` to `target`. Atomic on local disks only.

        Raises FileExistsError when there are files below `target`, FileNotFoundError when there are none below
        `source`.
        """
        ...
