"""Writes a file to an object store: with one put at the end, or in parts that become visible only then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from tidelake.storage.fileio.store_errors import as_os_errors
from tidelake.storage.fileio.store_requests import CountedRequest, Operation

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

# A smaller file is one put. S3 allows 10,000 parts, so a file may have 80 GB.
PART_BYTES: Final = 8 << 20

# Parts of one file that are sent at the same time. With the part being filled, an output holds at most 40 MiB.
_PARTS_IN_FLIGHT: Final = 4


class ObjectOutput:
    """See `Output`."""

    def __init__(self, store: ObjectStore, key: str, path: str) -> None:
        self._store = store
        self._key = key
        self._path = path
        self._written_bytes = self._written_parts = 0

    @property
    def path(self) -> str:
        return self._path

    @property
    def stream(self) -> pa.NativeFile:
        return self._stream

    def write(self, data: bytes) -> None:
        self._write(data)

    def _write(self, data: Buffer) -> int:
        """Add bytes. Full parts are sent meanwhile."""
        content = bytes(data)  # obstore keeps the object until it is sent, but a writer may reuse its buffer before
        before = self._written_parts
        self._written_bytes += len(content)
        self._written_parts = self._written_bytes // PART_BYTES
        # The first full part also begins the upload.
        sent = self._written_parts - before + (before == 0 < self._written_parts)
        with as_os_errors(self._path):
            if not sent:
                return self._writer.write(content)
            with CountedRequest(Operation.PUT, self._path, sent):
                return self._writer.write(content)

    def __enter__(self) -> Self:
        self._writer = obstore.open_writer(
            self._store, self._key, buffer_size=PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
        )
        self._stream = pa.PythonFile(_Sink(self._write), mode="w")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            # The last part, and the request that joins all parts.
            with as_os_errors(self._path), CountedRequest(Operation.PUT, self._path, 2 if self._written_parts else 1):
                self._writer.close()
        else:
            # Aborts. If that fails, too, the parts remain, invisible but charged, until a lifecycle rule of the bucket
            # deletes them.
            with suppress(BaseError, OSError):
                self._writer.__exit__(kind, error, trace)


class _Sink:
    """The file object for `pyarrow.PythonFile`. Closing it does not publish; the end of the output's block does."""

    def __init__(self, write: Callable[[Buffer], int]) -> None:
        self._write = write
        self.closed = False

    def write(self, data: Buffer) -> int:
        return self._write(data)

    def flush(self) -> None:
        """Do nothing: the bytes are not visible yet."""

    def close(self) -> None:
        self.closed = True
