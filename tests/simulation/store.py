"""An object store in memory, whose answers may be slow, lost, or wrong in the ways of a real one.

Every process has its own client (`StoreClient`). Writes are atomic, and readers and listings see them at once, as S3,
GCS and Azure promise. A request may fail before or after it acted; a conditional put whose answer is lost may also act
later. A client whose process died acts no more, except for such a late put.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

import pyarrow as pa

from tests.simulation.scheduler import Process, ProcessDied, Scheduler
from tidelake.storage.fileio.base import FileStatus


@dataclass
class StoreFaults:
    """How often what goes wrong, from 0 to 1, per call.

    error_before: a 5xx without effect. error_after: the request acted, its answer was lost. late_put: a conditional put
    without an answer, which acts up to a minute later. slow: a latency of up to `slow_ms`. crash: the process dies,
    half of the times before the call acts. lost_put: as error_after, for a conditional put alone: the commits.
    """

    error_before: float = 0.0
    error_after: float = 0.0
    late_put: float = 0.0
    slow: float = 0.02
    slow_ms: int = 2_000
    crash: float = 0.0
    lost_put: float = 0.0


@dataclass(slots=True)
class _Object:
    """by: the process that wrote it first."""

    data: bytes
    modified_ms: int
    by: str


@dataclass
class ObjectStore:
    """The objects, and what happens to calls.

    on_written: called with the path and whether it is new, right after the object was written. on_deleted: with the
        path and the name of the process, right after it vanished. on_late: also called, with the path, after a put that
        acted when nobody waited for it any more.
    """

    scheduler: Scheduler
    faults: StoreFaults = field(default_factory=StoreFaults)
    on_written: Callable[[str, bool], None] = lambda path, is_new: None
    on_deleted: Callable[[str, str], None] = lambda path, by: None
    on_late: Callable[[str], None] = lambda path: None
    objects: dict[str, _Object] = field(default_factory=dict)
    children: dict[str, dict[str, None]] = field(default_factory=dict)
    operations: int = 0
    tried: dict[str, int] = field(default_factory=dict)  # faults by name
    crashing: list[Process] = field(default_factory=list)
    disturbed: set[str] = field(default_factory=set)  # processes that met a fault, or were killed
    late: list[tuple[int, str, bytes, str]] = field(default_factory=list)

    # ------------------------------------------------------------ objects

    def put(self, path: str, data: bytes, by: str) -> None:
        is_new = path not in self.objects
        first = by if is_new else self.objects[path].by
        self.objects[path] = _Object(data, self.scheduler.now_ns // 1_000_000, first)
        if is_new:
            name = path
            while True:
                parent, _, name = name.rpartition("/")
                siblings = self.children.setdefault(parent, {})
                if name in siblings or "/" not in parent:
                    siblings[name] = None
                    break
                siblings[name] = None
                name = parent
        self.on_written(path, is_new)

    def remove(self, path: str, by: str) -> None:
        if self.objects.pop(path, None) is None:
            return
        name = path
        while True:
            parent, _, name = name.rpartition("/")
            siblings = self.children.get(parent)
            if siblings is None:
                break
            siblings.pop(name, None)
            if siblings:
                break
            del self.children[parent]
            name = parent
        self.on_deleted(path, by)

    def below(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [name for name in self.objects if name.startswith(prefix)]

    def land_late_puts(self) -> None:
        """Let the puts act whose time has come."""
        due = [put for put in self.late if put[0] <= self.scheduler.now_ns]
        if due:
            self.late = [put for put in self.late if put[0] > self.scheduler.now_ns]
            for _, path, data, by in due:
                if path not in self.objects:
                    self.put(path, data, by)
                    self.on_late(path)

    def count(self, fault: str) -> None:
        self.tried[fault] = self.tried.get(fault, 0) + 1


def _short(path: str) -> str:
    return path.split("/", 3)[-1]


class StoreClient:
    """The FileIO of one process. See the module, and `tidelake.storage.fileio.base.FileIO`."""

    def __init__(self, store: ObjectStore, process: Process, *, is_quiet: bool = False) -> None:
        self._store = store
        self._process = process
        self._is_quiet = is_quiet  # an auditor: no faults, no waits

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a simulated store exists only in its process")

    def _begin(self, call: str, path: str, *, may_act_late: bool = False) -> str | None:
        """Let time pass and others run. Returns the fault that follows the act: "after", "late", "crash"."""
        if self._process.is_dead:
            raise ProcessDied
        if self._is_quiet:
            return None
        store, faults = self._store, self._store.faults
        scheduler, random = store.scheduler, store.scheduler.random
        store.operations += 1
        chance = random.random()
        if chance < faults.slow:
            scheduler.sleep(random.randrange(1, faults.slow_ms) * 1_000_000)
        else:
            scheduler.step()
        store.land_late_puts()
        scheduler.note(f"{call} {_short(path)}")
        chance = random.random()
        for name, share in (
            ("crash before", faults.crash / 2),
            ("crash after", faults.crash / 2),
            ("error before", faults.error_before),
            ("error after", faults.error_after),
            ("late", faults.late_put if may_act_late else 0.0),
            ("error after", faults.lost_put if may_act_late else 0.0),
        ):
            if chance < share:
                return self._fault(name, call, path, random)
            chance -= share
        return None

    def _fault(self, name: str, call: str, path: str, random: Random) -> str | None:
        store = self._store
        store.disturbed.add(self._process.name)
        store.count(f"{name} {call}")
        store.scheduler.note(f"! {name}")
        if name == "crash before":
            self._die()
        if name == "error before":
            raise OSError(errno.EIO, "503 Slow Down (simulated)", path)
        return name

    def _end(self, fault: str | None, path: str) -> None:
        if fault == "crash after":
            self._die()
        if fault == "error after":
            raise OSError(errno.ETIMEDOUT, "no answer (simulated)", path)

    def _die(self) -> None:
        self._store.crashing.append(self._process)
        while True:
            self._store.scheduler.yield_now()

    def _missing(self, path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "no such object", path)

    # ------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        fault = self._begin("read", path)
        found = self._store.objects.get(path)
        self._end(fault, path)
        if found is None:
            raise self._missing(path)
        return found.data

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def exists(self, path: str) -> bool:
        self._end(self._begin("head", path), path)
        return path in self._store.objects

    def size_bytes(self, path: str) -> int:
        self._end(self._begin("head", path), path)
        found = self._store.objects.get(path)
        if found is None:
            raise self._missing(path)
        return len(found.data)

    def list_directory(self, path: str) -> list[FileStatus]:
        self._end(self._begin("list", path), path)
        path = path.rstrip("/")
        entries: list[FileStatus] = []
        for name in self._store.children.get(path, ()):
            found = self._store.objects.get(f"{path}/{name}")
            if found is not None:
                entries.append(FileStatus(name, len(found.data), found.modified_ms, is_directory=False))
            else:
                entries.append(FileStatus(name, 0, 0, is_directory=True))
        return sorted(entries, key=lambda entry: entry.name)

    # ------------------------------------------------------------ writing

    def open_output(self, path: str) -> _Upload:
        return _Upload(self, path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        fault = self._begin("put", path)
        self._store.put(path, bytes(data), self._process.name)
        self._end(fault, path)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        fault = self._begin("put-if-absent", path, may_act_late=True)
        store = self._store
        if fault == "late":
            at_ns = store.scheduler.now_ns + store.scheduler.random.randrange(60_000) * 1_000_000
            store.late.append((at_ns, path, bytes(data), self._process.name))
            raise OSError(errno.ETIMEDOUT, "no answer yet (simulated)", path)
        is_created = path not in store.objects
        if is_created:
            store.put(path, bytes(data), self._process.name)
        self._end(fault, path)
        return is_created

    def make_directory(self, path: str) -> None:
        self.write(f"{path.rstrip('/')}/.directory", b"")

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            fault = self._begin("delete", path)
            self._store.remove(path, self._process.name)
            self._end(fault, path)

    def delete_directory(self, path: str) -> None:
        self.delete_all(sorted(self._store.below(path)))

    def delete_empty_directory(self, path: str) -> bool:
        return False

    def rename_directory(self, source: str, target: str) -> None:
        self._begin("rename", source)
        if self._store.below(target):
            raise FileExistsError(errno.EEXIST, "there are files already", target)
        found = sorted(self._store.below(source))
        if not found:
            raise FileNotFoundError(errno.ENOENT, "there is no file below it", source)
        for path in found:
            moved = self._store.objects[path]
            self._store.put(target + path.removeprefix(source), moved.data, moved.by)
            self._store.remove(path, self._process.name)


class _Upload:
    """See `tidelake.storage.fileio.base.Output`."""

    def __init__(self, client: StoreClient, path: str) -> None:
        self._client = client
        self._path = path
        self._data: bytes | None = None
        self._stream: pa.NativeFile | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def stream(self) -> pa.NativeFile:
        if self._stream is None:
            self._stream = pa.PythonFile(_Sink(self), mode="w")
        return self._stream

    def write(self, data: bytes) -> None:
        self._data = bytes(data)

    def append(self, data: bytes) -> None:
        self._data = (self._data or b"") + data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._client.write(self._path, self._data or b"")


class _Sink:
    """The file object for `pyarrow.PythonFile`, which may be closed without effect."""

    def __init__(self, upload: _Upload) -> None:
        self._upload = upload
        self.closed = False

    def write(self, data: bytes) -> int:
        self._upload.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Everything is in memory."""

    def close(self) -> None:
        self.closed = True
