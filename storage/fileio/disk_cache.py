"""Keeps blocks of immutable remote files on a local disk: catalog options `cache.directory` and `cache.max_bytes`.

It only saves requests. Whatever happens to its files or its disk, a read returns what the store has:

- A block is written under a hidden name and renamed, so that no process sees a part of it. It contains a checksum of
  its bytes: a block that a power cut or another program damaged is deleted, and fetched again.
- Processes may share the directory. Each counts the blocks of all of them, again and again while it adds some, and
  deletes those that were used least recently. A reader keeps a block that it has opened.
- If the disk is full, or the directory was lost, reads continue without new blocks. It is tried again a minute later.

Only files whose name is given once are kept (see `read_cache`). A file is opened in the store before its blocks are
used, so a reader without access to it gets no bytes.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import xxhash

from tidelake.errors import AccessDenied, BadInput
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.read_cache import is_immutable

if TYPE_CHECKING:
    from typing_extensions import Buffer

DIRECTORY_OPTION: Final = "cache.directory"
MAX_BYTES_OPTION: Final = "cache.max_bytes"

BLOCK_BYTES: Final = 1 << 20
_MAX_BYTES: Final = 10 << 30
_MAGIC: Final = b"TLC1"
_HEAD_BYTES: Final = len(_MAGIC) + 16  # with the checksum
_SHARE_BETWEEN_COUNTS: Final = 16  # a process counts again after it added this part of the limit
_KEPT_SHARE: Final = 0.9  # of the limit, after blocks were deleted: deleting single ones would count each time
_PAUSE_S: Final = 60  # after a failed write
_TOUCH_S: Final = 60  # a use is noted at most this often
_TEMPORARY_S: Final = 3600  # after this time a hidden file is one of a process that died

_log = get_logger(__name__)

Fetch = Callable[[int, int], "Buffer"]


@dataclass(frozen=True, slots=True)
class DiskCacheSettings:
    """The options of a cache."""

    directory: str
    max_bytes: int = _MAX_BYTES

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DiskCacheSettings | None:
        """Return None if no cache is wanted. Raises BadInput."""
        directory, limit = options.get(DIRECTORY_OPTION), options.get(MAX_BYTES_OPTION)
        if directory is None:
            if limit is not None:
                raise BadInput(f"option {MAX_BYTES_OPTION} = {limit!r} needs {DIRECTORY_OPTION}, a local directory")
            return None
        if not os.path.isabs(directory):
            raise BadInput(f"option {DIRECTORY_OPTION} = {directory!r}: write an absolute path")
        if limit is None:
            return cls(directory)
        if not limit.strip().isdecimal() or int(limit) < 2 * BLOCK_BYTES:
            raise BadInput(
                f"option {MAX_BYTES_OPTION} = {limit!r}: write a number of bytes, at least {2 * BLOCK_BYTES}"
            )
        return cls(directory, int(limit))


@lru_cache(maxsize=16)
def disk_cache(settings: DiskCacheSettings) -> DiskCache:
    """Return the cache of this process. Raises AccessDenied if the directory can't be created or written."""
    return DiskCache(settings.directory, settings.max_bytes)


class DiskCache:
    """The blocks in one directory. Thread-safe.

    clock_s: epoch seconds.
    """

    def __init__(
        self, directory: str, max_bytes: int = _MAX_BYTES, clock_s: Callable[[], float] = lambda: env.wall_s()
    ) -> None:
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._clock_s = clock_s
        self._lock = env.Lock()
        self._added_bytes = 0  # since the last count
        self._paused_until_s = 0.0
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (probe := self._directory / f".{env.new_uuid().hex}.tmp").touch()
            probe.unlink()
        except OSError as error:
            reason = f"{error.strerror}: the directory of option {DIRECTORY_OPTION} must be writable, or leave it out"
            raise AccessDenied(error.errno or errno.EACCES, reason, directory) from error
        self._count()

    def reading(self, store: str, path: str, size_bytes: int, fetch: Fetch) -> Fetch:
        """Return a function that fetches bytes of a file, through this cache if the file is immutable.

        store: the address of the store, as paths of different stores may be the same.
        fetch: fetches from the store.
        """
        if not is_immutable(path):
            return fetch
        file = _CachedFile(self, hashlib.sha256(f"{store}\0{path}\0{size_bytes}".encode()).hexdigest(), size_bytes)
        return lambda start, end: file.read(start, end, fetch)

    def get(self, name: str, size_bytes: int) -> bytes | None:
        """Return a block; None if there is none, or if it is damaged."""
        path = self._path(name)
        try:
            with path.open("rb") as file:
                data = file.read()
                used_s = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        content = data[_HEAD_BYTES:]
        if len(content) != size_bytes or data[:_HEAD_BYTES] != _head(content):
            _log.warning("a block of the cache was damaged, and is fetched again", file=str(path))
            with suppress(OSError):
                path.unlink()
            return None
        if self._clock_s() - used_s > _TOUCH_S:
            with suppress(OSError):
                os.utime(path)
        return content

    def put(self, name: str, content: bytes) -> None:
        """Keep a block. Does nothing for a minute after this has failed."""
        if self._clock_s() < self._paused_until_s:
            return
        path = self._path(name)
        temporary = path.parent / f".{env.new_uuid().hex}.tmp"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_bytes(_head(content) + content)
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._paused_until_s = self._clock_s() + _PAUSE_S
            _log.warning(
                "the cache can't be written; reads continue without it",
                directory=str(self._directory),
                reason=error.strerror,
                retried_in_s=_PAUSE_S,
            )
            return
        with self._lock:
            self._added_bytes += len(content)
            if self._added_bytes < self._max_bytes // _SHARE_BETWEEN_COUNTS:
                return
            self._added_bytes = 0
        self._count()

    def _count(self) -> None:
        """Delete the blocks that were used least recently, if all blocks exceed the limit."""
        blocks = sorted(self._blocks())
        total = sum(size for _, size, _ in blocks)
        # The others may add as much before they count.
        if total <= self._max_bytes - self._max_bytes // _SHARE_BETWEEN_COUNTS:
            return
        for _, size, path in blocks:
            if total <= self._max_bytes * _KEPT_SHARE:
                break
            with suppress(OSError):
                os.unlink(path)
                total -= size

    def _blocks(self) -> Iterator[tuple[float, int, str]]:
        """Yield the time of the last use, the size and the path of each block. Deletes what dead processes left."""
        for folder, _, names in os.walk(self._directory):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):  # another process deleted it
                    status = os.stat(path)
                    if not name.endswith(".tmp"):
                        yield status.st_mtime, status.st_size, path
                    elif self._clock_s() - status.st_mtime > _TEMPORARY_S:
                        os.unlink(path)

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / name


@dataclass(frozen=True, slots=True)
class _CachedFile:
    cache: DiskCache
    name: str
    size_bytes: int

    def read(self, start: int, end: int, fetch: Fetch) -> Buffer:
        numbers = range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        found = {number: self.cache.get(self._block(number), len(self._place(number))) for number in numbers}
        missing = [number for number, block in found.items() if block is None]
        for _, neighbours in groupby(enumerate(missing), lambda pair: pair[1] - pair[0]):
            run = [number for _, number in neighbours]
            first = self._place(run[0]).start
            data = memoryview(fetch(first, self._place(run[-1]).stop))
            for number in run:
                place = self._place(number)
                block = bytes(data[place.start - first : place.stop - first])
                self.cache.put(self._block(number), block)
                found[number] = block
        blocks = b"".join(block for block in found.values() if block is not None)
        return memoryview(blocks)[start - numbers.start * BLOCK_BYTES :][: end - start]

    def _place(self, number: int) -> range:
        return range(number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, self.size_bytes))

    def _block(self, number: int) -> str:
        return f"{self.name}-{number}"


def _head(content: bytes) -> bytes:
    return _MAGIC + xxhash.xxh3_128_digest(content)
