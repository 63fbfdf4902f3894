"""A FileIO each of whose calls takes a while, like a request to an object store. It knows which calls overlapped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from tidelake.storage.fileio.base import FileIO, FileStatus, Output

T = TypeVar("T")


@dataclass(frozen=True)
class LateCall:
    """name: of the FileIO's method. begin, end: seconds of a monotonic clock."""

    name: str
    path: str
    begin: float
    end: float

    def __str__(self) -> str:
        return f"{self.name} {self.path.rpartition('/')[2]}"


@dataclass
class LateFileIO:
    """late_s: how long each call takes. For `open_output` it is the moment when the file appears. Thread-safe."""

    inner: FileIO
    late_s: float
    calls: list[LateCall] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of_thread(self, name: str, path: str, action: Callable[[], T]) -> T:
        begin = time.monotonic()
        time.sleep(self.late_s)
        result = action()
        with self._lock:
            self.calls.append(LateCall(name, path, begin, time.monotonic()))
        return result

    def read(self, path: str) -> bytes:
        return self.of_thread("read", path, lambda: self.inner.read(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self.of_thread("open_input", path, lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> Output:
        return _LateOutput(self, self.inner.open_output(path))

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.of_thread("write", path, lambda: self.inner.write(path, data, durable=durable))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self.of_thread("create_if_absent", path, lambda: self.inner.create_if_absent(path, data))

    def exists(self, path: str) -> bool:
        return self.of_thread("exists", path, lambda: self.inner.exists(path))

    def size_bytes(self, path: str) -> int:
        return self.of_thread("size_bytes", path, lambda: self.inner.size_bytes(path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self.of_thread("list_directory", path, lambda: self.inner.list_directory(path))

    def make_directory(self, path: str) -> None:
        self.of_thread("make_directory", path, lambda: self.inner.make_directory(path))

    def delete(self, path: str) -> None:
        self.of_thread("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        every = list(paths)
        self.of_thread("delete_all", every[0] if every else "", lambda: self.inner.delete_all(every))

    def delete_directory(self, path: str) -> None:
        self.of_thread("delete_directory", path, lambda: self.inner.delete_directory(path))

    def delete_empty_directory(self, path: str) -> bool:
        return self.of_thread("delete_empty_directory", path, lambda: self.inner.delete_empty_directory(path))

    def rename_directory(self, source: str, target: str) -> None:
        self.of_thread("rename_directory", source, lambda: self.inner.rename_directory(source, target))


class _LateOutput:
    def __init__(self, late: LateFileIO, inner: Output) -> None:
        self._late = late
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def stream(self) -> pa.NativeFile:
        return self._inner.stream

    def write(self, data: bytes) -> None:
        self._inner.write(data)

    def __enter__(self) -> _LateOutput:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._late.of_thread("open_output", self.path, lambda: self._inner.__exit__(*error))  # type: ignore[arg-type]


def calls_in_sequence(calls: Iterable[LateCall]) -> int:
    """Return the length of the longest chain of calls in which each began after the one before it had ended."""
    chain, end = 0, float("-inf")
    for call in sorted(calls, key=lambda one: one.end):
        if call.begin >= end:
            chain, end = chain + 1, call.end
    return chain
