"""Rows of one table from a part of a raw batch, and the merge of such parts into one batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import KeyChanges, TableRows, Target, UnavailableValues
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.format import KIND_COLUMN

_KIND_FIELD = pa.field(KIND_COLUMN, pa.int8(), False)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """n rows of one target.

    rows (n,): the row in the raw batch of each row's record.
    kinds (n,): int8 row kinds.
    columns: the columns in the table's order.
    flags: column name to (n,) flags, True where the record left out the value and the old value must stay.
    old_keys: row number to the values of the old primary key, for moved rows with flags.
    """

    target: Target
    rows: NDArray[np.int64]
    kinds: NDArray[np.int8]
    columns: Sequence[pa.Array]
    flags: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    old_keys: Mapping[int, Sequence[object]] = field(default_factory=dict)


FindKeyChanges: TypeAlias = Callable[[NDArray[np.int64], RawBatch, Collection[int]], KeyChanges | None]
"""Finds the halves of key changes among n rows. Its arguments:

- (n,) the row in the raw batch of each row's record
- the raw batch
- numbers of the rows that have an old key
"""


def merge_decoded(
    pieces: Sequence[DecodedRows], batch: RawBatch, find_key_changes: FindKeyChanges | None = None
) -> TableRows:
    """Return the pieces of one target as one batch, in source order.

    pieces: at least one.
    find_key_changes: for a format that sends a key change as two records.
    """
    target = pieces[0].target
    schema = target.schema.arrow
    rows = np.concatenate([piece.rows for piece in pieces])
    kinds = np.concatenate([piece.kinds for piece in pieces])
    columns = [_joined([piece.columns[i] for piece in pieces]) for i in range(len(schema))]
    whole = pa.record_batch([*columns, pa.array(kinds)], schema=schema.append(_KIND_FIELD))
    flags, old_keys = _all_flags(pieces), _all_old_keys(pieces)
    if np.any(rows[1:] < rows[:-1]):  # records of several shapes alternate in the batch
        order = np.argsort(rows, kind="stable")
        place = np.argsort(order)
        rows, whole = rows[order], whole.take(pa.array(order))
        flags = {name: of_column[order] for name, of_column in flags.items()}
        old_keys = {int(place[row]): key for row, key in old_keys.items()}
    unavailable = _unavailable(flags, whole.select(target.schema.primary_keys), old_keys) if flags else None
    key_changes = None if find_key_changes is None else find_key_changes(rows, batch, old_keys)
    return TableRows(target, whole, batch.offsets[rows], unavailable, key_changes)


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _all_flags(pieces: Sequence[DecodedRows]) -> dict[str, NDArray[np.bool_]]:
    names = sorted({name for piece in pieces for name in piece.flags})
    return {
        name: np.concatenate([piece.flags.get(name, np.zeros(len(piece.rows), np.bool_)) for piece in pieces])
        for name in names
    }


def _all_old_keys(pieces: Sequence[DecodedRows]) -> dict[int, Sequence[object]]:
    starts = np.cumsum([0, *(len(piece.rows) for piece in pieces[:-1])]).tolist()
    return {
        start + row: key for start, piece in zip(starts, pieces, strict=True) for row, key in piece.old_keys.items()
    }


def _unavailable(
    flags: Mapping[str, NDArray[np.bool_]], keys: pa.RecordBatch, old_keys: Mapping[int, Sequence[object]]
) -> UnavailableValues:
    """Return the unavailable values of n rows.

    flags: (n,) flags of each column.
    keys: the primary key of all n rows.
    old_keys: row number to the old primary key.
    """
    rows = np.flatnonzero(np.logical_or.reduce(list(flags.values())))
    moved = sorted(old_keys)
    take = rows.copy()  # indexes into the rows' own keys, followed by the old keys
    take[np.searchsorted(rows, moved)] = np.arange(len(keys), len(keys) + len(moved))
    columns = [
        pa.concat_arrays([column, pa.array([old_keys[row][i] for row in moved], column.type)]).take(pa.array(take))
        for i, column in enumerate(keys.columns)
    ]
    flagged_keys = pa.record_batch(columns, schema=keys.schema) if columns else keys.take(pa.array(rows))
    return UnavailableValues(rows, {name: of_column[rows] for name, of_column in flags.items()}, flagged_keys)
