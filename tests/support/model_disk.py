"""A model of a disk with a write cache: the files of `storage.fileio.local` that remain after a power cut.

The files are in a real folder. fsync only records what would be durable now. Each system call that changes the disk is
a step, and the process can be ended before any step. Then `after_power_cut` creates a folder with the files that the
machine could have after it starts again. `Kept` chooses between the files that certainly exist and those that may
exist: the kernel writes names and bytes to disk at any time, in any order.

The model assumes the worst case: a file that was never fsynced has its name and no bytes (as on ext4 with delayed
allocation), and removed names exist again.

keeps_names: fsync of a file also makes its name and new parent directories durable, as on ext4, XFS and Btrfs.
    Otherwise only fsync of their directory does (POSIX).
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import pytest

from storage.fileio import local
from tests.support.faulty_file_io import ProcessDied

_STEPS: Final = ("mkdir", "link", "rename", "replace", "unlink")


class Kept(Enum):
    """The names that remain after a power cut. The bytes are those of the last fsync; without fsync there are none."""

    SYNCED = auto()  # only the durable names
    ALL = auto()  # all names: the kernel had already written them
    SNAPSHOTS = auto()  # all names in `snapshot/`, elsewhere the durable ones: directories have no common order


class ModelDisk:
    """A disk that replaces `os` in `storage.fileio.local`.

    root: the folder, which exists and is durable.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, keeps_names: bool) -> None:
        self.root = root
        self.steps: list[str] = []
        self.fsyncs: list[str] = []  # the fsynced files, relative to the root
        self.dies_before: int | None = None
        self._keeps_names = keeps_names
        self._names: dict[int, dict[str, int]] = defaultdict(dict)  # directory to name to file, as inodes
        self._bytes: dict[int, bytes] = {}
        self._directories = {root.stat().st_ino}
        self._pins: list[int] = []  # open files, so that no inode is used again
        monkeypatch.setattr(local, "os", _Os(self))
        monkeypatch.setattr(local, "_keeps_names", lambda _: keeps_names)

    def close(self) -> None:
        for descriptor in self._pins:
            os.close(descriptor)
        self._pins = []

    def step(self, name: str, path: str) -> None:
        if self.dies_before is not None and len(self.steps) >= self.dies_before:
            raise ProcessDied
        self.steps.append(f"{name} {path}")

    def fsync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.step("fsync", str(path))
        self.fsyncs.append(str(path.relative_to(self.root)))
        self._pins.append(os.dup(descriptor))
        inode = os.fstat(descriptor).st_ino
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._directories.add(inode)
            self._names[inode] = {entry.name: self._inode(Path(entry.path)) for entry in os.scandir(path)}
            return
        self._bytes[inode] = path.read_bytes()
        if self._keeps_names:
            for part in [path, *path.parents]:
                if part == self.root:
                    break
                self._names[part.parent.stat().st_ino][part.name] = self._inode(part)

    def _inode(self, path: Path) -> int:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            self._directories.add(found.st_ino)
        return found.st_ino

    def after_power_cut(self, kept: Kept, target: Path) -> None:
        """Creates the folder `target` with the remaining files."""
        self._fill(self.root.stat().st_ino, self.root, kept, target)

    def _fill(self, directory: int, now: Path, kept: Kept, target: Path) -> None:
        """Fills a directory of the target.

        now: the current path of the directory, if it still exists.
        """
        target.mkdir()
        names = dict(self._names[directory])
        if kept is Kept.ALL or (kept is Kept.SNAPSHOTS and now.name == "snapshot"):
            names = {entry.name: self._inode(Path(entry.path)) for entry in os.scandir(now)}
        for name, inode in names.items():
            if inode in self._directories:
                self._fill(inode, now / name, kept, target / name)
            else:
                (target / name).write_bytes(self._bytes.get(inode, b""))


class _Os:
    """The `os` module, with the recorded calls."""

    def __init__(self, disk: ModelDisk) -> None:
        self._disk = disk
        self.fsync = disk.fsync

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._watched(name, real) if name in _STEPS else real

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            self._disk.step("create", path)
        return os.open(path, flags, mode)

    def _watched(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            self._disk.step(name, arguments[-1])
            real(*arguments)

        return call
