"""The file that is being written to a remote store: its client gets the bytes, and decides at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

if TYPE_CHECKING:
    from typing_extensions import Buffer


class RemoteOutput(ABC):
    """See `Output`. Subclasses say how the client opens, gets, publishes and drops a file.

    as_os_errors: turns the client's errors at a path into OSErrors.
    """

    def __init__(self, path: str, as_os_errors: Callable[[str], AbstractContextManager[None]]) -> None:
        self._path = path
        self._as_os_errors = as_os_errors

    @property
    def path(self) -> str:
        return self._path

    @property
    def stream(self) -> pa.NativeFile:
        return self._stream

    def write(self, data: bytes) -> None:
        self._write(data)

    def _write(self, data: Buffer) -> int:
        with self._as_os_errors(self._path):
            return self._send(data)

    def __enter__(self) -> Self:
        with self._as_os_errors(self._path):
            self._open()
        self._stream = pa.PythonFile(_Sink(self._write), mode="w")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._drop(error)
            return
        with self._as_os_errors(self._path):
            self._publish()

    @abstractmethod
    def _open(self) -> None:
        """Open the client's writer."""

    @abstractmethod
    def _send(self, data: Buffer) -> int:
        """Give the client bytes, which may change after the call. Returns their number."""

    @abstractmethod
    def _publish(self) -> None:
        """Make the whole file visible under its path. If that fails, nothing may be visible."""

    @abstractmethod
    def _drop(self, error: BaseException) -> None:
        """Drop what was sent, as far as that is possible. Raises nothing: `error` is the one to report."""


class _Sink:
    """The file object for `pyarrow.PythonFile`. Closing it does not publish; the end of the output's block does."""

    def __init__(self, write: Callable[[Buffer], int]) -> None:
        self.write = write
        self.closed = False

    def flush(self) -> None:
        """Do nothing: the bytes are not visible yet."""

    def close(self) -> None:
        self.closed = True
