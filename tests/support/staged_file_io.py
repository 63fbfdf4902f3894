"""A FileIO that finds out which calls are made side by side: each one waits until all of its stage have come."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from tidelake.storage.fileio.base import FileIO, FileStatus, Output

T = TypeVar("T")

_PATIENCE_S = 60


@dataclass(frozen=True)
class StagedCall:
    """name: of the FileIO's method."""

    name: str
    path: str


@dataclass
class StagedFileIO:
    """stages: which calls come together, as the number of calls of each kind; a call of no stage doesn't wait. A call
    that waits in vain, because those of its stage come one after the other, raises BrokenBarrierError. Thread-safe.

    kind_of: returns the kind of a call.
    """

    inner: FileIO
    kind_of: Callable[[StagedCall], str]
    calls: list[StagedCall] = field(default_factory=list)
    _left: list[tuple[Counter[str], threading.Barrier]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, stages: Sequence[Mapping[str, int]]) -> None:
        self._left = [(Counter(stage), threading.Barrier(sum(stage.values()), timeout=_PATIENCE_S)) for stage in stages]

    @property
    def left(self) -> Counter[str]:
        """The calls of all stages that have not come."""
        return sum((+counts for counts, _ in self._left), Counter[str]())

    def of_thread(self, name: str, path: str, action: Callable[[], T]) -> T:
        call = StagedCall(name, path)
        kind = self.kind_of(call)
        with self._lock:
            self.calls.append(call)
            found = next((stage for stage in self._left if stage[0][kind] > 0), None)
            if found is not None:
                found[0][kind] -= 1
        if found is not None:
            found[1].wait()
        return action()

    def read(self, path: str) -> bytes:
        return self.of_thread("read", path, lambda: self.inner.read(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self.of_thread("open_input", path, lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> Output:
        return _StagedOutput(self, self.inner.open_output(path))

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


class _StagedOutput:
    def __init__(self, staged: StagedFileIO, inner: Output) -> None:
        self._staged = staged
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def stream(self) -> pa.NativeFile:
        return self._inner.stream

    def write(self, data: bytes) -> None:
        self._inner.write(data)

    def __enter__(self) -> _StagedOutput:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._staged.of_thread("open_output", self.path, lambda: self._inner.__exit__(*error))  # type: ignore[arg-type]
