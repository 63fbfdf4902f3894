"""Caches the decoded content of metadata files in memory. All caches of a process share a budget.

For a single table, a cache that holds all live manifests is best. But a process with hundreds of tables must not use
hundreds of times this memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from weakref import WeakSet

from tidelake.storage.base import env

_BYTES_OF_PROCESS: Final = 256 << 20
_BYTES_OF_CACHE: Final = 32 << 20  # about 20,000 entries of ten columns


@dataclass(frozen=True, slots=True)
class _File:
    records: tuple[Any, ...]
    size_bytes: int
    used_at: int  # number of its last use, counted by the budget


class CacheBudget:
    """Limits the memory of all caches together. Beyond it, the least recently used file is dropped, in any cache.

    A cache that is no longer referenced uses nothing. Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self.lock = env.Lock()  # shared by all caches: held for dictionary access, never while files are read
        self._max_bytes = max_bytes
        self._caches: WeakSet[MetadataCache] = WeakSet()
        self._uses = count()
        self._size_upper_bound = (
            0  # upper bound of the memory in use: caches may have been deleted, or have dropped files
        )

    def add(self, cache: MetadataCache) -> None:
        with self.lock:
            self._caches.add(cache)

    def next_use(self) -> int:
        return next(self._uses)

    def reserve(self, nbytes: int) -> None:
        """Drop files if necessary after a cache has grown. The lock must be held."""
        self._size_upper_bound += nbytes
        if self._size_upper_bound <= self._max_bytes:
            return
        caches = list(self._caches)  # only if the limit is exceeded: there may be hundreds
        self._size_upper_bound = sum(cache.size_bytes for cache in caches)
        while self._size_upper_bound > self._max_bytes:
            self._size_upper_bound -= min(caches, key=MetadataCache.oldest_use).drop_oldest()


_PROCESS_BUDGET: Final = CacheBudget(_BYTES_OF_PROCESS)


class MetadataCache:
    """Records of files by path. The least recently used files are dropped first. Thread-safe; tables may share it.

    max_bytes: limit of this cache. Sizes are those passed to `put`.
    """

    def __init__(self, max_bytes: int = _BYTES_OF_CACHE, budget: CacheBudget = _PROCESS_BUDGET) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._files: OrderedDict[str, _File] = OrderedDict()
        self.size_bytes = 0
        budget.add(self)

    def has(self, path: str) -> bool:
        """Return whether the records are cached now. It doesn't count as a use."""
        return path in self._files

    def get(self, path: str) -> tuple[Any, ...] | None:
        with self._budget.lock:
            file = self._files.pop(path, None)
            if file is None:
                return None
            self._files[path] = _File(file.records, file.size_bytes, self._budget.next_use())
            return file.records

    def take(self, path: str) -> tuple[Any, ...] | None:
        """Do the same as `get`, and remove the records."""
        with self._budget.lock:
            file = self._files.pop(path, None)
            if file is None:
                return None
            self.size_bytes -= file.size_bytes
            return file.records

    def put(self, path: str, records: tuple[Any, ...], size_bytes: int) -> None:
        with self._budget.lock:
            if path in self._files or size_bytes > self._max_bytes:
                return
            self._files[path] = _File(records, size_bytes, self._budget.next_use())
            self.size_bytes += size_bytes
            while self.size_bytes > self._max_bytes:
                self.drop_oldest()
            self._budget.reserve(size_bytes)

    # Called by the budget, which holds the lock.

    def oldest_use(self) -> float:
        return next(iter(self._files.values())).used_at if self._files else float("inf")

    def drop_oldest(self) -> int:
        """Drop the least recently used file. Returns the freed bytes."""
        _, file = self._files.popitem(last=False)
        self.size_bytes -= file.size_bytes
        return file.size_bytes
