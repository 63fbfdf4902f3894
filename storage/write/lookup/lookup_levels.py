"""Finds the previous rows of many keys, on the lowest level above a given one that contains them.

Source: Java `mergetree/LookupLevels.java`, `LookupUtils.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import Chunks
from tidelake.storage.merge.changelog_rows import KeyedRows
from tidelake.storage.merge.normalized_keys import KeyWords, NormalizedKey, align_keys, first_not_less
from tidelake.storage.model.binary_row import decode_rows_of_files
from tidelake.storage.model.schema.table_schema import LEVEL_FIELD
from tidelake.storage.model.types import DataField, arrow_field
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.lookup.file_parts import FileParts, LookupFilePart
from tidelake.storage.write.lookup.lookup_cache import LookupCache
from tidelake.storage.write.lookup.lookup_file import BLOCK_BYTES, BLOCK_ROWS, FileLookupResult, Keys, key_words

IsVisible = Callable[[DataFileMeta, FileLookupResult], NDArray[np.bool_]]
"""Returns which of the rows found in a file (n,) are visible: not expired, and not marked as deleted."""


@dataclass(frozen=True)
class LookupLevels:
    """The lookup of previous rows in a bucket. A delete counts as a row: its key has no value.

    files: reads the files of the bucket.
    runs: the sorted runs to search, from the lowest level upwards, each with its files in key order.
    key_fields: the fields of the trimmed primary key.
    cache: the decoded files.
    is_visible: decides which rows are visible; an invisible row is skipped, and an older row may be found. It is called
        at each lookup, because the decoded files contain all rows.
    """

    files: BucketFiles
    runs: Sequence[Sequence[DataFileMeta]]
    key_fields: Sequence[DataField]
    cache: LookupCache
    is_visible: IsVisible | None = None

    def find(self, keys: pa.RecordBatch) -> KeyedRows:
        """Return the previous rows, by the places of their keys, with all columns and `_LEVEL`.

        keys: the columns of the key, in key order, each key once.
        """
        asked = Keys(keys, np.arange(keys.num_rows))
        found: list[KeyedRows] = []
        for number in range(len(self.runs)):
            if not len(asked):
                break
            of_run = [rows for rows in self._in_run(number, asked) if len(rows.keys)]
            found += of_run
            if of_run:
                missing = np.ones(keys.num_rows, np.bool_)
                missing[np.concatenate([rows.keys for rows in of_run])] = False
                asked = asked.where(missing[asked.places])
        return self._concatenated(found)

    def _in_run(self, number: int, keys: Keys) -> Iterator[KeyedRows]:
        run = self.runs[number]
        file_of_key = self._file_of_key(number, keys)
        for at in np.unique(file_of_key[file_of_key < len(run)]).tolist():
            start, stop = np.searchsorted(file_of_key, [at, at + 1]).tolist()
            yield from self._in_file(run[at], self._from_first_key(number, at, keys.part(start, stop)))

    def _file_of_key(self, number: int, keys: Keys) -> NDArray[np.intp]:
        """(m,): for each key, the number of the first file of the run that ends at or after the key.

        The number of files if no such file exists.
        """
        last, asked = align_keys([self._last_keys[number], key_words(keys.columns)])
        return first_not_less(last, asked)

    def _in_file(self, file: DataFileMeta, keys: Keys) -> Iterator[KeyedRows]:
        if not len(keys):
            return

        def parts() -> FileParts:
            first = self.key_fields[0]  # a null key is below all bounds, which leave nulls out
            return FileParts.of(file.row_count, None if first.type.nullable else self.files.chunk_bounds(file, first))

        def read(part: LookupFilePart) -> Iterator[pa.RecordBatch]:
            chunks = None if part.chunks is None else Chunks(part.chunks, self.key_fields[0].name)
            return self.files.read(file, batch_rows=BLOCK_ROWS, batch_bytes=BLOCK_BYTES, chunks=chunks)

        level = arrow_field(LEVEL_FIELD)
        for found in self.cache.find(file, self.files.path(file), parts, read, keys):
            visible = found.rows
            if self.is_visible is not None:
                visible = visible.where(self.is_visible(file, found))
            levels = pa.array(np.full(len(visible.keys), file.level, np.int32))
            yield KeyedRows(visible.rows.append_column(level, levels), visible.keys)

    def _from_first_key(self, number: int, at: int, keys: Keys) -> Keys:
        """Drop the keys before the first key of a file.

        at: the number of the file in the run.
        """
        asked, first = align_keys([key_words(keys.columns), self._first_keys[number]])
        of_file: KeyWords = tuple(word[at : at + 1] for word in first)
        return keys.part(int(first_not_less(asked, of_file)[0]), len(keys))

    @cached_property
    def _first_keys(self) -> list[list[NormalizedKey]]:
        return [self._words([file.min_key for file in run], run) for run in self.runs]

    @cached_property
    def _last_keys(self) -> list[list[NormalizedKey]]:
        return [self._words([file.max_key for file in run], run) for run in self.runs]

    def _words(self, rows: Sequence[bytes], files: Sequence[DataFileMeta]) -> list[NormalizedKey]:
        types = [field.type for field in self.key_fields]
        columns = decode_rows_of_files(rows, types, [file.file_name for file in files], "keys")
        return key_words(pa.RecordBatch.from_arrays(columns, names=[field.name for field in self.key_fields]))

    def _concatenated(self, found: Sequence[KeyedRows]) -> KeyedRows:
        if not found:
            nothing = self.files.row_schema.append(arrow_field(LEVEL_FIELD))
            return KeyedRows(pa.RecordBatch.from_pylist([], nothing), np.zeros(0, np.intp))
        if len(found) == 1:
            return found[0]
        places = np.concatenate([rows.keys for rows in found])
        rows = pa.concat_batches([rows.rows for rows in found])
        if bool((places[1:] > places[:-1]).all()):  # all rows are from one run
            return KeyedRows(rows, places)
        order = np.argsort(places, kind="stable")
        return KeyedRows(rows.take(pa.array(order)), places[order])
