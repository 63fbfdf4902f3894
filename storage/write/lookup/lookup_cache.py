"""Keeps decoded parts of data files for lookups: the parts that were used last, within limits of disk and memory.

The results of lookups don't depend on what is kept.

Options: `lookup.cache-max-disk-size`, `lookup.cache-max-memory-size`, `lookup.cache-file-retention`,
`lookup.cache.bloom.filter.enabled`, `lookup.cache.bloom.filter.fpp`.

Source: Java `mergetree/LookupFile.java` (`createCache`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.options import TableOptions
from tidelake.storage.write.lookup.file_parts import FileParts, LookupFilePart
from tidelake.storage.write.lookup.lookup_file import (
    FileLookupResult,
    Keys,
    LookupFile,
    LookupFileTooLarge,
    find_in_stream,
)

_log = get_logger(__name__)

_TOUCHED_BYTES_MAX: Final = 64 * 1024 * 1024  # of mapped files, which count as memory of this process

# A data file with more kept spans than this is decoded as a whole, because each LookupFile is an open file.
_SPANS_MAX: Final = 8
_STORED_TO_DECODED: Final = 8


@dataclass(slots=True)
class _CachedPart:
    file: LookupFile
    used_s: float


Span = tuple[str, range]
"""A data file, and those of its parts that one LookupFile contains."""


@dataclass(slots=True)
class _CachedDataFile:
    """A data file in the cache.

    parts: the parts of the data file.
    kept: number of a part -> the numbers of all parts in the same LookupFile.
    too_large: parts that can't be kept.
    """

    parts: FileParts
    kept: dict[int, range] = field(default_factory=dict)
    too_large: set[range] = field(default_factory=set)

    def parts_to_search(self, keys: Keys) -> Iterator[tuple[range, Keys]]:
        """Yield the parts to search, each with its keys.

        Parts in one LookupFile are searched together. Neighbouring parts that are not kept are joined, because a few
        large files are searched faster than many small ones.
        """
        span, first, end = range(0), 0, 0
        for number, start, stop in self.parts.of_keys(keys):
            if number in span:
                end = stop
                continue
            kept = self.kept.get(number)
            if kept is None and number == span.stop and span and span[0] not in self.kept:
                span, end = range(span.start, number + 1), stop
                continue
            if span:
                yield span, keys.part(first, end)
            span, first, end = kept or range(number, number + 1), start, stop
        if span:
            yield span, keys.part(first, end)


class LookupCache:
    """The lookup cache of one writer or job, for one table.

    Several threads can use it, if each of them looks up in other data files.

    directory: where files are stored; None means the system's temporary directory.
    now_s: the clock, in seconds.
    """

    def __init__(
        self,
        options: TableOptions,
        directory: str | None = None,
        now_s: Callable[[], float] = lambda: env.monotonic_s(),
    ) -> None:
        self._disk_bytes_max = options.lookup_cache_max_disk_bytes
        self._memory_bytes_max = options.lookup_cache_max_memory_bytes
        self._retention_s = options.lookup_cache_file_retention_ms / 1000
        self._bloom_fpp = options.lookup_cache_bloom_filter_fpp
        self._directory = directory
        self._now_s = now_s
        self._files: dict[str, _CachedDataFile] = {}
        self._kept: OrderedDict[Span, _CachedPart] = OrderedDict()  # the last used one comes last
        self._guard = env.Lock()

    def find(
        self,
        file: DataFileMeta,
        name: str,
        parts: Callable[[], FileParts],
        read: Callable[[LookupFilePart], Iterator[pa.RecordBatch]],
        keys: Keys,
    ) -> Iterator[FileLookupResult]:
        """Yield the rows of those keys that the file contains.

        name: a name that is unique in the table.
        parts: returns the parts of the file. Called once.
        read: reads all rows of a part.
        keys: the keys to find.
        """
        cached = self._files.get(name)
        if cached is None:
            cached = self._files[name] = _CachedDataFile(parts())
        elif (
            len(set(cached.kept.values())) > _SPANS_MAX and file.file_size <= self._disk_bytes_max // _STORED_TO_DECODED
        ):
            self.drop([name])
            cached = self._files[name] = _CachedDataFile(FileParts.of(file.row_count, None))
        for numbers, of_span in cached.parts_to_search(keys):
            part = cached.parts.join_parts(numbers)
            stored_bytes = file.file_size * part.row_count // max(1, file.row_count)
            kept = self._get((name, numbers))
            if kept is None and stored_bytes <= self._disk_bytes_max and numbers not in cached.too_large:
                kept = self._keep((name, numbers), cached, part, read, keys.columns.schema.names)
            if kept is None:
                yield from find_in_stream(read(part), part.first_row, of_span)
            else:
                yield from kept.find(of_span)
                self._shrink()

    def drop(self, names: Iterable[str]) -> None:
        """Drop files that will not be searched again."""
        with self._guard:
            for name in names if self._files else ():  # most writers use no lookups
                if (cached := self._files.pop(name, None)) is not None:
                    for numbers in set(cached.kept.values()):
                        self._kept.pop((name, numbers)).file.close()

    @property
    def disk_bytes(self) -> int:
        return sum(kept.file.disk_bytes for kept in list(self._kept.values()))

    @property
    def memory_bytes(self) -> int:
        return sum(kept.file.memory_bytes for kept in list(self._kept.values()))

    def __len__(self) -> int:
        return len(self._kept)

    def _get(self, span: Span) -> LookupFile | None:
        with self._guard:
            now_s = self._now_s()
            for old in [span for span, kept in self._kept.items() if now_s - kept.used_s > self._retention_s]:
                self._forget(old)
            kept = self._kept.get(span)
            if kept is None:
                return None
            kept.used_s = now_s
            self._kept.move_to_end(span)
            return kept.file

    def _keep(
        self,
        span: Span,
        cached: _CachedDataFile,
        part: LookupFilePart,
        read: Callable[[LookupFilePart], Iterator[pa.RecordBatch]],
        key_names: Sequence[str],
    ) -> LookupFile | None:
        name, numbers = span
        try:
            made = LookupFile(
                read(part),
                key_names,
                first_row=part.first_row,
                row_count=part.row_count,
                most_bytes=self._disk_bytes_max,
                bloom_fpp=self._bloom_fpp,
                directory=self._directory,
            )
        except LookupFileTooLarge:
            cached.too_large.add(numbers)
            return None
        except (OSError, TidelakeError) as error:
            _log.warning("lookup without local files", file=name, reason=str(error))
            cached.too_large.add(numbers)
            return None
        with self._guard:
            if self._files.get(name) is cached:  # otherwise it was dropped in the meantime
                self._kept[span] = _CachedPart(made, self._now_s())
                cached.kept |= dict.fromkeys(numbers, numbers)
        self._shrink()
        return made

    def _forget(self, span: Span) -> None:
        name, numbers = span
        self._kept.pop(span).file.close()
        for number in numbers:
            del self._files[name].kept[number]

    def _shrink(self) -> None:
        with self._guard:
            while len(self._kept) > 1 and self.disk_bytes > self._disk_bytes_max:
                self._forget(next(iter(self._kept)))
            if self.memory_bytes > self._memory_bytes_max:
                for kept in self._kept.values():
                    kept.file.forget_words()
                    if self.memory_bytes <= self._memory_bytes_max:
                        break
            if sum(kept.file.touched_bytes for kept in self._kept.values()) > _TOUCHED_BYTES_MAX:
                for kept in self._kept.values():
                    kept.file.release_pages()
