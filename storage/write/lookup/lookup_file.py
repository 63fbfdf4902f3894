"""Finds rows of one data file by key, many keys at a time, in blocks of rows that are in key order.

A file that is searched repeatedly is decoded to local disk, part by part, and mapped into memory. Then a lookup only
touches the blocks of its keys, and in them the pages of the rows that it finds. A part that is not kept is read again.
A Bloom filter excludes most absent keys. All bits of a key are in one of its words, so that a key needs one access to
memory.

Source: Java `mergetree/LookupFile.java`, `lookup/sort/SortLookupStoreFactory.java`. The format of decoded files is
Tidelake's. They are deleted when the process ends.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.changelog_rows import KeyedRows
from tidelake.storage.merge.normalized_keys import (
    NormalizedKey,
    align_keys,
    equal_keys,
    first_not_less,
    normalize_column,
)
from tidelake.storage.merge.spill_folder import FOLDERS

Hashes = NDArray[np.uint64]

_WORD_BITS: Final = 64
_MOST_BITS_OF_KEY: Final = 6
_BLOCKED_FILTER_FACTOR: Final = 1.4  # factor of memory for the same share of errors, because words fill unevenly
_TEXT_WORDS: Final = 4  # texts that differ only after these words have the same hash
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class BloomFilter:
    """A Bloom filter.

    count: the number of keys.
    fpp: the approximate share of absent keys that the filter reports as present.
    """

    def __init__(self, count: int, fpp: float) -> None:
        bits_per_key = -math.log(fpp) / math.log(2) ** 2
        self._bits_of_key = min(_MOST_BITS_OF_KEY, max(1, round(bits_per_key * math.log(2))))
        self._words = np.zeros(1 + int(count * bits_per_key * _BLOCKED_FILTER_FACTOR) // _WORD_BITS, np.uint64)

    @property
    def nbytes(self) -> int:
        return self._words.nbytes

    def add(self, hashes: Hashes) -> None:
        np.bitwise_or.at(self._words, self._places(hashes), self._masks(hashes))

    def may_contain(self, hashes: Hashes) -> NDArray[np.bool_]:
        """(m,): False if the key is certainly absent."""
        masks = self._masks(hashes)
        found: NDArray[np.bool_] = self._words[self._places(hashes)] & masks == masks
        return found

    def _places(self, hashes: Hashes) -> NDArray[np.intp]:
        return ((hashes >> np.uint64(36)) % np.uint64(len(self._words))).astype(np.intp)

    def _masks(self, hashes: Hashes) -> NDArray[np.uint64]:
        masks = np.zeros(len(hashes), np.uint64)
        for number in range(self._bits_of_key):
            masks |= np.uint64(1) << ((hashes >> np.uint64(6 * number)) & np.uint64(63))
        return masks


def key_hashes(columns: Sequence[NormalizedKey]) -> Hashes:
    """(m,): the hash of each key. Equal keys have equal hashes, even in different batches."""
    hashes = np.zeros(columns[0].num_rows, np.uint64)
    for column in columns:
        is_text = pa.types.is_string(column.values.type) or pa.types.is_binary(column.values.type)
        for word in column.first(_TEXT_WORDS if is_text else column.width):
            hashes = (hashes ^ word.astype(np.uint64, copy=False)) * _MIX
            hashes ^= hashes >> np.uint64(29)
    return hashes * _MIX


BLOCK_ROWS: Final = 262_144  # a block takes a lookup about 0.3 ms, even for a few rows
BLOCK_BYTES: Final = 64 * 1024 * 1024
_RELEASED_BYTES: Final = 64 * 1024 * 1024  # touched bytes of a mapped file after which its pages are released


class LookupFileTooLarge(Exception):
    """A file exceeds the limit of bytes on disk."""


def key_words(keys: pa.RecordBatch) -> list[NormalizedKey]:
    return [normalize_column(column, nullable=True) for column in keys.columns]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a lookup (m,), in key order, each key once.

    columns: the columns of the primary key.
    places (m,): the place of each key among all keys of the lookup.
    """

    columns: pa.RecordBatch
    places: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.places)

    def where(self, wanted: NDArray[np.bool_]) -> Keys:
        return self if wanted.all() else Keys(self.columns.filter(pa.array(wanted)), self.places[wanted])

    def part(self, start: int, stop: int) -> Keys:
        return Keys(self.columns.slice(start, stop - start), self.places[start:stop])


@dataclass(frozen=True, slots=True)
class FileLookupResult:
    """The rows that were found in a file.

    rows (m,): the rows, by the places of their keys.
    positions (m,): the positions of the rows in the data file.
    """

    rows: KeyedRows
    positions: NDArray[np.intp]


def find_in_block(
    block: pa.RecordBatch, first_row: int, words: Sequence[NormalizedKey], keys: Keys
) -> FileLookupResult:
    """Find keys in a block.

    block: rows in key order, each key once.
    first_row: the position of the block's first row in the file.
    words: the words of the block's keys.
    keys: the keys to find.
    """
    of_block, asked = align_keys([words, key_words(keys.columns)])
    rows = first_not_less(of_block, asked)
    hit = equal_keys(of_block, rows, asked)
    return FileLookupResult(KeyedRows(block.take(pa.array(rows[hit])), keys.places[hit]), first_row + rows[hit])


def find_in_stream(blocks: Iterable[pa.RecordBatch], first_row: int, keys: Keys) -> Iterator[FileLookupResult]:
    """Find keys in a stream of blocks. Stops reading after the last key.

    blocks: rows in key order.
    first_row: the position of the first block's first row in the file.
    keys: the keys to find.
    """
    names = keys.columns.schema.names
    for block in blocks:
        if not len(keys):
            return
        words = key_words(block.select(names))
        last = key_words(block.select(names).slice(block.num_rows - 1))
        last_of_block, asked = align_keys([last, key_words(keys.columns)])
        inside = int(np.searchsorted(first_not_less(last_of_block, asked), 1, side="left"))
        if inside:
            yield find_in_block(block, first_row, words, keys.part(0, inside))
        keys = keys.part(inside, len(keys))
        first_row += block.num_rows


class LookupFile:
    """A data file, or a part of it, decoded on local disk. The file is deleted with its last reference.

    blocks: all rows in key order.
    key_names: the names of the key columns.
    first_row: the position of the first row in the data file.
    row_count: the number of rows of the blocks.
    most_bytes: the maximum size on disk. A larger file raises LookupFileTooLarge, and is deleted.
    bloom_fpp: the share of false positives of the Bloom filter. None makes no filter. Keys of a single number have no
        filter either, because a search takes less time than a filter.
    directory: where to create the file; None means the system's temporary directory.

    Raises OSError for a full disk.
    """

    def __init__(
        self,
        blocks: Iterable[pa.RecordBatch],
        key_names: Sequence[str],
        *,
        first_row: int,
        row_count: int,
        most_bytes: int,
        bloom_fpp: float | None,
        directory: str | None,
    ) -> None:
        self._key_names = list(key_names)
        self._bloom: BloomFilter | None = None
        self._first_rows: list[int] = []  # the position of each block's first row
        self._path = FOLDERS.new_file(directory)
        self._remove = weakref.finalize(self, FOLDERS.remove_file, self._path)
        try:
            last_keys = self._write(
                blocks, first_row, most_bytes, None if bloom_fpp is None else (row_count, bloom_fpp)
            )
        except BaseException:
            self._remove()
            raise
        self.disk_bytes = self._path.stat().st_size
        self._last_keys = key_words(pa.concat_batches(last_keys)) if last_keys else []
        self._mapped = _mapped(self._path) if last_keys else None
        self._reader = None if self._mapped is None else pa.ipc.open_file(pa.py_buffer(self._mapped))
        self._words: dict[int, list[NormalizedKey]] = {}
        self._words_bytes = 0
        self.touched_bytes = 0

    def _write(
        self, blocks: Iterable[pa.RecordBatch], first_row: int, most_bytes: int, bloom: tuple[int, float] | None
    ) -> list[pa.RecordBatch]:
        """Write the blocks. Returns the last key of each block.

        bloom: the number of keys and the share of errors of the Bloom filter; None makes no filter.
        """
        last_keys = []
        with pa.OSFile(str(self._path), "wb") as file:
            writer: pa.ipc.RecordBatchFileWriter | None = None
            for block in blocks:
                if writer is None:
                    writer = pa.ipc.new_file(file, block.schema)
                    if bloom is not None and not self._has_one_number(block.schema):
                        self._bloom = BloomFilter(*bloom)
                writer.write_batch(block)
                self._first_rows.append(first_row)
                first_row += block.num_rows
                if file.tell() > most_bytes:
                    raise LookupFileTooLarge
                keys = block.select(self._key_names)
                last_keys.append(keys.take(pa.array([keys.num_rows - 1])))  # not a slice, which would keep the block
                if self._bloom is not None:
                    self._bloom.add(key_hashes(key_words(keys)))
            if writer is not None:
                writer.close()
        return last_keys

    def _has_one_number(self, schema: pa.Schema) -> bool:
        """Return whether the key is a single number."""
        return len(self._key_names) == 1 and pa.types.is_primitive(schema.field(self._key_names[0]).type)

    @property
    def memory_bytes(self) -> int:
        """The used memory, without the mapped file, which the operating system can drop."""
        return self._words_bytes + (0 if self._bloom is None else self._bloom.nbytes)

    def forget_words(self) -> None:
        """Release memory of key words. The next lookup computes them again."""
        self._words, self._words_bytes = {}, 0

    def find(self, keys: Keys) -> Iterator[FileLookupResult]:
        if self._bloom is not None:
            keys = keys.where(self._bloom.may_contain(key_hashes(key_words(keys.columns))))
        if not len(keys) or self._reader is None:
            return
        last_of_blocks, asked = align_keys([self._last_keys, key_words(keys.columns)])
        block_of_key = first_not_less(last_of_blocks, asked)
        for number in np.unique(block_of_key).tolist():
            if number == self._reader.num_record_batches:
                break
            start, stop = np.searchsorted(block_of_key, [number, number + 1]).tolist()
            block = self._reader.get_batch(number)
            self.touched_bytes += self.disk_bytes // self._reader.num_record_batches
            first_row = self._first_rows[number]
            yield find_in_block(block, first_row, self._words_of(number, block), keys.part(start, stop))
            if self.touched_bytes > _RELEASED_BYTES:
                self.release_pages()

    def _words_of(self, number: int, block: pa.RecordBatch) -> list[NormalizedKey]:
        if number not in self._words:
            self._words[number] = words = key_words(block.select(self._key_names))
            self._words_bytes += sum(8 * column.num_rows * (1 + column.width) for column in words)
        return self._words[number]

    def release_pages(self) -> None:
        """Release touched pages, which otherwise count as memory of this process until the system needs them."""
        if self.touched_bytes and self._mapped is not None and hasattr(self._mapped, "madvise"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
        self.touched_bytes = 0

    def close(self) -> None:
        """Delete the file. Running lookups can continue."""
        self._remove()


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
