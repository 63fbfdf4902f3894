"""Files in an object store: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

A directory is a common prefix of object names that ends in a slash.
"""

from __future__ import annotations

import errno
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from tidelake.errors import BadInput
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileStatus, Output
from tidelake.storage.fileio.conditional_put import put_if_absent, require_conditional_put
from tidelake.storage.fileio.disk_cache import DiskCacheSettings, disk_cache
from tidelake.storage.fileio.late_hints import settle_hints
from tidelake.storage.fileio.location import remote_path
from tidelake.storage.fileio.object_output import ObjectOutput
from tidelake.storage.fileio.own_process import require_own_process
from tidelake.storage.fileio.range_reader import TAIL_BYTES, RangedFile, RemoteInput
from tidelake.storage.fileio.read_cache import SHARED_CACHE, KnownPart, ReadCache
from tidelake.storage.fileio.store_errors import as_os_errors, retry_incomplete
from tidelake.storage.fileio.store_requests import CountedRequest, Operation
from tidelake.storage.fileio.stores import Options, endpoint_of, open_store, store_options

if TYPE_CHECKING:
    from obstore import Bytes, ObjectMeta
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

_COPIES_IN_FLIGHT: Final = 8
_PAGE_ENTRIES: Final = 1_000  # of a listing in S3, and objects of one request to delete

# An empty object that makes a directory without files exist. Java does not show it, and it is not listed here.
_DIRECTORY_MARK: Final = ".directory"

# The name of a file with the indexes of a data file, and how much of it is fetched with its size: a Bloom filter of
# 800,000 values.
_INDEX_SUFFIX: Final = ".index"
_INDEX_BYTES: Final = 1 << 20

_NO_CACHE: Final = ReadCache(max_bytes=0)

# Buckets whose store passed require_conditional_put in this process. Only writers need it, so it runs on first use.
_CHECKED_STORES: Final[set[tuple[str, str, Options]]] = set()
_CHECK_LOCK: Final = env.Lock()

_log = get_logger(__name__)


class ObjectStoreFileIO:
    """`FileIO` for `s3://`, `gs://`, `abfss://` and similar schemes. One instance serves all buckets of its options.

    Errors of the store are raised as FileNotFoundError, PermissionError or another OSError, with the path. Requests
    that can be repeated safely are repeated for about a minute.
    """

    def __init__(self, options: Mapping[str, str] | None = None, *, is_cached: bool = True) -> None:
        self._options = store_options(options or {})
        self._is_cached = is_cached
        self._disk = DiskCacheSettings.of(options or {}) if is_cached else None
        if self._disk is not None:
            disk_cache(self._disk)  # raises now, not at the first read

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}=...' for key, _ in self._options)})"  # values are secrets

    @property
    def _cache(self) -> ReadCache:
        return SHARED_CACHE if self._is_cached else _NO_CACHE

    def uncached(self) -> ObjectStoreFileIO:
        """Return the same files as they are now in the store, for checks of a table."""
        other = copy(self)
        other._is_cached, other._disk = False, None
        return other

    def _open(self, scheme: str, authority: str) -> ObjectStore:
        return open_store(scheme, authority, self._options)

    def _bucket(self, scheme: str, authority: str) -> ObjectStore:
        require_own_process("an object store")
        return self._open(scheme, authority)

    def _locate(self, path: str) -> tuple[ObjectStore, str]:
        scheme, authority, key = remote_path(path)
        return self._bucket(scheme, authority), key

    def _locate_file(self, path: str) -> tuple[ObjectStore, str]:
        store, key = self._locate(path)
        if not key:  # a request without a key would return data about the bucket
            raise BadInput(f"{path} is a whole bucket; name a file in the bucket")
        return store, key

    # ------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        """Return the whole file. Immutable files are asked for once by a process (see `read_cache`)."""
        store, key = self._locate_file(path)
        known = self._cache.get(self._options, path)
        if known is not None and known.is_whole:
            return known.data
        with as_os_errors(path), CountedRequest(Operation.GET, path):
            data = retry_incomplete(lambda: obstore.get(store, key).bytes().to_bytes())
        self._cache.put(self._options, path, KnownPart(len(data), 0, data))
        return data

    def open_input(self, path: str) -> RemoteInput:
        """Send one request for the size and the end of the file. A file of up to 256 KiB needs no other request.

        Of an index it is the beginning, which says where the index of each column is. Immutable files are asked for
        once by a process (see `read_cache`).
        """
        store, key = self._locate_file(path)
        known = self._cache.get(self._options, path)
        if known is None:
            with as_os_errors(path), CountedRequest(Operation.GET, path):
                ask = _beginning if key.endswith(_INDEX_SUFFIX) else _end
                known = retry_incomplete(lambda: ask(store, key))
            self._cache.put(self._options, path, known)
        fetch: Callable[[int, int], Buffer] = partial(_fetch, store, key, path)
        if self._disk is not None:
            fetch = disk_cache(self._disk).reading(endpoint_of(self._options), path, known.size_bytes, fetch)
        return RemoteInput(RangedFile(fetch, known.size_bytes, known.data, known.start))

    def exists(self, path: str) -> bool:
        store, key = self._locate(path)
        if not key:
            return False
        with as_os_errors(path), CountedRequest(Operation.HEAD, path):
            try:
                retry_incomplete(lambda: obstore.head(store, key))
            except FileNotFoundError:
                return False
        return True

    def size_bytes(self, path: str) -> int:
        store, key = self._locate_file(path)
        with as_os_errors(path), CountedRequest(Operation.HEAD, path):
            return retry_incomplete(lambda: obstore.head(store, key)["size"])

    def list_directory(self, path: str) -> list[FileStatus]:
        """`modified_ms` of a directory is 0, because stores do not record it."""
        store, key = self._locate(path)
        with as_os_errors(path), CountedRequest(Operation.LIST, path) as counted:
            listed = retry_incomplete(lambda: obstore.list_with_delimiter(store, key or None))
            counted.count = _pages(len(listed["common_prefixes"]) + len(listed["objects"]))
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
        SHARED_CACHE.forget(self._options, [path])
        with as_os_errors(path), CountedRequest(Operation.PUT, path):
            retry_incomplete(lambda: obstore.put(store, key, data, use_multipart=False))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """See FileIO and conditional_put. After an OSError the put may have succeeded, or may still succeed."""
        store, key = self._locate_file(path)
        scheme, authority, _ = remote_path(path)
        with as_os_errors(path):
            with _CHECK_LOCK:
                if (bucket := (scheme, authority, self._options)) not in _CHECKED_STORES:
                    # If catalogs with a lock exist one day, they may accept a store that fails this check.
                    require_conditional_put(store, key, f"{scheme}://{authority}")
                    _CHECKED_STORES.add(bucket)
                    _log.info("tried: the store creates an object only if absent", store=f"{scheme}://{authority}")
            with CountedRequest(Operation.PUT, path):
                return put_if_absent(store, key, data, path)

    def make_directory(self, path: str) -> None:
        """See FileIO. It doesn't use Hadoop's mark: obstore can't write an object whose name ends in a slash."""
        self.write(f"{path.rstrip('/')}/{_DIRECTORY_MARK}", b"")

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        SHARED_CACHE.forget(self._options, paths)
        buckets: dict[tuple[str, str], list[str]] = defaultdict(list)
        for scheme, authority, key in map(remote_path, paths):
            buckets[scheme, authority].append(key)
        for (scheme, authority), keys in buckets.items():
            first = f"{scheme}://{authority}/{keys[0]}"
            with as_os_errors(first):
                _delete(self._bucket(scheme, authority), keys, first)

    def delete_directory(self, path: str) -> None:
        """See FileIO. Raises BadInput for a whole bucket."""
        store, key = self._locate(path)
        if not key:
            raise BadInput(f"{path} is a whole bucket; name a directory in the bucket")
        settle_hints(path)
        SHARED_CACHE.forget_below(self._options, path)
        with as_os_errors(path):
            _delete(store, [entry["path"] for entry in _list(store, key, path)], path)

    def delete_empty_directory(self, path: str) -> bool:
        """See FileIO. Does nothing: only `make_directory` creates empty directories, and these are kept."""
        return False

    def rename_directory(self, source: str, target: str) -> None:
        """See FileIO. It copies all files, then deletes: after a crash in between, the source is complete."""
        (old_scheme, old_bucket, old), (new_scheme, new_bucket, new) = remote_path(source), remote_path(target)
        if (old_scheme, old_bucket) != (new_scheme, new_bucket):
            raise BadInput(f"{source} and {target} are in different buckets; copy the files with the store's tools")
        store = self._bucket(old_scheme, old_bucket)
        settle_hints(source)
        SHARED_CACHE.forget_below(self._options, source)
        with as_os_errors(source):
            mark = f"{new}/{_DIRECTORY_MARK}"
            target_exists = any(entry["path"] != mark for entry in _list(store, new, target))
            entries = _list(store, old, source)
        if target_exists:
            raise FileExistsError(errno.EEXIST, "there are files already", target)
        if not entries:
            raise FileNotFoundError(errno.ENOENT, "there is no file below it", source)
        with as_os_errors(source), env.ThreadPoolExecutor(_COPIES_IN_FLIGHT) as threads:
            with CountedRequest(Operation.COPY, source, len(entries)):
                list(threads.map(lambda entry: _copy(store, entry, new + entry["path"].removeprefix(old)), entries))
            _delete(store, [entry["path"] for entry in entries], source)


def _file_status(entry: ObjectMeta) -> FileStatus:
    modified_ms = int(entry["last_modified"].timestamp() * 1000)
    return FileStatus(posixpath.basename(entry["path"]), entry["size"], modified_ms, is_directory=False)


def _end(store: ObjectStore, key: str) -> KnownPart:
    try:
        end = obstore.get(store, key, options={"range": {"suffix": TAIL_BYTES}})
        return KnownPart(end.meta["size"], end.range[0], end.bytes().to_bytes())
    except FileNotFoundError:
        raise
    except BaseError:  # Azure has no range relative to the end, and S3 none for an empty object
        size_bytes = obstore.head(store, key)["size"]
        start = max(size_bytes - TAIL_BYTES, 0)
        data = obstore.get_range(store, key, start=start, end=size_bytes).to_bytes() if size_bytes else b""
        return KnownPart(size_bytes, start, data)


def _beginning(store: ObjectStore, key: str) -> KnownPart:
    try:
        beginning = obstore.get(store, key, options={"range": (0, _INDEX_BYTES)})
        return KnownPart(beginning.meta["size"], 0, beginning.bytes().to_bytes())
    except FileNotFoundError:
        raise
    except BaseError:  # an empty object has no range
        return _end(store, key)


def _fetch(store: ObjectStore, key: str, path: str, start: int, end: int) -> Bytes:
    with as_os_errors(path), CountedRequest(Operation.GET, path):
        return retry_incomplete(lambda: obstore.get_range(store, key, start=start, end=end))


def _copy(store: ObjectStore, entry: ObjectMeta, target: str) -> None:
    try:
        retry_incomplete(lambda: obstore.copy(store, entry["path"], target))
    except FileNotFoundError:
        if entry["size"]:
            raise  # an empty object may be Hadoop's mark of a directory, which is listed under a wrong name


def _list(store: ObjectStore, key: str, path: str) -> list[ObjectMeta]:
    """List all objects below."""
    with CountedRequest(Operation.LIST, path) as counted:
        listed = retry_incomplete(lambda: [entry for batch in obstore.list(store, key) for entry in batch])
        counted.count = _pages(len(listed))
    return listed


def _delete(store: ObjectStore, keys: list[str], path: str) -> None:
    with CountedRequest(Operation.DELETE, path, _pages(len(keys))):
        try:
            retry_incomplete(lambda: obstore.delete(store, keys))
        except FileNotFoundError:  # S3 ignores a missing object; other stores raise an error and stop there
            for key in keys:
                with suppress(FileNotFoundError):
                    retry_incomplete(partial(obstore.delete, store, key))


def _pages(entries: int) -> int:
    """Return the number of requests that list, or delete, so many objects."""
    return max(1, -(-entries // _PAGE_ENTRIES))
