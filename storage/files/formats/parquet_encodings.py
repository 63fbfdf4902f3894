"""Chooses the Parquet encoding of each column, once per file, before the first row is written.

By default, a library builds a dictionary for every column, and discards it if it grows too large. That is the most
expensive part of a flush. Integers of all kinds are stored as differences (DELTA_BINARY_PACKED): this is smaller and
faster than PLAIN, and Java can read it.

DELTA_LENGTH_BYTE_ARRAY is not used, although it is smaller for many texts: Java Paimon 2.0.0 fails if lengths differ.
DELTA_BYTE_ARRAY is not used either: Java reads wrong values (`VectorizedDelta[Length]ByteArrayReader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.files.formats.file_field_ids import leaves_of

_SAMPLE_ROWS: Final = 1024
_SAMPLE_BYTES: Final = 4 * 1024 * 1024  # counting distinct values copies them; a dictionary has at most 1 MiB
# The share of distinct values in the sample up to which a dictionary is useful. For texts, 0.93 of 1,024 corresponds to
# about 7,000 distinct values. Packed integers are small without a dictionary.
_REPETITIVE_TEXTS: Final = 0.93
_REPETITIVE_INTEGERS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Encodings:
    """The encodings of leaf columns, by path (`a`, `l.list.element`). Other columns are plain.

    dictionary: the columns with a dictionary.
    delta: the columns that are stored as differences.
    """

    dictionary: frozenset[str]
    delta: frozenset[str]


def choose_encodings(
    table: pa.Table, *, dictionary: bool | None = None, per_column: Mapping[str, bool] | None = None, delta: bool = True
) -> Encodings:
    """Choose the encodings of a file.

    table: the first rows of the file, all that are known.
    dictionary: whether all columns use a dictionary; None decides by a sample.
    per_column: overrides `dictionary` for single columns.
    delta: whether differences are allowed.
    """
    wanted = per_column or {}
    flat = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
    sample = _sample(table.select(flat))
    with_dictionary: set[str] = set()
    with_delta: set[str] = set()
    for f in table.schema:
        choice = wanted.get(f.name, dictionary)
        if pa.types.is_nested(f.type):
            # nested values can't be estimated: Java always tries a dictionary, too
            with_dictionary.update(path for path, _ in leaves_of(f.name, f.type) if choice is not False)
        elif choice if choice is not None else _is_repetitive(sample.column(f.name)):
            with_dictionary.add(f.name)
        elif delta and _is_packed(f.type):
            with_delta.add(f.name)
    # a column with a dot in its name may have the same path as a field of a row
    return Encodings(frozenset(with_dictionary), frozenset(with_delta - with_dictionary))


def _sample(table: pa.Table) -> pa.Table:
    """Take rows from the whole table, to detect values that repeat at large distances."""
    count = max(1, min(_SAMPLE_ROWS, _SAMPLE_BYTES * table.num_rows // max(1, table.nbytes)))
    if table.num_rows <= count:
        return table
    rows = np.linspace(0, table.num_rows - 1, count).astype(np.int64)
    batches = table.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    edges = np.searchsorted(rows, starts)
    parts = [  # from each batch, because Arrow would join all batches of a table
        batch.take(pa.array(rows[begin:end] - start))
        for batch, start, begin, end in zip(batches, starts, edges, edges[1:], strict=False)
    ]
    return pa.Table.from_batches(parts)


def _is_repetitive(column: pa.ChunkedArray) -> bool:
    kind = column.type
    present = len(column) - column.null_count
    if present == 0 or pa.types.is_boolean(kind) or pa.types.is_fixed_size_binary(kind):
        return False
    limit = _REPETITIVE_INTEGERS if _is_packed(kind) else _REPETITIVE_TEXTS
    return bool(pc.count_distinct(column).as_py() <= limit * present)


def _is_packed(kind: pa.DataType) -> bool:
    """Return whether Parquet stores the type as an integer."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= 18)
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))
