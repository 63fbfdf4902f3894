"""Where a process keeps its spill files: in a folder that others remove once it has died.

    <directory>/tidelake-spill-<host>-<random>/    there while the process has spill files
        lock                                       held by the process (flock), and touched every few minutes
        1.arrow, 2.arrow, ..

A lock goes with its process, however that ends, so a folder of this host whose lock can be had is abandoned. Of another
host, on a directory that several share, a lock that can be had says nothing: a network file system may keep locks to
the host that has them, or have none. Such a folder goes when, by the clock of the file system, no process touched its
lock for a day. `host` is the boot of a kernel: containers on it share its locks; an earlier boot is another host.

The number of a process would not do: it is given again, and means another one in another container. Nor are files
unlinked while they are open: the segments of many buckets are more than a process may have open.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from storage.fileio.access import Access, access

_PREFIX: Final = "tidelake-spill-"
_LOCK: Final = "lock"  # goes last: without it a folder is either empty or being made
TOUCHED_EVERY_S: Final = 600
_ABANDONED_S: Final = 86_400
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system without locks


@dataclass(slots=True)
class _Folder:
    """lock: its descriptor.
    numbered: files so far.
    """

    path: Path
    lock: int
    files: set[Path] = field(default_factory=set)
    numbered: int = 0

    def new_file(self) -> Path:
        self.numbered += 1
        path = self.path / f"{self.numbered}.arrow"
        self.files.add(path)
        return path

    def remove(self) -> None:
        with suppress(OSError):  # what can't be removed is abandoned from now on
            _remove(self.path)
        os.close(self.lock)


class SpillFolders:
    """Those of this process, one a directory. Safe to use from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._folders: dict[str, _Folder] = {}
        self._swept: set[str] = set()
        self._is_touching = False

    def new_file(self, directory: str | None) -> Path:
        """The path of a new file; no other process uses it.

        directory: None is the system's place for temporary files.
        Raises OSError.

        The first time, folders of processes that have died are removed from the directory.
        """
        directory = directory or tempfile.gettempdir()
        with access(Access.WRITE, directory, ", or set another `write.spill_directory`"):
            return self._new_file(directory)

    def _new_file(self, directory: str) -> Path:
        with self._guard:
            is_first = directory not in self._swept
            self._swept.add(directory)
        if is_first:  # outside of the lock: dead processes may have left much to remove
            _sweep(directory)
        with self._guard:
            folder = self._folders.get(directory)
            if folder is not None and not folder.path.exists():  # a cleaner of /tmp was here
                os.close(folder.lock)
                folder = None
            if folder is None:
                folder = self._folders[directory] = _create_folder(directory)
                self._start_heartbeat()
            return folder.new_file()

    def remove_file(self, path: Path) -> None:
        """With the last one goes the folder. Nothing happens if it is gone already."""
        path.unlink(missing_ok=True)
        with self._guard:
            emptied = self._release(path)
        if emptied is not None:  # `new_file` does not return it any more
            emptied.remove()

    def _release(self, path: Path) -> _Folder | None:
        """Returns its folder if that holds no other file: then the folder is to be removed."""
        for directory, folder in self._folders.items():
            if path in folder.files:
                folder.files.remove(path)
                return None if folder.files else self._folders.pop(directory)
        return None

    def _start_heartbeat(self) -> None:
        """Have a thread do it as long as the process lives: rows may be spilled for days, of a read that waits."""
        if not self._is_touching:
            self._is_touching = True
            threading.Thread(target=self._heartbeat, name="spill-folders", daemon=True).start()

    def _heartbeat(self) -> None:
        while True:
            time.sleep(TOUCHED_EVERY_S)
            self.touch()

    def touch(self) -> None:
        """Let other hosts see that this process lives."""
        with self._guard:  # no lock is closed meanwhile
            for folder in self._folders.values():
                with suppress(OSError):
                    os.utime(folder.lock)

    def forget(self) -> None:
        """A forked process begins with none; those that it inherited stay the parent's, and locked by it alone."""
        for folder in self._folders.values():
            os.close(folder.lock)
        self._guard = threading.Lock()
        self._folders.clear()
        self._is_touching = False


def _create_folder(directory: str) -> _Folder:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_own_prefix(), dir=directory))
        try:
            lock = _try_lock(path, is_new=True)
        except OSError:
            _remove(path)
            raise
        if lock is not None:  # else it was swept before it was locked
            return _Folder(path, lock)


def _sweep(directory: str) -> None:
    with os.scandir(directory) as entries:
        paths = [Path(entry.path) for entry in entries if entry.name.startswith(_PREFIX) and _is_own_folder(entry)]
    others = [path for path in paths if not path.name.startswith(_own_prefix())]
    abandoned = _abandoned(directory, others) if others else set()
    for path in paths:
        if path in others and path not in abandoned:
            continue
        with suppress(OSError):
            lock = _try_lock(path, may_lack_locks=path in abandoned)
            if lock is None:
                path.rmdir()  # only an empty one lets itself be removed: its process died before it had the lock
            else:
                try:
                    _remove(path)
                finally:
                    os.close(lock)


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    """Of this user, and no link to anywhere: others may write to a system's temporary directory as well."""
    with suppress(FileNotFoundError):
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _own_prefix() -> str:
    """Of the folders whose locks show this process whether their owner lives."""
    return f"{_PREFIX}{_host()}-"


@cache
def _host() -> str:
    """Differs from host to host, and from one boot to the next where the system reports it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip().replace("-", "")
    except OSError:
        return hashlib.sha256(f"{socket.gethostname()} {uuid.getnode()}".encode()).hexdigest()[:32]


def _abandoned(directory: str, folders: Sequence[Path]) -> set[Path]:
    """Folders of other hosts whose lock was not touched for a day."""
    with tempfile.TemporaryFile(dir=directory) as probe:  # dated by the clock that dates the locks, too
        now_s = os.fstat(probe.fileno()).st_mtime
    return {folder for folder in folders if now_s - _touched_s(folder) > _ABANDONED_S}


def _touched_s(folder: Path) -> float:
    """When its lock was; of one without, when the folder was: it is being made or removed."""
    for path in (folder / _LOCK, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return math.inf  # gone meanwhile


def _try_lock(folder: Path, *, is_new: bool = False, may_lack_locks: bool = False) -> int | None:
    """A descriptor that holds the lock; None where another process holds it, or the folder has gone meanwhile."""
    path = folder / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | (os.O_CREAT if is_new else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as e:
        if (is_new or may_lack_locks) and e.errno in _NO_LOCKS:
            return lock
        os.close(lock)
        raise
    os.close(lock)
    return None


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name != _LOCK:
                path.unlink(missing_ok=True)
        (folder / _LOCK).unlink(missing_ok=True)
        folder.rmdir()


FOLDERS: Final = SpillFolders()
os.register_at_fork(after_in_child=FOLDERS.forget)
