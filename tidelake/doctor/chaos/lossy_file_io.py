"""A FileIO whose requests and answers get lost now and then."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa

from tidelake.storage.base import env
from tidelake.storage.fileio.base import FileIO, FileStatus, Output

T = TypeVar("T")

LOSS_RATE: Final = 0.02  # of requests, and again of answers
LOST_REQUEST: Final = b"r"
LOST_ANSWER: Final = b"a"


class LossyFileIO:
    """Hands calls on to `inner`. Some fail before anything happened, some after it: their outcome is unknown.

    What `RetryingFileIO` does not repeat is not disturbed, because the process would only end: open files, and
    renames of directories.

    mishaps: a file that gets LOST_REQUEST or LOST_ANSWER for each; it also counts those of a killed process
    """

    def __init__(self, inner: FileIO, seed: int, mishaps: Path) -> None:
        self._inner = inner
        self._random = Random(seed)
        self._lock = env.Lock()
        self._mishaps = os.open(mishaps, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _lossy(self, path: str, act: Callable[[], T]) -> T:
        drawn = self.draw()
        if drawn < LOSS_RATE:
            raise self.lost(path, LOST_REQUEST)
        result = act()
        if drawn > 1 - LOSS_RATE:
            raise self.lost(path, LOST_ANSWER)
        return result

    def draw(self) -> float:
        with self._lock:
            return self._random.random()

    def lost(self, path: str, what: bytes) -> OSError:
        os.write(self._mishaps, what)
        return ConnectionResetError(errno.ECONNRESET, "lost on purpose, by the doctor", path)

    def read(self, path: str) -> bytes:
        return self._lossy(path, lambda: self._inner.read(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._inner.open_input(path)

    def open_output(self, path: str) -> Output:
        return _LossyOutput(self, self._inner.open_output(path))

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._lossy(path, lambda: self._inner.write(path, data, durable=durable))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._lossy(path, lambda: self._inner.create_if_absent(path, data))

    def exists(self, path: str) -> bool:
        return self._lossy(path, lambda: self._inner.exists(path))

    def size_bytes(self, path: str) -> int:
        return self._lossy(path, lambda: self._inner.size_bytes(path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._lossy(path, lambda: self._inner.list_directory(path))

    def make_directory(self, path: str) -> None:
        self._lossy(path, lambda: self._inner.make_directory(path))

    def delete(self, path: str) -> None:
        self._lossy(path, lambda: self._inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        every = list(paths)
        self._lossy(next(iter(every), ""), lambda: self._inner.delete_all(every))

    def delete_directory(self, path: str) -> None:
        self._lossy(path, lambda: self._inner.delete_directory(path))

    def delete_empty_directory(self, path: str) -> bool:
        return self._inner.delete_empty_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        self._inner.rename_directory(source, target)


class _LossyOutput:
    """A file that is written whole may fail; one that is written through its stream does not."""

    def __init__(self, io: LossyFileIO, inner: Output) -> None:
        self._io = io
        self._inner = inner
        self._is_whole = False

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def stream(self) -> pa.NativeFile:
        return self._inner.stream

    def write(self, data: bytes) -> None:
        self._is_whole = True
        self._inner.write(data)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_whole or error is not None:
            self._inner.__exit__(kind, error, trace)
            return
        drawn = self._io.draw()
        if drawn < LOSS_RATE:
            lost = self._io.lost(self.path, LOST_REQUEST)
            self._inner.__exit__(type(lost), lost, None)
            raise lost
        self._inner.__exit__(None, None, None)
        if drawn > 1 - LOSS_RATE:
            raise self._io.lost(self.path, LOST_ANSWER)
