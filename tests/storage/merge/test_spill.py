"""Spill files go with their process: when its work is done; or, if it was killed, when the next one spills."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from storage.merge import spill_folder
from storage.merge.spill import SpillFile
from storage.merge.spill_folder import SpillFolders

SCHEMA: Final = pa.schema([("k", pa.int64())])
PATIENCE_S: Final = 30  # only what hangs takes so long
BATCH: Final = pa.record_batch([list(range(1000))], schema=SCHEMA)

# Spills, and stops in the middle of it until it is killed.
SPILLS: Final = """
import sys
import pyarrow as pa
from storage.merge.spill import SpillFile

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


def test_files_of_a_killed_process_go_when_the_next_one_spills(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    begin_to_spill(tmp_path)
    assert len(list(tmp_path.rglob("*.arrow"))) == 2, "it still runs"
    process.kill()
    process.wait()
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    begin_to_spill(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_child_that_was_forked_does_not_keep_the_files_of_its_parent(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
from storage.merge.spill_folder import FOLDERS
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


def test_what_was_left_half_made_or_half_removed_goes_too(tmp_path: Path) -> None:
    elsewhere, others = tmp_path / "elsewhere", tmp_path / "tidelake-spill-of-whom"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "tidelake-spill-link").symlink_to(elsewhere)
    others.mkdir()
    (others / "1.arrow").touch()  # no lock: whoever made this, no process of ours
    for name in ("unlocked", "removed"):
        (tmp_path / f"tidelake-spill-{name}").mkdir()
    (tmp_path / "tidelake-spill-unlocked" / "lock").touch()
    begin_to_spill(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "tidelake-spill-link", others.name}
    assert (elsewhere / "lock").exists()


@pytest.mark.parametrize("slow", ["_sweep", "_remove"])
def test_nobody_waits_for_another_thread_that_clears_away(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have gigabytes of the dead to remove, and what it removes is nobody's."""
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


def test_a_folder_goes_with_its_last_file_and_comes_again(tmp_path: Path) -> None:
    for _ in range(2):
        files = [SpillFile(str(tmp_path), SCHEMA, [BATCH]) for _ in range(2)]
        assert [list(file.read()) for file in files] == [[BATCH]] * 2
        files[0].delete()
        files[0].delete()
        assert list(files[1].read()) == [BATCH]
        files[1].delete()
        assert not list(tmp_path.iterdir())


def test_a_process_whose_folder_was_cleaned_away_spills_on(tmp_path: Path) -> None:
    lost = SpillFile(str(tmp_path), SCHEMA, [BATCH])
    shutil.rmtree(lost.path.parent)
    file = SpillFile(str(tmp_path), SCHEMA, [BATCH])
    assert list(file.read()) == [BATCH]
    for one in (file, lost):
        one.delete()
    assert not list(tmp_path.iterdir())


def test_what_could_not_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        SpillFile(str(tmp_path), SCHEMA, batches())
    assert not list(tmp_path.iterdir())
