"""What metadata files hold, decoded and kept in memory; the caches of a process share what they may take.

One table is served best by a cache that holds all its live manifests; hundreds of tables in one process must not take
hundreds of times that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from weakref import WeakSet

_BYTES_OF_PROCESS: Final = 256 << 20
_BYTES_OF_CACHE: Final = 32 << 20  # some 20,000 entries of ten columns


@dataclass(frozen=True, slots=True)
class _File:
    records: tuple[Any, ...]
    size_bytes: int
    used_at: int  # by the budget's count of uses


class CacheBudget:
    """What all caches together may keep. Beyond it goes what was not used for longest, whichever cache has it.

    A cache that is no longer referenced takes nothing. Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self.lock = threading.Lock()  # of all caches: held for a look into a dictionary, never while files are read
        self._max_bytes = max_bytes
        self._caches: WeakSet[MetadataCache] = WeakSet()
        self._uses = count()
        self._at_most = 0  # what the caches take; less where some are gone, or dropped something by themselves

    def add(self, cache: MetadataCache) -> None:
        with self.lock:
            self._caches.add(cache)

    def next_use(self) -> int:
        return next(self._uses)

    def grown(self, nbytes: int) -> None:
        """Makes room, if need be, for what a cache took. The lock must be held."""
        self._at_most += nbytes
        if self._at_most <= self._max_bytes:
            return
        caches = list(self._caches)  # only now: there may be hundreds
        self._at_most = sum(cache.size_bytes for cache in caches)
        while self._at_most > self._max_bytes:
            self._at_most -= min(caches, key=MetadataCache.oldest_use).drop_oldest()


_OF_PROCESS: Final = CacheBudget(_BYTES_OF_PROCESS)


class MetadataCache:
    """Records of files by path; the least recently used go first. Thread-safe; tables may share one.

    max_bytes: of this cache alone. Sizes are those given to `put`.
    """

    def __init__(self, max_bytes: int = _BYTES_OF_CACHE, budget: CacheBudget = _OF_PROCESS) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._files: OrderedDict[str, _File] = OrderedDict()
        self.size_bytes = 0
        budget.add(self)

    def get(self, path: str) -> tuple[Any, ...] | None:
        with self._budget.lock:
            file = self._files.pop(path, None)
            if file is None:
                return None
            self._files[path] = _File(file.records, file.size_bytes, self._budget.next_use())
            return file.records

    def take(self, path: str) -> tuple[Any, ...] | None:
        """As `get`; it is kept no more."""
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
            self._budget.grown(size_bytes)

    # For the budget, which holds the lock.

    def oldest_use(self) -> float:
        return next(iter(self._files.values())).used_at if self._files else float("inf")

    def drop_oldest(self) -> int:
        """Returns the bytes that this freed."""
        _, file = self._files.popitem(last=False)
        self.size_bytes -= file.size_bytes
        return file.size_bytes
