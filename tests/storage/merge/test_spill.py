"""Spill files are deleted with their process: when its work ends, or when the next process spills after it was
killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tidelake.storage.merge import spill_folder
from tidelake.storage.merge.spill_file import SpillFile
from tidelake.storage.merge.spill_folder import SpillFolders

SCHEMA: Final = pa.schema([("k", pa.int64())])
PATIENCE_S: Final = 30  # only what hangs takes so long
BATCH: Final = pa.record_batch([list(range(1000))], schema=SCHEMA)

# Spills, and stops in the middle of it until it is killed.
SPILLS: Final = """
import sys
import pyarrow as pa
from tidelake.storage.merge.spill_file import SpillFile

batch = pa.record_batch([list(range(1000))], schema=pa.schema([("k", pa.int64())]))

def batches():
    yield batch
    print("in the middle", flush=True)
    sys.stdin.read()

whole = SpillFile(sys.argv[1], batch.schema, [batch])
SpillFile(sys.argv[1], batch.schema, batches())
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", SPILLS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"in the middle\n"
            yield process
        finally:
            process.kill()


def begin_to_spill(directory: Path) -> None:
    """As a process does that has just started."""
    folders = SpillFolders()
    folders.remove_file(folders.new_file(str(directory)))


def test_files_of_a_killed_process_are_deleted_when_the_next_one_spills(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    begin_to_spill(tmp_path)
    assert len(list(tmp_path.rglob("*.arrow"))) == 2, "it still runs"
    process.kill()
    process.wait()
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    begin_to_spill(tmp_path)
    assert not list(tmp_path.iterdir())


HERE: Final = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
ELSEWHERE: Final = "0" * 32
DAY_S: Final = 86_400


def folder_of(host: str, directory: Path, name: str = "x", *, has_lock: bool = True, age_s: float = 0) -> Path:
    """A folder as a process on that host creates it. No process here holds its lock."""
    folder = directory / f"tidelake-spill-{host}-{name}"
    folder.mkdir()
    touched = [folder]
    if has_lock:
        (folder / "1.arrow").touch()
        (folder / "lock").touch()
        touched.append(folder / "lock")
    for path in touched:
        os.utime(path, (time.time() - age_s,) * 2)
    return folder


@pytest.mark.parametrize("has_lock", [True, False], ids=["whole", "half made or half removed"])
def test_a_folder_of_another_host_is_deleted_after_a_day_without_activity(has_lock: bool, tmp_path: Path) -> None:
    living = folder_of(ELSEWHERE, tmp_path, "living", has_lock=has_lock, age_s=DAY_S - 600)
    folder_of(ELSEWHERE, tmp_path, "dead", has_lock=has_lock, age_s=DAY_S + 600)
    begin_to_spill(tmp_path)
    assert list(tmp_path.iterdir()) == [living]


def test_an_acquirable_lock_of_another_host_does_not_prove_its_process_dead(tmp_path: Path) -> None:
    """A network file system may keep locks to the host that has them."""
    here, there = folder_of(HERE, tmp_path), folder_of(ELSEWHERE, tmp_path)
    begin_to_spill(tmp_path)
    assert (here.exists(), there.exists()) == (False, True)


def test_a_held_lock_of_another_host_protects_its_folder_at_any_age(tmp_path: Path) -> None:
    folder = folder_of(ELSEWHERE, tmp_path, age_s=9 * DAY_S)
    with open(folder / "lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begin_to_spill(tmp_path)
        assert (folder / "1.arrow").exists()
    begin_to_spill(tmp_path)
    assert not folder.exists()


def test_without_file_locks_old_folders_of_other_hosts_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    dead, living = folder_of(ELSEWHERE, tmp_path, "dead", age_s=2 * DAY_S), folder_of(ELSEWHERE, tmp_path, "living")
    here = folder_of(HERE, tmp_path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    begin_to_spill(tmp_path)
    assert [path.exists() for path in (dead, living, here)] == [False, True, True]


def test_a_live_process_touches_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it spills nothing new."""
    monkeypatch.setattr(spill_folder, "TOUCHED_EVERY_S", 0.01)
    folders = SpillFolders()
    file = folders.new_file(str(tmp_path))
    lock = file.parent / "lock"
    assert file.parent.name.startswith(f"tidelake-spill-{HERE}-")
    os.utime(lock, (0, 0))
    deadline_s = time.monotonic() + PATIENCE_S
    while not lock.stat().st_mtime and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert time.time() - lock.stat().st_mtime < PATIENCE_S
    folders.remove_file(file)


def test_a_forked_child_does_not_protect_the_files_of_its_parent(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
from tidelake.storage.merge.spill_folder import FOLDERS
FOLDERS.new_file({str(tmp_path)!r}).touch()
parent = os.getpid()
if child := os.fork():
    os.waitpid(child, os.WUNTRACED)
    print(child, flush=True)
    os.kill(parent, signal.SIGKILL)
os.close(1)
FOLDERS.new_file({str(tmp_path)!r}).touch()
os.kill(os.getpid(), signal.SIGSTOP)
os._exit(0)
"""
    parent = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    child = int(parent.stdout)
    try:
        assert len(list(tmp_path.rglob("*.arrow"))) == 2
        begin_to_spill(tmp_path)
        assert len(list(tmp_path.rglob("*.arrow"))) == 1, "the child's"
    finally:
        os.kill(child, 9)


def test_half_created_or_half_deleted_folders_are_deleted_too(tmp_path: Path) -> None:
    elsewhere, others = tmp_path / "elsewhere", tmp_path / "tidelake-spill-of-whom"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "tidelake-spill-link").symlink_to(elsewhere)
    others.mkdir()
    (others / "1.arrow").touch()  # no lock: none of our processes created this
    for name in ("unlocked", "removed"):
        folder_of(HERE, tmp_path, name, has_lock=name == "unlocked")
    begin_to_spill(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "tidelake-spill-link", others.name}
    assert (elsewhere / "lock").exists()


@pytest.mark.parametrize("slow", ["_delete_abandoned", "_remove"])
def test_a_spill_does_not_wait_for_the_cleanup_of_another_thread(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have gigabytes of the dead to remove, and what it removes belongs to no process."""
    folders, others = SpillFolders(), list[Path]()
    clear_away = getattr(spill_folder, slow)

    def with_another_thread(what: Path | str) -> None:
        other = thread.submit(folders.new_file, str(tmp_path)).result(PATIENCE_S)
        other.touch()
        others.append(other)
        clear_away(what)

    with ThreadPoolExecutor(1) as thread, monkeypatch.context() as patched:
        patched.setattr(spill_folder, slow, with_another_thread)
        folders.remove_file(folders.new_file(str(tmp_path)))
    assert [other.exists() for other in others] == [True]
    for other in others:
        folders.remove_file(other)
    assert not list(tmp_path.iterdir())


def test_many_threads_never_lose_a_file_to_one_that_removes_its_last(tmp_path: Path) -> None:
    folders = SpillFolders()

    def spill(_: int) -> None:
        path = folders.new_file(str(tmp_path))
        path.write_bytes(b"rows")
        assert path.read_bytes() == b"rows"
        folders.remove_file(path)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(spill, range(1000)))
    assert not list(tmp_path.iterdir())


def test_a_folder_is_deleted_with_its_last_file_and_recreated(tmp_path: Path) -> None:
    for _ in range(2):
        files = [SpillFile(str(tmp_path), SCHEMA, [BATCH]) for _ in range(2)]
        assert [list(file.read()) for file in files] == [[BATCH]] * 2
        files[0].delete()
        files[0].delete()
        assert list(files[1].read()) == [BATCH]
        files[1].delete()
        assert not list(tmp_path.iterdir())


def test_a_process_whose_folder_was_deleted_continues_to_spill(tmp_path: Path) -> None:
    lost = SpillFile(str(tmp_path), SCHEMA, [BATCH])
    shutil.rmtree(lost.path.parent)
    file = SpillFile(str(tmp_path), SCHEMA, [BATCH])
    assert list(file.read()) == [BATCH]
    for one in (file, lost):
        one.delete()
    assert not list(tmp_path.iterdir())


def test_an_incomplete_spill_leaves_no_files(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        SpillFile(str(tmp_path), SCHEMA, batches())
    assert not list(tmp_path.iterdir())
