"""Keeps the spill files of a process in a folder that other processes remove after the process has died.

    <directory>/tidelake-spill-<host>-<random>/    exists while the process has spill files
        lock                                       held by the process (flock), and touched every few minutes
        1.arrow, 2.arrow, ..

The operating system releases a lock when its process ends, for any reason. So a folder of this host is abandoned if its
lock can be taken. If several hosts share the directory, this is not true for the folders of another host: a network
file system may keep locks local to a host, or have none. Such a folder is removed if its lock was not touched for a
day, by the clock of the file system. `host` identifies the boot of a kernel: containers on one kernel share its locks,
and an earlier boot counts as another host.

Process ids can't identify the owner: they are reused, and differ between containers. Files can't be unlinked while they
are open either: the spill files of many buckets exceed the number of files that a process may have open.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import socket
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tidelake.storage.base import env
from tidelake.storage.fileio.access import Access, access

_PREFIX: Final = "tidelake-spill-"
_LOCK: Final = "lock"  # removed last: a folder without it is either empty or being created
TOUCHED_EVERY_S: Final = 600
_ABANDONED_S: Final = 86_400
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LOCK_UNSUPPORTED_ERRORS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system without locks


@dataclass(slots=True)
class _Folder:
    """A folder of this process.

    lock: the file descriptor of its lock.
    files: the spill files that exist.
    numbered: how many files were created so far.
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
        with suppress(OSError):  # files that can't be removed are abandoned from now on
            _remove(self.path)
        os.close(self.lock)


class SpillFolders:
    """The folders of this process, one per directory. Thread-safe."""

    def __init__(self) -> None:
        self._guard = env.Lock()
        self._folders: dict[str, _Folder] = {}
        self._cleaned: set[str] = set()
        self._is_touching = False

    def new_file(self, directory: str | None) -> Path:
        """Return the path of a new file, which no other process uses. Raises OSError.

        The first call for a directory also removes the folders of dead processes from it.

        directory: where to create the file; None means the system's temporary directory.
        """
        directory = directory or tempfile.gettempdir()
        with access(Access.WRITE, directory, ", or set another `write.spill_directory`"):
            return self._new_file(directory)

    def _new_file(self, directory: str) -> Path:
        with self._guard:
            is_first = directory not in self._cleaned
            self._cleaned.add(directory)
        if is_first:  # without the lock: dead processes may have left many files
            _delete_abandoned(directory)
        with self._guard:
            folder = self._folders.get(directory)
            if folder is not None and not folder.path.exists():  # a cleaner of /tmp removed it
                os.close(folder.lock)
                folder = None
            if folder is None:
                folder = self._folders[directory] = _create_folder(directory)
                self._start_heartbeat()
            return folder.new_file()

    def remove_file(self, path: Path) -> None:
        """Remove a file, and its folder if it was the last one. Does nothing if the file does not exist."""
        path.unlink(missing_ok=True)
        with self._guard:
            emptied = self._release(path)
        if emptied is not None:  # `new_file` does not use this folder any more
            emptied.remove()

    def _release(self, path: Path) -> _Folder | None:
        """Forget a file. Returns its folder if that contains no other file, so that the caller removes it."""
        for directory, folder in self._folders.items():
            if path in folder.files:
                folder.files.remove(path)
                return None if folder.files else self._folders.pop(directory)
        return None

    def _start_heartbeat(self) -> None:
        """Start a thread that touches the locks while the process lives: a slow reader may spill rows for days."""
        if not self._is_touching:
            self._is_touching = True
            env.Thread(target=self._heartbeat, name="spill-folders", daemon=True).start()

    def _heartbeat(self) -> None:
        while True:
            env.sleep(TOUCHED_EVERY_S)
            self.touch()

    def touch(self) -> None:
        """Touch the locks, so that other hosts see that this process lives."""
        with self._guard:  # so that no lock is closed in the meantime
            for folder in self._folders.values():
                with suppress(OSError):
                    os.utime(folder.lock)

    def forget(self) -> None:
        """Forget all folders in a forked process: they belong to the parent, and only the parent holds their locks."""
        for folder in self._folders.values():
            os.close(folder.lock)
        self._guard = env.Lock()
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
        if lock is not None:  # otherwise another process removed it before it was locked
            return _Folder(path, lock)


def _delete_abandoned(directory: str) -> None:
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
                path.rmdir()  # fails unless empty; an empty one belongs to a process that died before it had the lock
            else:
                try:
                    _remove(path)
                finally:
                    os.close(lock)


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of this user, and not a link: other users can write to the temporary directory, too."""
    with suppress(FileNotFoundError):
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _own_prefix() -> str:
    """Return the prefix of folders of this host. Their locks show whether their owner lives."""
    return f"{_PREFIX}{_host()}-"


@cache
def _host() -> str:
    """Return an id that differs between hosts, and between boots if the system reports them."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip().replace("-", "")
    except OSError:
        return hashlib.sha256(f"{socket.gethostname()} {uuid.getnode()}".encode()).hexdigest()[:32]


def _abandoned(directory: str, folders: Sequence[Path]) -> set[Path]:
    """Return the folders of other hosts whose lock was not touched for a day."""
    with tempfile.TemporaryFile(dir=directory) as probe:  # its time comes from the same clock as those of the locks
        now_s = os.fstat(probe.fileno()).st_mtime
    return {folder for folder in folders if now_s - _touched_s(folder) > _ABANDONED_S}


def _touched_s(folder: Path) -> float:
    """Return when the lock was touched. Without a lock, the time of the folder, which is being created or removed."""
    for path in (folder / _LOCK, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return math.inf  # removed in the meantime


def _try_lock(folder: Path, *, is_new: bool = False, may_lack_locks: bool = False) -> int | None:
    """Return a descriptor that holds the lock. None if another process holds it, or the folder no longer exists."""
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
        if (is_new or may_lack_locks) and e.errno in _LOCK_UNSUPPORTED_ERRORS:
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
