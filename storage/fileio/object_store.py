"""Files in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.

Directories are what the names of objects have in common up to a slash.
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from storage.errors import BadInput
from storage.fileio.base import FileStatus, Output
from storage.fileio.conditional_put import put_if_absent, require_conditional_put
from storage.fileio.location import remote_path
from storage.fileio.object_output import ObjectOutput
from storage.fileio.range_reader import TAIL_BYTES, RangedFile
from storage.fileio.store_errors import as_os_errors, retry_incomplete
from storage.fileio.stores import Options, open_store, require_own_process, store_options
from storage.logs import get_logger

if TYPE_CHECKING:
    from obstore import Bytes, ObjectMeta
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

_COPIES_IN_FLIGHT: Final = 8

# An empty object by which a directory without files exists; hidden to Java, and not listed here.
_DIRECTORY_MARK: Final = ".directory"

# Buckets whose store has passed require_conditional_put in this process. Only who writes needs that, and asks for it.
_TRIED: Final[set[tuple[str, str, Options]]] = set()
_TRYING: Final = threading.Lock()

_log = get_logger(__name__)


class ObjectStoreFileIO:
    """`FileIO` for `s3://`, `gs://`, `abfss://` and their kin; one instance serves all buckets that its options open.

    An error of the store is a FileNotFoundError, a PermissionError or another OSError, with the path. Requests that may
    safely be repeated are, for about a minute.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = store_options(options or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}=...' for key, _ in self._options)})"  # values are secrets

    def _open(self, scheme: str, authority: str) -> ObjectStore:
        return open_store(scheme, authority, self._options)

    def _bucket(self, scheme: str, authority: str) -> ObjectStore:
        require_own_process()
        return self._open(scheme, authority)

    def _locate(self, path: str) -> tuple[ObjectStore, str]:
        scheme, authority, key = remote_path(path)
        return self._bucket(scheme, authority), key

    def _locate_file(self, path: str) -> tuple[ObjectStore, str]:
        store, key = self._locate(path)
        if not key:  # a request for it would be answered: with what stores say of a bucket
            raise BadInput(f"{path} is a whole bucket; a file has a name in one")
        return store, key

    # ------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        store, key = self._locate_file(path)
        with as_os_errors(path):
            return obstore.get(store, key).bytes().to_bytes()

    def open_input(self, path: str) -> pa.NativeFile:
        """One request now, for size and tail (see RangedFile); a file of up to 64 KiB needs no other."""
        store, key = self._locate_file(path)
        with as_os_errors(path):
            size_bytes, tail = _size_and_tail(store, key)
        return pa.PythonFile(RangedFile(partial(_fetch, store, key, path), size_bytes, tail), mode="r")

    def exists(self, path: str) -> bool:
        store, key = self._locate(path)
        if not key:
            return False
        with as_os_errors(path):
            try:
                obstore.head(store, key)
            except FileNotFoundError:
                return False
        return True

    def size_bytes(self, path: str) -> int:
        store, key = self._locate_file(path)
        with as_os_errors(path):
            return obstore.head(store, key)["size"]

    def list_directory(self, path: str) -> list[FileStatus]:
        """`modified_ms` of a directory is 0: stores do not keep it."""
        store, key = self._locate(path)
        with as_os_errors(path):
            listed = retry_incomplete(lambda: obstore.list_with_delimiter(store, key or None))
        names = map(posixpath.basename, listed["common_prefixes"])
        directories = [FileStatus(name, 0, 0, is_directory=True) for name in names]
        # Hadoop marks a directory with an empty object named `directory/`, which obstore reads back as `directory`.
        files = [entry for entry in listed["objects"] if entry["path"] not in (key, f"{key}/{_DIRECTORY_MARK}")]
        return directories + [_file_status(entry) for entry in files]

    # ------------------------------------------------------------ writing

    def open_output(self, path: str) -> Output:
        store, key = self._locate_file(path)
        return ObjectOutput(store, key, path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        store, key = self._locate_file(path)
        with as_os_errors(path):
            retry_incomplete(lambda: obstore.put(store, key, data, use_multipart=False))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """See FileIO and conditional_put. After an OSError the put may have landed, or may yet."""
        store, key = self._locate_file(path)
        scheme, authority, _ = remote_path(path)
        with as_os_errors(path):
            with _TRYING:
                if (bucket := (scheme, authority, self._options)) not in _TRIED:
                    # A catalog with a lock, once there is one, may let a store pass that fails here.
                    require_conditional_put(store, key, f"{scheme}://{authority}")
                    _TRIED.add(bucket)
                    _log.info("tried: the store creates an object only if absent", store=f"{scheme}://{authority}")
            return put_if_absent(store, key, data, path)

    def make_directory(self, path: str) -> None:
        """See FileIO. Not by Hadoop's mark: an object whose name ends in a slash is one that obstore cannot write."""
        self.write(f"{path.rstrip('/')}/{_DIRECTORY_MARK}", b"")

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        buckets: dict[tuple[str, str], list[str]] = defaultdict(list)
        for scheme, authority, key in map(remote_path, paths):
            buckets[scheme, authority].append(key)
        for (scheme, authority), keys in buckets.items():
            with as_os_errors(f"{scheme}://{authority}/{keys[0]}"):
                _delete(self._bucket(scheme, authority), keys)

    def delete_directory(self, path: str) -> None:
        """See FileIO. A whole bucket is refused with BadInput."""
        store, key = self._locate(path)
        if not key:
            raise BadInput(f"{path} is a whole bucket; this deletes a directory in one")
        with as_os_errors(path):
            _delete(store, [entry["path"] for entry in _list(store, key)])

    def delete_empty_directory(self, path: str) -> bool:
        """See FileIO: there are none but those that `make_directory` made, and these stay."""
        return False

    def rename_directory(self, source: str, target: str) -> None:
        """See FileIO. Copies all, then deletes: a crash in between leaves the source whole, and part of a copy."""
        (old_scheme, old_bucket, old), (new_scheme, new_bucket, new) = remote_path(source), remote_path(target)
        if (old_scheme, old_bucket) != (new_scheme, new_bucket):
            raise BadInput(f"{source} and {target} are in two buckets; copy the files with the tools of the store")
        store = self._bucket(old_scheme, old_bucket)
        with as_os_errors(source):
            mark = f"{new}/{_DIRECTORY_MARK}"
            target_exists = any(entry["path"] != mark for entry in _list(store, new))
            entries = _list(store, old)
        if target_exists:
            raise FileExistsError(errno.EEXIST, "there are files already", target)
        if not entries:
            raise FileNotFoundError(errno.ENOENT, "there is no file below it", source)
        with as_os_errors(source), ThreadPoolExecutor(_COPIES_IN_FLIGHT) as threads:
            list(threads.map(lambda entry: _copy(store, entry, new + entry["path"].removeprefix(old)), entries))
            _delete(store, [entry["path"] for entry in entries])


def _file_status(entry: ObjectMeta) -> FileStatus:
    modified_ms = int(entry["last_modified"].timestamp() * 1000)
    return FileStatus(posixpath.basename(entry["path"]), entry["size"], modified_ms, is_directory=False)


def _size_and_tail(store: ObjectStore, key: str) -> tuple[int, Buffer]:
    try:
        tail = obstore.get(store, key, options={"range": {"suffix": TAIL_BYTES}})
        return tail.meta["size"], tail.bytes()
    except FileNotFoundError:
        raise
    except BaseError:  # Azure knows no range counted from the end, and S3 has none of an empty object
        size_bytes = obstore.head(store, key)["size"]
        start = max(size_bytes - TAIL_BYTES, 0)
        return size_bytes, obstore.get_range(store, key, start=start, end=size_bytes) if size_bytes else b""


def _fetch(store: ObjectStore, key: str, path: str, start: int, end: int) -> Bytes:
    with as_os_errors(path):
        return obstore.get_range(store, key, start=start, end=end)


def _copy(store: ObjectStore, entry: ObjectMeta, target: str) -> None:
    try:
        obstore.copy(store, entry["path"], target)
    except FileNotFoundError:
        if entry["size"]:
            raise  # else Hadoop's mark of a directory, listed under a name that it does not have


def _list(store: ObjectStore, key: str) -> list[ObjectMeta]:
    """All below."""
    return retry_incomplete(lambda: [entry for some in obstore.list(store, key) for entry in some])


def _delete(store: ObjectStore, keys: list[str]) -> None:
    try:
        retry_incomplete(lambda: obstore.delete(store, keys))
    except FileNotFoundError:  # S3 does not mind a missing object; other stores do, and stop there
        for key in keys:
            with suppress(FileNotFoundError):
                obstore.delete(store, key)
