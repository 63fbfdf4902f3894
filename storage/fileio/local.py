"""Files on a disk of this machine, or on one mounted here.

Everything that must survive a power cut is fsynced: a file's bytes, and its name. POSIX needs two calls for that, one
for the file and one for its directory, and one more for each new parent directory. The file systems of nearly all Linux
machines (`_DURABLE_NAME_FILE_SYSTEMS`) make a file's name durable with its bytes. There a data file or a manifest needs
one call.
`tests/support/model_disk.py` computes what a power cut leaves of a commit.

Temporary files are hidden (`.NAME.UUID.tmp`), in the directory of the final file. If a crash left one in `snapshot/`,
`manifest/`, `index/`, `statistics/` or a bucket, Java Paimon's orphan cleaner removes it. In other directories it
remains, and readers ignore it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.fileio.access import Access, AccessErrors, access
from tidelake.storage.fileio.base import FileStatus, Output
from tidelake.storage.fileio.location import local_path

_AT_FDCWD: Final = -100  # linux/fcntl.h
_RENAME_NOREPLACE: Final = 1  # linux/fs.h

# File systems (statfs(2), linux/magic.h) on which fsync of a file also makes durable its current name and the new
# directories above it, because they are in the journal or log that it writes. Verified on Linux 6 by copying the device
# under a mounted file system, right after the call. On others the directories are fsynced, too.
_DURABLE_NAME_FILE_SYSTEMS: Final = frozenset({0xEF53, 0x58465342, 0x9123683E})  # ext4, XFS, Btrfs

# Errors of file systems without hard links (vfat, exFAT: EPERM), and without a rename that never replaces.
_LINK_UNSUPPORTED_ERRORS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_RENAME_UNSUPPORTED_ERRORS: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})

# Errors that only a write can cause. Arrow does not name the file; inside an output's block it is the output's file.
_WRITE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# A name may have 255 bytes; shortened so that the hidden name of a long one fits, too (48 characters: up to 192 bytes).
_TEMPORARY_STEM_LENGTH: Final = 48
_DIRECTORY_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class LocalFileIO:
    """`FileIO` for `file://` locations and plain paths. Needs hard links, or `renameat2`, for `create_if_absent`."""

    def read(self, path: str) -> bytes:
        target = local_path(path)
        with _FileNameInErrors(Access.READ, target):
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_all(descriptor)
            finally:
                os.close(descriptor)

    def open_input(self, path: str) -> pa.NativeFile:
        with access(Access.READ, path):
            return pa.OSFile(local_path(path), "r")

    def open_output(self, path: str) -> Output:
        return _LocalOutput(path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        target = local_path(path)
        with _FileNameInErrors(Access.WRITE, target):
            temporary = _write_temporary(target, data, durable=durable)
            try:
                # Not unlinked first, though ext4 would then write less: readers without LATEST list the directory.
                os.replace(temporary, target)
            except BaseException:
                _remove(temporary)
                raise
            if durable:
                _sync_directory(os.path.dirname(target))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """See FileIO. The content is durable before the name appears, and the name before this returns True.

        After an OSError from writing the temporary file (a full disk), nothing was published. After one from the link
        (a lost answer of a network file system) or from fsyncing the directory, the outcome is unknown. Callers need
        not distinguish them.
        """
        target = local_path(path)
        with _FileNameInErrors(Access.WRITE, target):
            temporary = _write_temporary(target, data)
            try:
                created = _link(temporary, target)
            finally:
                _remove(temporary)
            if created:
                _sync_directory(os.path.dirname(target))
        return created

    def exists(self, path: str) -> bool:
        try:  # os.path.isfile would report a file as absent if access is denied
            with access(Access.READ, path):
                return stat.S_ISREG(os.stat(local_path(path)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size_bytes(self, path: str) -> int:
        with access(Access.READ, path):
            return os.stat(local_path(path)).st_size

    def list_directory(self, path: str) -> list[FileStatus]:
        try:
            with access(Access.READ, path):
                entries = os.scandir(local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = []
        with entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # deleted in the meantime
                    found.append(_status(entry))
        return found

    def make_directory(self, path: str) -> None:
        with access(Access.WRITE, path):
            _make_directory(local_path(path))

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError), access(Access.WRITE, path):
            os.unlink(local_path(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_directory(self, path: str) -> None:
        directory = local_path(path)
        while os.path.lexists(directory):
            with suppress(FileNotFoundError), _FileNameInErrors(Access.WRITE, directory):
                shutil.rmtree(directory)  # if another process deletes at the same time, the loop tries again

    def delete_empty_directory(self, path: str) -> bool:
        """See FileIO. If a process creates a file in it at the same time, that process creates the directory again."""
        try:
            os.rmdir(local_path(path))
        except OSError:  # it has content, or does not exist
            return False
        return True

    def rename_directory(self, source: str, target: str) -> None:
        """See FileIO. rename(2) rejects a target directory with content, and replaces an empty one."""
        old, new = local_path(source), local_path(target)
        try:
            with access(Access.WRITE, new):
                _make_directory(os.path.dirname(new))
                os.rename(old, new)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
            raise
        _sync_directory(os.path.dirname(new))
        _sync_directory(os.path.dirname(old))


class _LocalOutput:
    """A file that is written under a hidden name, renamed, and then made durable.

    Without the hidden name, the rename would be saved, a few microseconds compared with the fsync. But then a listing
    of the directory (orphan files) could show a partial file, and disk and object store would behave differently. The
    fsync comes last, because on most file systems it then also makes the name durable.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._target = local_path(path)
        self._stream: pa.NativeFile | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def stream(self) -> pa.NativeFile:
        """Opened on first use: Arrow opens the file once more, which takes as long as writing a small file."""
        if self._stream is None:
            with _FileNameInErrors(Access.WRITE, self._target):
                self._stream = pa.OSFile(self._temporary, "w")
        return self._stream

    def write(self, data: bytes) -> None:
        with _FileNameInErrors(Access.WRITE, self._target):
            _write_all(self._descriptor, data)

    def __enter__(self) -> Self:
        with _FileNameInErrors(Access.WRITE, self._target):
            # A second descriptor in addition to Arrow's: after the stream is closed, fsync reports errors of its pages.
            self._descriptor, self._temporary = _create_temporary(self._target)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._publish()
            else:
                self._drop()
                if isinstance(error, OSError) and error.filename is None and error.errno in _WRITE_ERRORS:
                    error.filename = self._target
        finally:
            os.close(self._descriptor)

    def _publish(self) -> None:
        with _FileNameInErrors(Access.WRITE, self._target):
            try:
                if self._stream is not None:
                    self._stream.close()
                os.rename(self._temporary, self._target)
                os.fsync(self._descriptor)
                directory = os.path.dirname(self._target)
                if not keeps_names(directory):
                    _sync_directory(directory)
            except BaseException:
                self._drop()
                _remove(self._target)  # the name is unique: if the file exists, it is ours
                raise

    def _drop(self) -> None:
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
        _remove(self._temporary)


def _status(entry: os.DirEntry[str]) -> FileStatus:
    status = entry.stat()
    is_directory = entry.is_dir()
    size_bytes = 0 if is_directory else status.st_size
    return FileStatus(entry.name, size_bytes, status.st_mtime_ns // 1_000_000, is_directory, entry.is_symlink())


# ---------------------------------------------------------------- steps of publishing a file


def _create_temporary(target: str) -> tuple[int, str]:
    """Create an empty file next to `target`. Returns a descriptor and its name. Creates the directory if needed."""
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".{name[:_TEMPORARY_STEM_LENGTH]}.{env.random_bytes(16).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(_DIRECTORY_TRIES):  # another process may remove empty directories at this moment
        with suppress(FileNotFoundError):
            return os.open(temporary, flags, 0o666), temporary
        with suppress(FileNotFoundError):
            _make_directory(directory)
    return os.open(temporary, flags, 0o666), temporary


def _write_temporary(target: str, data: bytes, *, durable: bool = True) -> str:
    """Write `data` to a temporary file next to `target`, and return its name."""
    descriptor, temporary = _create_temporary(target)
    try:
        try:
            _write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def _write_all(descriptor: int, data: bytes) -> None:
    """Write without `open`, which checks the file five times before it writes. The same applies to `_read_all`."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _read_all(descriptor: int) -> bytes:
    """Read from the beginning. Usually one call is enough: it requests one byte more than the file has."""
    parts: list[bytes] = []
    wanted = os.fstat(descriptor).st_size + 1
    while part := os.read(descriptor, wanted):
        parts.append(part)
        if len(part) < wanted:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _link(temporary: str, target: str) -> bool:
    """Give the file its name. Returns False if the name is taken."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        # Over NFS the answer to a successful link can get lost; the repeated request then finds our own file. The
        # number of links shows this (open(2), O_EXCL).
        return os.stat(temporary).st_nlink > 1
    except OSError as error:
        if error.errno not in _LINK_UNSUPPORTED_ERRORS:
            raise
        return _rename_no_replace(temporary, target)
    return True


def _rename_no_replace(source: str, target: str) -> bool:
    try:
        renameat2 = _libc().renameat2
    except AttributeError:
        code = errno.ENOSYS
    else:
        if not renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE):
            return True
        code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    if code in _RENAME_UNSUPPORTED_ERRORS:
        raise UnsupportedFeature(
            f"the file system of {os.path.dirname(target)}",
            "it supports no hard links and no rename that never replaces, so two commits could overwrite each other",
            "Keep the table on another file system or in an object store",
        )
    raise OSError(code, os.strerror(code), target)


def _make_directory(directory: str) -> None:
    """Create the directory and missing parents. Each new entry is durable before, or with, anything below it."""
    if not directory or os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    _make_directory(parent)
    with suppress(FileExistsError):  # created by another writer of the partition; its entry may not be durable either
        os.mkdir(directory)
    if not keeps_names(parent):
        _sync_directory(parent)


def keeps_names(directory: str) -> bool:
    """Return whether changes of names in this directory become durable with the next fsync of the file."""
    if sys.platform != "linux":
        return False
    found = (ctypes.c_long * 64)()  # struct statfs has at most 120 bytes, and starts with f_type
    failed = _libc().statfs(os.fsencode(directory or os.curdir), found)
    return not failed and found[0] in _DURABLE_NAME_FILE_SYSTEMS


@cache
def _libc() -> ctypes.CDLL:
    """Return one shared object: creating it costs more than the calls to it."""
    return ctypes.CDLL(None, use_errno=True)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    """Delete a file if possible. The error that made this necessary is the one to raise."""
    with suppress(OSError):
        os.unlink(path)


class _FileNameInErrors(AccessErrors):
    """Sets the name of the wanted file in each OSError, which may name a temporary file or none."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and error.errno is not None:  # without one, the message would be lost
            error.filename = self._path
            del error.filename2  # None would be displayed as a second name
        super().__exit__(kind, error, trace)
