"""Transient store failures are retried if the call may be repeated. A commit then lands once."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.errors import AccessDenied
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.publisher import CommitEnvironment
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio import FileIO, open_file_io, open_retrying_file_io
from tidelake.storage.fileio.retrying import RetryingFileIO
from tidelake.storage.write.table_writer import TableWriter


@dataclass
class FailingStore:
    """A store that fails so often, and one that is patient with it."""

    failures: int
    error: OSError

    def __post_init__(self) -> None:
        self.root = f"memory://{uuid4().hex}"
        self.inner = open_file_io(self.root)
        self.waited_ms = 0.0
        self.faulty: Any = FaultyFileIO(self.inner, self._fault)
        self.io = RetryingFileIO(self.faulty, 30_000, lambda: self.waited_ms, self._sleep)

    def _sleep(self, wait_ms: float) -> None:
        self.waited_ms += wait_ms

    def _fault(self, _: Call) -> Fault | None:
        self.failures -= 1
        if self.failures >= 0:
            raise self.error
        return None


REPEATED: dict[str, Callable[[FileIO, str], object]] = {
    "read": lambda io, path: io.read(path),
    "open_input": lambda io, path: io.open_input(path).read(),
    "write": lambda io, path: io.write(path, b"new"),
    "exists": lambda io, path: io.exists(path),
    "size": lambda io, path: io.size_bytes(path),
    "list": lambda io, path: len(io.list_directory(path.rpartition("/")[0])),
    "delete": lambda io, path: io.delete(path),
    "delete all": lambda io, path: io.delete_all([path]),
    "delete a directory": lambda io, path: io.delete_directory(path),
    "make a directory": lambda io, path: io.make_directory(f"{path}-directory"),
    "write a whole file": lambda io, path: _write_whole(io, f"{path}-new"),
}


def _write_whole(io: FileIO, path: str) -> bytes:
    with io.open_output(path) as output:
        output.write(b"whole")
    return io.read(path)


@pytest.mark.parametrize("act", REPEATED.values(), ids=REPEATED)
def test_a_repeatable_call_is_retried(act: Callable[[FileIO, str], object]) -> None:
    store = FailingStore(3, OSError(errno.ESTALE, "stale file handle"))
    path = f"{store.root}/directory/file"
    store.inner.write(path, b"old")
    expected = FailingStore(0, OSError())
    expected.inner.write(f"{expected.root}/directory/file", b"old")
    assert act(store.io, path) == act(expected.io, f"{expected.root}/directory/file")
    assert store.waited_ms > 0


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no such file"),
        OSError(errno.ENOSPC, "disk full"),
        AccessDenied(errno.EACCES, "not yours", "file"),
    ],
    ids=["missing", "full", "denied"],
)
def test_permanent_errors_are_raised_at_once(error: OSError) -> None:
    store = FailingStore(1, error)
    with pytest.raises(type(error)):
        store.io.read(f"{store.root}/file")
    assert store.waited_ms == 0


def test_retries_end_after_the_time_limit() -> None:
    store = FailingStore(1_000, OSError(errno.EIO, "input/output error"))
    with pytest.raises(OSError, match="input/output error"):
        store.io.read(f"{store.root}/file")
    assert 20_000 < store.waited_ms <= 30_000


def test_create_if_absent_is_not_retried() -> None:
    store = FailingStore(1, OSError(errno.EIO, "input/output error"))
    with pytest.raises(OSError, match="input/output error"):
        store.io.create_if_absent(f"{store.root}/snapshot-1", b"ours")
    assert [call.name for call in store.faulty.calls] == ["create_if_absent"]


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER], ids=["not done", "done, and nobody was told"])
def test_a_commit_lands_once_when_any_single_call_fails_once(fault: Fault) -> None:
    number, calls = 0, 1
    while number < calls:
        root = f"memory://{uuid4().hex}"
        faulty = FaultyFileIO(open_file_io(root))
        io = RetryingFileIO(faulty, 30_000, lambda: 0.0, lambda _: None)
        catalog = FileSystemCatalog(io, root)
        catalog.create_database("d")
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        catalog.create_table("d.t", schema, primary_key=["id"], options={"bucket": "1"})
        context = catalog.load("d.t")
        writer = TableWriter(context)
        writer.write(pa.record_batch({"id": [1, 2]}, schema=schema))
        messages = writer.prepare_commit(1)
        before = len(faulty.calls)
        faulty.fail_call(number, fault)
        commit = TableCommit(context, "user", environment=CommitEnvironment(sleep_ms=lambda _: None))
        commit.commit(Committable(1, messages))
        calls = len(faulty.calls) - before
        faulty.fault = lambda _: None
        assert [(s.id, s.commit_identifier) for s in context.snapshots.all()] == [(1, 1)]
        number += 1
    assert number > 5


def test_a_pipeline_uses_it_for_local_files_and_it_pickles(tmp_path: Any) -> None:
    io = open_retrying_file_io(str(tmp_path))
    assert isinstance(io, RetryingFileIO)
    pickle.loads(pickle.dumps(io)).write(f"{tmp_path}/file", b"x")
    assert io.read(f"{tmp_path}/file") == b"x"
