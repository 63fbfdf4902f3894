"""A FileIO with injected faults: an error before or after the work, no answer, half a file, a crash."""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from tidelake.storage.fileio.base import FileIO, FileStatus, Output

T = TypeVar("T")


class Fault(Enum):
    """What becomes of one call. What is no write, and what is atomic by contract, can't be TORN: then it is BEFORE."""

    BEFORE = auto()  # nothing happened
    AFTER = auto()  # the work was done, and the caller gets no answer
    TORN = auto()  # half of the bytes arrived
    HANG = auto()  # no answer until the caller's patience ends; nothing happened
    LATE = auto()  # no answer either; it happens later, when the test says `land`


class FaultyIOError(OSError):
    """What a test made happen."""


class FaultyTimeout(FaultyIOError, TimeoutError):
    """What a test made the caller wait for in vain."""


class ProcessDied(BaseException):
    """The simulated end of the process, which no code can handle."""


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

    fault: asked on each call, may act (let another writer go first) and says whether to fail, and how.
    on_hang: makes the time pass that a call without an answer takes, on the test's clock.
    Thread-safe; calls are numbered in the order they come.
    """

    def __init__(self, inner: FileIO, fault: Callable[[Call], Fault | None] = lambda _: None) -> None:
        self.inner = inner
        self.fault = fault
        self.on_hang: Callable[[], None] = lambda: None
        self.calls: list[Call] = []
        self.is_dead = False
        self._in_flight: list[Callable[[], object]] = []
        self._lock = threading.RLock()
        self._current = threading.local()  # the number of the thread's call

    # ------------------------------------------------------------ what is to go wrong

    def fail_call(self, number: int, fault: Fault) -> None:
        """From now on the number-th call (0 is the next one) fails, the others don't."""
        last = len(self.calls) + number
        self.fault = lambda _: fault if self._current.number == last else None

    def fail_from(self, number: int, fault: Fault) -> None:
        """The number-th call fails so, and the store answers nothing more."""
        last = len(self.calls) + number

        def for_good(_: Call) -> Fault | None:
            at = self._current.number
            return None if at < last else fault if at == last else Fault.BEFORE

        self.fault = for_good

    def crash_call(self, number: int, fault: Fault) -> None:
        """The process dies in its number-th call, which does the part of its work that `fault` says. No cleanup
        follows.
        """
        last = len(self.calls) + number

        def die(_: Call) -> Fault | None:
            self.is_dead = self.is_dead or self._current.number == last
            return fault if self.is_dead else None

        self.fault = die

    def land(self) -> None:
        """What was LATE happens now. Nobody waits for its answer, which is an error if a read finds no file."""
        landing, self._in_flight = self._in_flight, []
        for action in landing:
            with suppress(OSError):
                action()

    # ------------------------------------------------------------ one call

    def begin(self, call: Call) -> Fault | None:
        """Keeps the call, and fails it if nothing of it is to happen."""
        with self._lock:
            if self.is_dead:
                raise ProcessDied
            self.calls.append(call)
            self._current.number = len(self.calls) - 1
        fault = self.fault(call)  # without the lock: what it does may wait for calls of other threads
        if fault is Fault.HANG:
            self.on_hang()
        if fault in (Fault.BEFORE, Fault.HANG):
            raise self._error(fault, call)
        return fault

    def end(self, fault: Fault | None, call: Call, action: Callable[[], T], torn: Callable[[], object] | None) -> T:
        """Does as much of the call as `begin` left to do. torn: half of it, where there is such a thing."""
        if fault is Fault.LATE:
            self._in_flight.append(action)
        elif fault is Fault.TORN and torn is not None:
            torn()
        elif fault is not Fault.TORN:
            result = action()
            if fault is None:
                return result
        raise self._error(fault, call)

    def _error(self, fault: Fault | None, call: Call) -> BaseException:
        if self.is_dead:
            return ProcessDied()
        assert fault is not None
        kind = FaultyTimeout if fault in (Fault.HANG, Fault.LATE) else FaultyIOError
        return kind(errno.EIO, f"injected, {fault.name.lower()} {call.name}", call.path)

    def _run(self, call: Call, action: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        return self.end(self.begin(call), call, action, torn)

    # ------------------------------------------------------------ FileIO

    def read(self, path: str) -> bytes:
        call = Call("read", path)
        data = self._run(call, lambda: self.inner.read(path))
        with self._lock:
            at = next(at for at in reversed(range(len(self.calls))) if self.calls[at] is call)
            self.calls[at] = Call("read", path, len(data))
        return data

    def open_input(self, path: str) -> pa.NativeFile:
        return self._run(Call("open_input", path), lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> Output:
        return _FaultyOutput(self, self.inner.open_output(path))

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._run(
            Call("write", path, len(data)),
            lambda: self.inner.write(path, data, durable=durable),
            lambda: self.inner.write(path, data[: len(data) // 2]),
        )

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

    def delete_empty_directory(self, path: str) -> bool:
        return self._run(Call("delete_empty_directory", path), lambda: self.inner.delete_empty_directory(path))

    def rename_directory(self, source: str, target: str) -> None:
        self._run(Call("rename_directory", source), lambda: self.inner.rename_directory(source, target))


class _FaultyOutput:
    """Keeps the bytes itself until its file is to appear: how many of them arrive is decided then."""

    stream: pa.NativeFile

    def __init__(self, faulty: FaultyFileIO, inner: Output) -> None:
        self._faulty = faulty
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    def __enter__(self) -> Self:
        if self._faulty.is_dead:
            raise ProcessDied
        self._bytes = _KeptBytes()
        self.stream = pa.PythonFile(self._bytes, mode="w")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            data = self._bytes.getvalue()
            call = Call("open_output", self.path, len(data))
            fault = self._faulty.begin(call)
            self._faulty.end(fault, call, lambda: self._put(data), lambda: self._put(data[: len(data) // 2]))

    def write(self, data: bytes) -> None:
        self._bytes.write(data)

    def _put(self, data: bytes) -> None:
        with self._inner as output:
            output.stream.write(data)


class _KeptBytes(io.BytesIO):
    """Closing it, as some writers do, does not throw them away."""

    def close(self) -> None:
        self.flush()
