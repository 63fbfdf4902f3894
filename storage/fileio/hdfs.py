"""Files in HDFS: `hdfs://` and `viewfs://`.

The client is hdfs-native, which speaks HDFS's protocols itself: no JVM runs, and no Hadoop has to be installed. Arrow's
client is not used, because its `move` deletes a target that exists, and its status of a file says "not found" for any
error (docs/decisions/0017-reach-hdfs-without-java.md).

A file is written under a hidden name (`.NAME.UUID.tmp`), flushed to the disks of the data nodes, and renamed. The name
node renames atomically, and refuses a target that exists unless it is told to replace it. A hidden file that a crash
leaves is removed like one on a local disk (`tidelake.storage.fileio.local`).
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelake.errors import BadInput
from tidelake.storage.base import env
from tidelake.storage.fileio.base import FileStatus, Output
from tidelake.storage.fileio.hdfs_client import HdfsOptions, as_os_errors, hdfs_options, open_client
from tidelake.storage.fileio.location import RemotePath, hdfs_path
from tidelake.storage.fileio.range_reader import RangedFile, RemoteInput
from tidelake.storage.fileio.remote_output import RemoteOutput

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileWriter
    from typing_extensions import Buffer

_DELETES_IN_FLIGHT: Final = 8
_DIRECTORY_MODE: Final = 0o755
_TEMPORARY_STEM_LENGTH: Final = 48  # a name may have 255 bytes; see local.py


class HdfsFileIO:
    """`FileIO` for HDFS. One instance serves all clusters of its options.

    A path without an authority (`hdfs:///lake`) is in the cluster that `fs.defaultFS` names.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options: HdfsOptions = hdfs_options(options or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}=...' for key, _ in self._options)})"

    def _locate(self, path: str) -> tuple[Client, str]:
        """Return the client of the cluster, and the path there."""
        found = hdfs_path(path)
        return open_client(found.scheme, found.authority, self._options), f"/{found.key}"

    # ------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        client, name = self._locate(path)
        with as_os_errors(path):
            return client.read(name).read()

    def open_input(self, path: str) -> RemoteInput:
        """Ask the name node where the file's blocks are. Its bytes come from the data nodes, as they are read."""
        client, name = self._locate(path)
        with as_os_errors(path):
            reader = client.read(name)
        return RemoteInput(RangedFile(partial(_fetch, reader, path), len(reader), b""))

    def exists(self, path: str) -> bool:
        client, name = self._locate(path)
        try:
            with as_os_errors(path):
                return not client.get_file_info(name).isdir
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size_bytes(self, path: str) -> int:
        client, name = self._locate(path)
        with as_os_errors(path):
            return client.get_file_info(name).length

    def list_directory(self, path: str) -> list[FileStatus]:
        client, name = self._locate(path)
        try:
            with as_os_errors(path):
                entries = list(client.list_status(name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [
            FileStatus(
                posixpath.basename(entry.path),
                0 if entry.isdir else entry.length,
                entry.modification_time,
                is_directory=entry.isdir,
            )
            for entry in entries
            if entry.path != name  # a file lists itself
        ]

    # ------------------------------------------------------------ writing

    def open_output(self, path: str) -> Output:
        client, name = self._locate(path)
        return _HdfsOutput(client, name, path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        client, name = self._locate(path)
        with as_os_errors(path):
            temporary = _write_temporary(client, name, data, durable=durable)
            try:
                client.rename(temporary, name, overwrite=True)
            except BaseException:
                _remove(client, temporary)
                raise

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """See FileIO. The content is durable before the name appears.

        The client asks the next name node if an answer is lost. The repeated rename then fails, though the first one
        succeeded: the hidden file is gone, because only this call renames it.
        """
        client, name = self._locate(path)
        with as_os_errors(path):
            temporary = _write_temporary(client, name, data)
            try:
                client.rename(temporary, name, overwrite=False)
            except FileExistsError:
                created = not _is_there(client, temporary) and _has_content(client, name, data)
            except FileNotFoundError:
                if not _has_content(client, name, data):
                    raise OSError(errno.EIO, "the file to be renamed has disappeared", path) from None
                created = True
            except BaseException:
                _remove(client, temporary)
                raise
            else:
                created = True
            if not created:
                _remove(client, temporary)
        return created

    def make_directory(self, path: str) -> None:
        client, name = self._locate(path)
        with as_os_errors(path):
            client.mkdirs(name, _DIRECTORY_MODE, create_parent=True)

    def delete(self, path: str) -> None:
        client, name = self._locate(path)
        with suppress(FileNotFoundError, NotADirectoryError), as_os_errors(path):
            client.delete(name)

    def delete_all(self, paths: Iterable[str]) -> None:
        every = list(paths)
        if len(every) <= 1:
            for path in every:
                self.delete(path)
            return
        with env.ThreadPoolExecutor(min(len(every), _DELETES_IN_FLIGHT)) as threads:
            list(threads.map(self.delete, every))

    def delete_directory(self, path: str) -> None:
        """See FileIO. Raises BadInput for the root of a cluster."""
        client, name = self._locate(path)
        if name == "/":
            raise BadInput(f"{path} is the root of the file system; name a directory in it")
        with suppress(FileNotFoundError, NotADirectoryError), as_os_errors(path):
            client.delete(name, recursive=True)

    def delete_empty_directory(self, path: str) -> bool:
        client, name = self._locate(path)
        try:
            with as_os_errors(path):
                return client.get_file_info(name).isdir and client.delete(name)
        except OSError:  # it has content, or does not exist
            return False

    def rename_directory(self, source: str, target: str) -> None:
        """See FileIO. One step of the name node."""
        client, old = self._locate(source)
        if _cluster(hdfs_path(source)) != _cluster(hdfs_path(target)):
            raise BadInput(f"{source} and {target} are in different clusters; copy the files with Hadoop's distcp")
        new = f"/{hdfs_path(target).key}"
        with as_os_errors(source):
            client.get_file_info(old)
        with as_os_errors(target):
            client.mkdirs(posixpath.dirname(new), _DIRECTORY_MODE, create_parent=True)
            if _is_there(client, new) and (not client.get_file_info(new).isdir or any(client.list_status(new))):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            # The name node replaces an empty directory, and refuses one that another process has filled since.
            client.rename(old, new, overwrite=True)


def _cluster(path: RemotePath) -> tuple[str, str]:
    return path.scheme, path.authority


def _fetch(reader: FileReader, path: str, start: int, end: int) -> Buffer:
    with as_os_errors(path):
        return reader.read_range(start, end - start)


# ---------------------------------------------------------------- steps of publishing a file


def _temporary_name(target: str) -> str:
    directory, name = posixpath.split(target)
    return posixpath.join(directory, f".{name[:_TEMPORARY_STEM_LENGTH]}.{env.random_bytes(16).hex()}.tmp")


def _write_temporary(client: Client, target: str, data: bytes, *, durable: bool = True) -> str:
    """Write `data` to a hidden file next to `target`, and return its name. Creates missing directories."""
    temporary = _temporary_name(target)
    try:
        writer = client.create(temporary)
        writer.write(data)
        _finish(writer, durable=durable)
    except BaseException:
        _remove(client, temporary)
        raise
    return temporary


def _finish(writer: FileWriter, *, durable: bool = True) -> None:
    """Close the file. If it is to be durable, it is on the data nodes' disks before, not only in their memory."""
    if durable:
        with suppress(NotImplementedError):  # erasure-coded files can't be synced: closing them has to do
            writer.hsync()
    writer.close()


def _is_there(client: Client, name: str) -> bool:
    try:
        client.get_file_info(name)
    except FileNotFoundError:
        return False
    return True


def _has_content(client: Client, name: str, data: bytes) -> bool:
    try:
        return client.read(name).read() == data
    except FileNotFoundError:
        return False


def _remove(client: Client, name: str) -> None:
    """Delete a file if possible. The error that made this necessary is the one to raise."""
    with suppress(OSError, RuntimeError):
        client.delete(name)


class _HdfsOutput(RemoteOutput):
    """A file that is written under a hidden name, made durable, and then renamed."""

    def __init__(self, client: Client, name: str, path: str) -> None:
        super().__init__(path, as_os_errors)
        self._client = client
        self._name = name

    def _open(self) -> None:
        self._temporary = _temporary_name(self._name)
        self._writer = self._client.create(self._temporary)

    def _send(self, data: Buffer) -> int:
        return self._writer.write(data)

    def _publish(self) -> None:
        try:
            _finish(self._writer)
            self._client.rename(self._temporary, self._name, overwrite=True)
        except BaseException as error:
            self._drop(error)
            raise

    def _drop(self, error: BaseException) -> None:
        _remove(self._client, self._temporary)
        with suppress(OSError, RuntimeError):  # ends the client's lease of the file, which is gone
            self._writer.close()
