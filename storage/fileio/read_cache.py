"""Keeps the beginnings and ends of immutable remote files in the memory of the process, and whole small ones.

A request takes tens of milliseconds, however little it asks for. Footers, indexes, manifests and manifest lists are
asked for by each read of a table, and are small.

Only a file whose name contains a UUID and a number is kept. Such a name is given once: a table that was dropped and
created again, or rolled back, has other names. Snapshots, schemas, tags and hints have names that are used again, so
they are always read.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from tidelake.storage.base import env

_BYTES_OF_PROCESS: Final = 128 << 20
_BYTES_OF_FILE: Final = 8 << 20  # the size of a manifest

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_IMMUTABLE: Final = re.compile(rf".*{_UUID}-[0-9]+(\.[A-Za-z0-9_.]+)?")


def is_immutable(path: str) -> bool:
    """Return whether the name of a file is never used for another content."""
    return _IMMUTABLE.fullmatch(path.rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True)
class KnownPart:
    """Bytes of a file.

    size_bytes: of the whole file.
    start: the place of `data` in the file.
    """

    size_bytes: int
    start: int
    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size_bytes


class ReadCache:
    """Parts of files by store and path. The least recently used ones are dropped first. Thread-safe.

    max_bytes: limit of all parts together. A part above 8 MiB is not kept.
    """

    def __init__(self, max_bytes: int = _BYTES_OF_PROCESS) -> None:
        self._max_bytes = max_bytes
        self._parts: OrderedDict[tuple[Hashable, str], KnownPart] = OrderedDict()
        self._forget_all()
        os.register_at_fork(after_in_child=self._forget_all)  # another thread may hold the lock

    def _forget_all(self) -> None:
        self._lock = env.Lock()
        self._parts.clear()
        self.size_bytes = 0

    def get(self, store: Hashable, path: str) -> KnownPart | None:
        with self._lock:
            part = self._parts.get((store, path))
            if part is not None:
                self._parts.move_to_end((store, path))
            return part

    def put(self, store: Hashable, path: str, part: KnownPart) -> None:
        """Keep a part of an immutable file. A part of another file is not kept."""
        if len(part.data) > _BYTES_OF_FILE or not is_immutable(path):
            return
        with self._lock:
            self._drop((store, path))
            self._parts[store, path] = part
            self.size_bytes += len(part.data)
            while self.size_bytes > self._max_bytes:
                self._drop(next(iter(self._parts)))

    def forget(self, store: Hashable, paths: Iterable[str]) -> None:
        """Forget files that this process deletes or replaces."""
        with self._lock:
            for path in paths:
                self._drop((store, path))

    def forget_below(self, store: Hashable, directory: str) -> None:
        with self._lock:
            for key in [key for key in self._parts if key[0] == store and key[1].startswith(f"{directory}/")]:
                self._drop(key)

    def _drop(self, key: tuple[Hashable, str]) -> None:
        dropped = self._parts.pop(key, None)
        self.size_bytes -= 0 if dropped is None else len(dropped.data)


SHARED_CACHE: Final = ReadCache()
