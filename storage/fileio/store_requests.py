"""Counts the requests of this process to object stores, by operation and by kind of file, and measures how long they
take.

A request is what a store charges for: each part of a large file is one, and so is each page of a listing. Requests that
the client repeats after a failure are not seen here, so they count once.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import Final

from tidelake.storage.base import env
from tidelake.storage.base.duration_histogram import DurationHistogram


class Operation(StrEnum):
    """A kind of request, in the words of S3. Other stores have requests of the same meaning and price."""

    GET = "GET"
    HEAD = "HEAD"
    LIST = "LIST"
    PUT = "PUT"
    COPY = "COPY"
    DELETE = "DELETE"

    @property
    def is_charged_as_put(self) -> bool:
        """Whether it has the price of a put. Those of a get are cheaper; deletions are free."""
        return self in (Operation.PUT, Operation.COPY, Operation.LIST)

    @property
    def is_charged_as_get(self) -> bool:
        return self in (Operation.GET, Operation.HEAD)


_DIRECTORIES: Final = {"schema": "schema", "snapshot": "snapshot", "consumer": "consumer", "index": "index"}
_PREFIXES: Final = {
    "manifest-list-": "manifest_list",
    "index-manifest-": "index_manifest",
    "manifest-": "manifest",
    "LATEST": "hint",
    "EARLIEST": "hint",
}


def kind_of(path: str) -> str:
    """Return the kind of a file or directory of a table: `data` for files in buckets, `other` for unknown ones."""
    directory, name = posixpath.split(path.rstrip("/"))
    for prefix, kind in _PREFIXES.items():
        if name.startswith(prefix):
            return kind
    parent = posixpath.basename(directory)
    if parent.startswith("bucket-") or name.startswith("bucket-"):
        return "data"
    return _DIRECTORIES.get(parent) or _DIRECTORIES.get(name) or "other"


class StoreRequests:
    """The requests since the process started. Thread-safe."""

    def __init__(self) -> None:
        self._lock = env.Lock()
        self._counts: Counter[tuple[Operation, str]] = Counter()
        self._durations: dict[Operation, DurationHistogram] = defaultdict(DurationHistogram)

    def add(self, operation: Operation, path: str, count: int, took_s: float) -> None:
        """Count requests of one call.

        took_s: duration of the whole call; its requests count with an equal share of it.
        """
        with self._lock:
            self._counts[operation, kind_of(path)] += count
            histogram = self._durations[operation]
            for _ in range(count):
                histogram.observe(took_s / count)

    def counts(self) -> Mapping[tuple[Operation, str], int]:
        with self._lock:
            return dict(self._counts)

    def durations(self) -> Mapping[Operation, DurationHistogram]:
        """Return the durations by operation. They change while requests are made."""
        with self._lock:
            return dict(self._durations)


class CountedRequest:
    """Counts the requests of its `with` block, also if it fails.

    count: number of requests; the block may change it.
    """

    __slots__ = ("_began_s", "_operation", "_path", "count")

    def __init__(self, operation: Operation, path: str, count: int = 1) -> None:
        self._operation = operation
        self._path = path
        self.count = count

    def __enter__(self) -> CountedRequest:
        self._began_s = env.monotonic_s()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STORE_REQUESTS.add(self._operation, self._path, self.count, env.monotonic_s() - self._began_s)


STORE_REQUESTS: Final = StoreRequests()
