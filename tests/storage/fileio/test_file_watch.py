"""Waiting for a file on a local disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.file_watch import FileWatch, call_when_exists
from tidelake.storage.fileio.local import LocalFileIO


def test_a_new_file_calls_back_once(tmp_path: Path) -> None:
    calls: list[int] = []
    there, again = threading.Event(), threading.Event()
    watch = FileWatch()

    def call_back() -> None:
        calls.append(1)
        there.set()

    watch.call_when_exists(str(tmp_path / "a"), call_back)
    (tmp_path / "a").touch()
    assert there.wait(60)
    watch.call_when_exists(str(tmp_path / "a"), again.set)
    assert again.wait(60)
    assert calls == [1]


def test_waiting_also_ends_when_another_condition_holds(tmp_path: Path) -> None:
    stopped, reported = threading.Event(), threading.Event()
    watch = FileWatch()
    watch.call_when_exists(str(tmp_path / "never"), reported.set, stopped.is_set)
    stopped.set()
    assert reported.wait(60)


def test_a_cancelled_wait_gets_no_callback_and_the_thread_ends(tmp_path: Path) -> None:
    reported, other = threading.Event(), threading.Event()
    threads = set(threading.enumerate())
    watch = FileWatch()
    cancel = watch.call_when_exists(str(tmp_path / "a"), reported.set)
    cancel()
    (tmp_path / "a").touch()
    watch.call_when_exists(str(tmp_path / "a"), other.set)
    assert other.wait(60)
    assert not reported.is_set()
    for thread in set(threading.enumerate()) - threads:  # until it noticed that no caller waits
        thread.join(60)
        assert not thread.is_alive()


def test_an_error_of_a_closed_event_loop_does_not_stop_other_callbacks(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("Event loop is closed")

    reported = threading.Event()
    watch = FileWatch()
    watch.call_when_exists(str(tmp_path / "a"), fail)
    watch.call_when_exists(str(tmp_path / "a"), reported.set)
    (tmp_path / "a").touch()
    assert reported.wait(60)


def test_a_forked_process_has_its_own_watch(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    reported = threading.Event()
    assert call_when_exists(LocalFileIO(), str(tmp_path / "a"), reported.set) is not None
    assert reported.wait(60)
    child = os.fork()
    if child == 0:
        heard = threading.Event()
        call_when_exists(LocalFileIO(), str(tmp_path / "a"), heard.set)
        os._exit(0 if heard.wait(60) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_only_local_files_are_watched() -> None:
    io = open_file_io("memory://watch/lake")
    assert call_when_exists(io, "memory://watch/lake/a", lambda: None) is None
