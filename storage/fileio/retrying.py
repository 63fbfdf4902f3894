"""A FileIO that retries after temporary failures: a network file system that is unavailable for a moment, or a process
with too many open files.

It retries only calls that may be repeated: reads, listings, deletes, replacing a whole file, and writing a whole file
with a unique name. It never retries `create_if_absent`, on which commits depend: after an error its outcome is unknown,
and the caller checks the table (`tidelake.storage.commit.publisher`). It does not retry files written piece by piece,
nor reads of an open file.

Clients of object stores have their own retries.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.storage.base import env
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileIO, FileStatus, Output

T = TypeVar("T")

RETRY_TIMEOUT_MS: Final = 30_000
_BACKOFF: Final = ExponentialBackoff(first_ms=100, longest_ms=5_000, jitter=(0.5, 1.0))

# A full disk and denied permissions are not included: the pipeline itself waits for these.
_TRANSIENT_ERRORS: Final = frozenset(
    {
        errno.EIO,
        errno.EREMOTEIO,
        errno.ESTALE,  # NFS: the server forgot the file handle
        errno.EAGAIN,
        errno.EBUSY,
        errno.ENOLCK,
        errno.ENFILE,
        errno.EMFILE,
        errno.ENOBUFS,
        errno.ETIMEDOUT,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ENOTCONN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
    }
)

_log = get_logger(__name__)


def is_transient(error: OSError) -> bool:
    """Return whether the same call may succeed a moment later."""
    return error.errno in _TRANSIENT_ERRORS and not isinstance(error, TidelakeError)


def _now_ms() -> float:
    return env.monotonic_s() * 1000


def _sleep_ms(wait_ms: float) -> None:
    env.sleep(wait_ms / 1000)


@dataclass(frozen=True, slots=True)
class RetryingFileIO:
    """See the module, and `FileIO`.

    retry_timeout_ms: how long after its start a call is retried; then its last error is raised.
    now_ms, sleep_ms: the clock.
    """

    inner: FileIO
    retry_timeout_ms: int = RETRY_TIMEOUT_MS
    now_ms: Callable[[], float] = _now_ms
    sleep_ms: Callable[[float], None] = _sleep_ms

    def _retry(self, path: str, attempt: Callable[[], T]) -> T:
        began_ms, failures = self.now_ms(), 0
        while True:
            try:
                return attempt()
            except OSError as error:
                wait_ms = _BACKOFF.wait_ms(failures)
                if not is_transient(error) or self.now_ms() + wait_ms > began_ms + self.retry_timeout_ms:
                    raise
                _log.warning("trying again", path=path, error=str(error), wait_ms=round(wait_ms))
            self.sleep_ms(wait_ms)
            failures += 1

    def read(self, path: str) -> bytes:
        return self._retry(path, lambda: self.inner.read(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._retry(path, lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> Output:
        return _RetriedOutput(self, path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._retry(path, lambda: self.inner.write(path, data, durable=durable))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self.inner.create_if_absent(path, data)

    def exists(self, path: str) -> bool:
        return self._retry(path, lambda: self.inner.exists(path))

    def size_bytes(self, path: str) -> int:
        return self._retry(path, lambda: self.inner.size_bytes(path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._retry(path, lambda: self.inner.list_directory(path))

    def make_directory(self, path: str) -> None:
        self._retry(path, lambda: self.inner.make_directory(path))

    def delete(self, path: str) -> None:
        self._retry(path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        every = list(paths)
        if every:
            self._retry(every[0], lambda: self.inner.delete_all(every))

    def delete_directory(self, path: str) -> None:
        self._retry(path, lambda: self.inner.delete_directory(path))

    def delete_empty_directory(self, path: str) -> bool:
        return self.inner.delete_empty_directory(path)  # a retry would report that no directory was there

    def rename_directory(self, source: str, target: str) -> None:
        self.inner.rename_directory(source, target)


class _RetriedOutput:
    """A whole file is written again from its beginning. A file written through the stream is written once."""

    def __init__(self, io: RetryingFileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._data: bytes | None = None
        self._opened: Output | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def stream(self) -> pa.NativeFile:
        if self._opened is None:
            self._opened = self._io.inner.open_output(self._path).__enter__()
        return self._opened.stream

    def write(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.__exit__(kind, error, trace)
        elif error is None:
            self._io._retry(self._path, lambda: self._write_whole(self._data or b""))

    def _write_whole(self, data: bytes) -> None:
        with self._io.inner.open_output(self._path) as output:
            output.write(data)
