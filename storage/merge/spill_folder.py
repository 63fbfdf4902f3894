"""Where a process keeps its spill files: in a folder that others remove once it has died.

    <directory>/tidelake-spill-<random>/    there while the process has spill files
        lock                                held by the process (flock)
        1.arrow, 2.arrow, ..

A lock goes with its process, however that ends, so a folder whose lock can be had is nobody's. The number of a process
would not tell: it is given again, and means another one in another container. Nor are files unlinked while they are
open: the segments of many buckets are more than a process may have open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from storage.fileio.access import Access, access

_PREFIX: Final = "tidelake-spill-"
_LOCK: Final = "lock"  # goes last: without it a folder is either empty or being made
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system without: nobody else gets one either


@dataclass(slots=True)
class _Folder:
    """lock: its descriptor. numbered: files so far."""

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
        with suppress(OSError):  # what can't be removed is nobody's from now on
            _remove(self.path)
        os.close(self.lock)


class SpillFolders:
    """Those of this process, one a directory. Safe to use from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._folders: dict[str, _Folder] = {}
        self._swept: set[str] = set()

    def new_file(self, directory: str | None) -> Path:
        """A name nobody else has. directory: None is the system's place for temporary files. Raises OSError.

        The first time, folders of processes that have died are removed from the directory.
        """
        directory = directory or tempfile.gettempdir()
        with access(Access.WRITE, directory, ", or set another `write.spill_directory`"):
            return self._new_file(directory)

    def _new_file(self, directory: str) -> Path:
        with self._guard:
            is_first = directory not in self._swept
            self._swept.add(directory)
        if is_first:  # outside of the guard: the dead may have left much, and nobody else need wait for that
            _sweep(directory)
        with self._guard:
            folder = self._folders.get(directory)
            if folder is not None and not folder.path.exists():  # a cleaner of /tmp was here
                os.close(folder.lock)
                folder = None
            if folder is None:
                folder = self._folders[directory] = _made(directory)
            return folder.new_file()

    def remove_file(self, path: Path) -> None:
        """With the last one goes the folder. Nothing happens if it is gone already."""
        path.unlink(missing_ok=True)
        with self._guard:
            emptied = self._let_go(path)
        if emptied is not None:  # nobody gets a file in it any more
            emptied.remove()

    def _let_go(self, path: Path) -> _Folder | None:
        """Returns its folder if that holds no other file; then it is let go too."""
        for directory, folder in self._folders.items():
            if path in folder.files:
                folder.files.remove(path)
                return None if folder.files else self._folders.pop(directory)
        return None

    def forget(self) -> None:
        """A forked process begins with none; those that it inherited stay the parent's, and locked by it alone."""
        for folder in self._folders.values():
            os.close(folder.lock)
        self._guard = threading.Lock()
        self._folders.clear()


def _made(directory: str) -> _Folder:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
        try:
            lock = _locked(path, is_new=True)
        except OSError:
            _remove(path)
            raise
        if lock is not None:  # else it was swept before it was locked
            return _Folder(path, lock)


def _sweep(directory: str) -> None:
    with os.scandir(directory) as entries:
        paths = [Path(entry.path) for entry in entries if entry.name.startswith(_PREFIX) and _is_own_folder(entry)]
    for path in paths:
        with suppress(OSError):  # a file system without locks
            lock = _locked(path)
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


def _locked(folder: Path, *, is_new: bool = False) -> int | None:
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
        if is_new and e.errno in _NO_LOCKS:
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
