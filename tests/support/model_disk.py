"""The files that remain after a power cut of those that `tidelake.storage.fileio.local` wrote: a model of a disk with a
write cache.

Files lie in a real folder; fsync only notes what would be durable now. Every system call that changes the disk is a
step, and the process can be made to die before any of them. Then `after_power_cut` makes a folder as the machine could
find it when it comes up again. Between what is surely there and what may be there lies a choice (`Kept`): the kernel
writes names and bytes back when it likes, in any order.

Worst case throughout: a file that was never fsynced has its name and no bytes (ext4 with delayed allocation does that);
removed names come back. keeps_names: fsync of a file keeps its name and new directories above it, as ext4, XFS and
Btrfs have it; otherwise only fsync of their directory does (POSIX).
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

from tests.support.faulty_file_io import ProcessDied
from tidelake.storage.fileio import local

_STEPS: Final = ("mkdir", "link", "rename", "replace", "unlink")


class Kept(Enum):
    """Which names a power cut leaves. Bytes are those of the last fsync, none without one."""

    SYNCED = auto()  # only those that were made durable
    ALL = auto()  # as they were: the kernel happened to write them back
    SNAPSHOTS = auto()  # all of `snapshot/`, elsewhere those made durable: nothing orders two directories


class ModelDisk:
    """root: the folder, which is there already and durable. Takes the place of `os` in
    `tidelake.storage.fileio.local`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, keeps_names: bool) -> None:
        self.root = root
        self.steps: list[str] = []
        self.fsyncs: list[str] = []  # what was fsynced: names relative to the root
        self.dies_before: int | None = None
        self._keeps_names = keeps_names
        self._names: dict[int, dict[str, int]] = defaultdict(dict)  # directory to name to file, by inode
        self._bytes: dict[int, bytes] = {}
        self._directories = {root.stat().st_ino}
        self._pins: list[int] = []  # an inode that is open is not given to another file
        monkeypatch.setattr(local, "os", _Os(self))
        monkeypatch.setattr(local, "keeps_names", lambda _: keeps_names)

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
        """Fills `target`, a folder that doesn't exist, with what is left."""
        self._fill(self.root.stat().st_ino, self.root, kept, target)

    def _fill(self, directory: int, now: Path, kept: Kept, target: Path) -> None:
        """now: the current path of the directory, if it still exists."""
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
    """The `os` module, watched."""

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
