"""Which data files are kept decoded for lookups: the ones asked last, within limits of disk and memory.

What is found is the same whatever is kept.

Options: `lookup.cache-max-disk-size`, `lookup.cache-max-memory-size`, `lookup.cache-file-retention`,
`lookup.cache.bloom.filter.enabled`, `lookup.cache.bloom.filter.fpp`.

Source: Java `mergetree/LookupFile.java` (`createCache`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from storage.errors import TidelakeError
from storage.files.data_file import DataFileMeta
from storage.logs import get_logger
from storage.lookup.lookup_file import Found, Keys, LookupFile, TooLarge, find_in_stream
from storage.options import TableOptions

_log = get_logger(__name__)


@dataclass(slots=True)
class _Kept:
    file: LookupFile
    used_s: float


class LookupCache:
    """Of one writer or job, for one table. Safe to use from several threads.

    directory: where files are kept; None is the system's place for temporary files.
    """

    def __init__(
        self, options: TableOptions, directory: str | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._disk_bytes_max = options.lookup_cache_max_disk_bytes
        self._memory_bytes_max = options.lookup_cache_max_memory_bytes
        self._retention_s = options.lookup_cache_file_retention_ms / 1000
        self._bloom_fpp = options.lookup_cache_bloom_filter_fpp
        self._directory = directory
        self._now_s = now_s
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # the one used last comes last
        self._too_large: set[str] = set()
        self._guard = threading.Lock()

    def find(
        self,
        file: DataFileMeta,
        name: str,
        read: Callable[[], Iterator[pa.RecordBatch]],
        keys: Keys,
    ) -> Iterator[Found]:
        """Rows of the keys that the file has.

        name: its own among all of the table.
        read: all of its rows.
        """
        kept = self._get(name)
        if kept is None and file.file_size <= self._disk_bytes_max and name not in self._too_large:
            kept = self._keep(file, name, read, keys)
        if kept is None:
            yield from find_in_stream(read(), keys)
        else:
            yield from kept.find(keys)
            self._shrink()

    def drop(self, names: Iterable[str]) -> None:
        """Files that nobody will ask again."""
        with self._guard:
            for name in names:
                self._too_large.discard(name)
                if name in self._kept:
                    self._kept.pop(name).file.close()

    @property
    def disk_bytes(self) -> int:
        return sum(kept.file.disk_bytes for kept in list(self._kept.values()))

    @property
    def memory_bytes(self) -> int:
        return sum(kept.file.memory_bytes for kept in list(self._kept.values()))

    def __len__(self) -> int:
        return len(self._kept)

    def _get(self, name: str) -> LookupFile | None:
        with self._guard:
            now_s = self._now_s()
            for old in [name for name, kept in self._kept.items() if now_s - kept.used_s > self._retention_s]:
                self._kept.pop(old).file.close()
            kept = self._kept.get(name)
            if kept is None:
                return None
            kept.used_s = now_s
            self._kept.move_to_end(name)
            return kept.file

    def _keep(
        self,
        file: DataFileMeta,
        name: str,
        read: Callable[[], Iterator[pa.RecordBatch]],
        keys: Keys,
    ) -> LookupFile | None:
        try:
            made = LookupFile(
                read(),
                keys.columns.schema.names,
                row_count=file.row_count,
                most_bytes=self._disk_bytes_max,
                bloom_fpp=self._bloom_fpp,
                directory=self._directory,
            )
        except TooLarge:
            self._too_large.add(name)
            return None
        except (OSError, TidelakeError) as error:
            _log.warning("lookup without local files", file=name, reason=str(error))
            self._too_large.add(name)
            return None
        with self._guard:
            self._kept[name] = _Kept(made, self._now_s())
        self._shrink()
        return made

    def _shrink(self) -> None:
        with self._guard:
            while len(self._kept) > 1 and self.disk_bytes > self._disk_bytes_max:
                self._kept.popitem(last=False)[1].file.close()
            if self.memory_bytes > self._memory_bytes_max:
                for kept in self._kept.values():
                    kept.file.forget_words()
                    if self.memory_bytes <= self._memory_bytes_max:
                        break
