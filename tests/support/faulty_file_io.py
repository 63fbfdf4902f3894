"""A FileIO that fails where a test wants it to: before a call did its work, or after, when only the answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from storage.fileio.base import FileIO, FileStatus, Output

T = TypeVar("T")


class Fault(Enum):
    BEFORE = auto()  # nothing happened
    AFTER = auto()  # it happened, and nobody was told


class FaultyIOError(OSError):
    """What a test made happen."""


@dataclass(frozen=True)
class Call:
    """name: of the FileIO's method. An `open_output` counts, and fails, when its file would appear."""

    name: str
    path: str
    nbytes: int = 0  # read or written

    @property
    def file_name(self) -> str:
        return self.path.rpartition("/")[2]


class FaultyFileIO:
    """Hands every call on to `inner`. Keeps all calls that it was asked for, and what each would read or write.

    fault: asked on each call, may act (let another writer go first) and says whether to fail, and when.
    """

    def __init__(self, inner: FileIO, fault: Callable[[Call], Fault | None] = lambda _: None) -> None:
        self.inner = inner
        self.fault = fault
        self.calls: list[Call] = []

    def fail_call(self, number: int, fault: Fault) -> None:
        """From now on the number-th call (0 is the next one) fails, the others don't."""
        last = len(self.calls) + number
        self.fault = lambda _: fault if len(self.calls) - 1 == last else None

    def fail_from(self, number: int, fault: Fault) -> None:
        """The number-th call fails so, and the store answers nothing more."""
        last = len(self.calls) + number

        def for_good(_: Call) -> Fault | None:
            at = len(self.calls) - 1
            return None if at < last else fault if at == last else Fault.BEFORE

        self.fault = for_good

    def begin(self, call: Call) -> Fault | None:
        """Keeps the call, and fails it if that is to be before."""
        self.calls.append(call)
        fault = self.fault(call)
        if fault is Fault.BEFORE:
            raise FaultyIOError(f"injected before {call.name} {call.path}")
        return fault

    def _run(self, call: Call, action: Callable[[], T]) -> T:
        fault = self.begin(call)
        result = action()
        if fault is Fault.AFTER:
            raise FaultyIOError(f"injected after {call.name} {call.path}")
        return result

    def read(self, path: str) -> bytes:
        data = self._run(Call("read", path), lambda: self.inner.read(path))
        self.calls[-1] = Call("read", path, len(data))
        return data

    def open_input(self, path: str) -> pa.NativeFile:
        return self._run(Call("open_input", path), lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> Output:
        return _FaultyOutput(self, self.inner.open_output(path))

    def write(self, path: str, data: bytes) -> None:
        self._run(Call("write", path, len(data)), lambda: self.inner.write(path, data))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._run(Call("create_if_absent", path, len(data)), lambda: self.inner.create_if_absent(path, data))

    def exists(self, path: str) -> bool:
        return self._run(Call("exists", path), lambda: self.inner.exists(path))

    def size_bytes(self, path: str) -> int:
        return self._run(Call("size_bytes", path), lambda: self.inner.size_bytes(path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._run(Call("list_directory", path), lambda: self.inner.list_directory(path))

    def make_directory(self, path: str) -> None:
        self._run(Call("make_directory", path), lambda: self.inner.make_directory(path))

    def delete(self, path: str) -> None:
        self._run(Call("delete", path), lambda: self.inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_directory(self, path: str) -> None:
        self._run(Call("delete_directory", path), lambda: self.inner.delete_directory(path))

    def rename_directory(self, source: str, target: str) -> None:
        self._run(Call("rename_directory", source), lambda: self.inner.rename_directory(source, target))


class _FaultyOutput:
    stream: pa.NativeFile

    def __init__(self, io: FaultyFileIO, inner: Output) -> None:
        self._io = io
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    def __enter__(self) -> Self:
        self.stream = self._inner.__enter__().stream
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._inner.__exit__(kind, error, trace)
            return
        try:
            fault = self._io.begin(Call("open_output", self.path, self.stream.tell()))
        except FaultyIOError as injected:
            self._inner.__exit__(type(injected), injected, injected.__traceback__)
            raise
        self._inner.__exit__(None, None, None)
        if fault is Fault.AFTER:
            raise FaultyIOError(f"injected after open_output {self.path}")
