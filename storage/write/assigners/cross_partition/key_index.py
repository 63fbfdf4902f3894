"""An index of the place of each key. It uses a bounded amount of memory, and files beyond that.

Keys are in sorted runs, each larger than the next. The place of a known key is changed within its run. New keys form a
new run, and runs of similar size are merged. If the runs exceed the memory limit, the largest runs are written to
files, which are memory-mapped: a lookup loads only the pages that it needs. The files are deleted with the process.

A lookup of sorted keys costs a binary search in each of a few runs. LMDB and RocksDB would need one Python object for
each key, and DuckDB would join each batch with the whole index.

Source: Java `lookup/sort/db/LocalKvDb.java` (for the required behaviour).
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.merge.spill_folder import FOLDERS
from tidelake.storage.write.assigners.cross_partition.key_words import IndexWords

UNKNOWN: Final = -1

_GROWTH: Final = 4  # two neighbouring runs are merged unless the first has more than this many times the keys
PIECE_KEYS: Final = 1 << 20  # keys of each run that are merged at once
_RELEASED_BYTES: Final = 16 * 1024 * 1024  # pages of a mapped file are released after lookups touched this much


@dataclass(frozen=True, slots=True, eq=False)
class KeyPlaces:
    """The result of a lookup of n keys.

    places (n,): the stored place of each key; UNKNOWN for a key that is missing or too old.
    runs (n,): the run that holds the key; -1 if no run does.
    positions (n,): the position of the key in its run.
    """

    places: NDArray[np.int32]
    runs: NDArray[np.int8]
    positions: NDArray[np.intp]


class _Run:
    """The columns of k keys sorted by their first word: words, places, and with a TTL the time of each key.

    columns: in memory, or memory-mapped.
    """

    def __init__(self, columns: Sequence[NDArray[Any]], num_words: int, mapped: mmap.mmap | None = None) -> None:
        self.columns = tuple(columns)
        self.words = self.columns[:num_words]
        self.places = self.columns[num_words]
        self.times = self.columns[num_words + 1] if len(self.columns) > num_words + 1 else None
        self._mapped = mapped
        self._touched = 0

    def __len__(self) -> int:
        return len(self.places)

    @property
    def memory_bytes(self) -> int:
        return 0 if self._mapped is not None else sum(column.nbytes for column in self.columns)

    def find(self, keys: IndexWords) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which of the keys are in this run (h,), and their positions (h,).

        keys (n,): sorted by the first word.
        """
        at = np.searchsorted(self.words[0], keys[0])
        rows = np.flatnonzero(at < len(self))
        rows = rows[self.words[0][at[rows]] == keys[0][rows]]
        found = [(rows[:0], at[:0])]
        while len(rows):
            positions = at[rows]
            is_hit = np.ones(len(rows), np.bool_)
            for word, asked in zip(self.words[1:], keys[1:], strict=True):
                is_hit &= word[positions] == asked[rows]
            found.append((rows[is_hit], positions[is_hit]))
            rows = rows[~is_hit]  # keys with the same first word as another key
            at[rows] += 1
            rows = rows[at[rows] < len(self)]
            rows = rows[self.words[0][at[rows]] == keys[0][rows]]
        self.touched(len(keys[0]) * len(self.columns) * mmap.PAGESIZE)
        return np.concatenate([one for one, _ in found]), np.concatenate([two for _, two in found])

    def touched(self, nbytes: int) -> None:
        """Count touched pages, which count as memory of this process until the operating system takes them back."""
        self._touched += nbytes
        if self._mapped is not None and self._touched > _RELEASED_BYTES and hasattr(self._mapped, "madvise"):
            self._mapped.madvise(mmap.MADV_DONTNEED)  # safe: changes of a shared mapping stay in the page cache
            self._touched = 0


class KeyIndex:
    """The index of the places of all keys. Not thread-safe.

    num_words: number of words of a key.
    memory_bytes_max: limit for the runs in memory. It includes runs that are being merged, and the merged run.
    spill_directory: None: the system's directory for temporary files.
    ttl_s: time after which a key is forgotten; None: never.
    """

    def __init__(
        self, num_words: int, memory_bytes_max: int, *, spill_directory: str | None = None, ttl_s: int | None = None
    ) -> None:
        self._num_words = num_words
        types = [*[np.uint64] * num_words, np.int32, *([] if ttl_s is None else [np.uint32])]
        self._types: tuple[np.dtype[Any], ...] = tuple(np.dtype(kind) for kind in types)
        self._memory_bytes_max = memory_bytes_max
        self._spill_directory = spill_directory
        self._ttl_s = ttl_s
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def memory_bytes(self) -> int:
        return sum(run.memory_bytes for run in self._runs)

    def find(self, keys: IndexWords, now_s: int = 0) -> KeyPlaces:
        """Look up keys.

        keys (n,): distinct, sorted by the first word.
        now_s: time of a clock that has not passed 2^32 seconds.
        """
        n = len(keys[0])
        found = KeyPlaces(np.full(n, UNKNOWN, np.int32), np.full(n, -1, np.int8), np.zeros(n, np.intp))
        for number, run in enumerate(self._runs):
            rows, positions = run.find(keys)
            found.runs[rows], found.positions[rows] = number, positions
            places = run.places[positions]
            if self._ttl_s is not None and run.times is not None:
                places = np.where(run.times[positions].astype(np.int64) + self._ttl_s >= now_s, places, UNKNOWN)
            found.places[rows] = places
        return found

    def put(
        self, keys: IndexWords, found: KeyPlaces, rows: NDArray[np.intp], places: NDArray[np.int32], now_s: int = 0
    ) -> None:
        """Store new places for some of the keys of the last lookup.

        found: the result of that lookup
        rows (m,): which of its keys, ascending
        places (m,): their new places
        """
        runs = found.runs[rows]
        for number, run in enumerate(self._runs):
            in_run = runs == number
            if in_run.any():
                positions = found.positions[rows[in_run]]
                run.places[positions] = places[in_run]
                if run.times is not None:
                    run.times[positions] = now_s
        is_new = runs < 0
        if is_new.any():
            columns: list[NDArray[Any]] = [*(word[rows[is_new]] for word in keys), places[is_new].astype(np.int32)]
            if self._ttl_s is not None:
                columns.append(np.full(len(columns[0]), now_s, np.uint32))
            self._add(_Run(columns, self._num_words))

    def _add(self, run: _Run) -> None:
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-1]) * _GROWTH >= len(self._runs[-2]):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(self._merged(older, newer))
        while self.memory_bytes > self._memory_bytes_max:
            largest = max(range(len(self._runs)), key=lambda number: self._runs[number].memory_bytes)
            self._runs[largest] = self._written([self._runs[largest].columns], len(self._runs[largest]))

    def _merged(self, older: _Run, newer: _Run) -> _Run:
        total = len(older) + len(newer)
        size = total * sum(kind.itemsize for kind in self._types)
        held = self.memory_bytes + older.memory_bytes + newer.memory_bytes
        if held + size > self._memory_bytes_max:
            return self._written(_merged_pieces(older, newer), total)
        columns = [np.empty(total, kind) for kind in self._types]
        start = 0
        for piece in _merged_pieces(older, newer):
            for column, part in zip(columns, piece, strict=True):
                column[start : start + len(part)] = part
            start += len(piece[0])
        return _Run(columns, self._num_words)

    def _written(self, pieces: Iterator[Sequence[NDArray[Any]]] | Sequence[Sequence[NDArray[Any]]], total: int) -> _Run:
        """Write a run to a file, which is deleted with the run. Raises OSError if the disk is full."""
        path = FOLDERS.new_file(self._spill_directory)
        try:
            mapped = _filled(path, self._types, pieces, total)
        except BaseException:
            FOLDERS.remove_file(path)
            raise
        columns, offset = [], 0
        for kind in self._types:
            columns.append(np.frombuffer(mapped, kind, total, offset))
            offset += total * kind.itemsize
        run = _Run(columns, self._num_words, mapped)
        weakref.finalize(run, FOLDERS.remove_file, path)
        return run


def _filled(
    path: Path, types: Sequence[np.dtype[Any]], pieces: Iterator[Sequence[NDArray[Any]]] | Sequence[Any], total: int
) -> mmap.mmap:
    """Write column after column to a file and map it. A write through the mapping would crash on a full disk."""
    with path.open("xb+") as file:
        starts = np.cumsum([0, *(total * kind.itemsize for kind in types)]).tolist()
        done = 0
        for piece in pieces:
            for start, kind, part in zip(starts, types, piece, strict=False):
                file.seek(start + done * kind.itemsize)
                file.write(np.ascontiguousarray(part).data)
            done += len(piece[0])
        assert done == total, "keys were lost"
        file.flush()
        return mmap.mmap(file.fileno(), starts[-1])


def _merged_pieces(older: _Run, newer: _Run) -> Iterator[list[NDArray[Any]]]:
    """Yield the merged keys in sorted pieces, one after the other. No key is in both runs."""
    starts = [0, 0]
    while starts[0] < len(older) or starts[1] < len(newer):
        stops = _piece_stops(older, newer, starts)
        yield _merged_piece(
            [column[starts[0] : stops[0]] for column in older.columns],
            [column[starts[1] : stops[1]] for column in newer.columns],
        )
        for run in (older, newer):
            run.touched(PIECE_KEYS * sum(column.itemsize for column in run.columns))
        starts = stops


def _piece_stops(older: _Run, newer: _Run, starts: Sequence[int]) -> list[int]:
    if starts[0] + PIECE_KEYS >= len(older):
        if starts[1] + PIECE_KEYS >= len(newer):
            return [len(older), len(newer)]
        bound = newer.words[0][starts[1] + PIECE_KEYS]
    else:
        bound = older.words[0][starts[0] + PIECE_KEYS]
        if starts[1] + PIECE_KEYS < len(newer):
            bound = min(bound, newer.words[0][starts[1] + PIECE_KEYS])
    stops = [int(np.searchsorted(run.words[0], bound)) for run in (older, newer)]
    if stops == list(starts):  # a piece with a single first word; this does not happen with hashes
        stops = [int(np.searchsorted(run.words[0], bound, side="right")) for run in (older, newer)]
    return stops


def _merged_piece(older: Sequence[NDArray[Any]], newer: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    at = np.searchsorted(older[0], newer[0]) + np.arange(len(newer[0]))
    is_older = np.ones(len(older[0]) + len(newer[0]), np.bool_)
    is_older[at] = False
    merged = []
    for one, other in zip(older, newer, strict=True):
        both = np.empty(len(is_older), one.dtype)
        both[is_older], both[at] = one, other
        merged.append(both)
    return merged
