"""Makes changelog rows from the previous and the new row of each key, for many keys at once, in columns.

    before    after         changelog rows
    -         a row         +I after
    a row     -             -D before
    a row     a row         -U before, +U after; none if both are equal and unchanged rows are left out

A changelog row keeps the sequence number of the row from which it was made.

Source: Java `mergetree/compact/FullChangelogMergeFunctionWrapper.java`, `LookupChangelogMergeFunctionWrapper.java`,
`utils/ValueEqualiserSupplier.java`; vectors `full_changelog_wrapper.json`, `lookup_changelog_wrapper.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Mask
from tidelake.storage.merge.normalized_keys import RowIndices
from tidelake.storage.merge.values.equality import value_codes
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """At most one row of each key.

    rows: m rows.
    keys (m,): the number of each row's key, ascending.
    """

    rows: pa.RecordBatch
    keys: RowIndices

    def where(self, wanted: Mask) -> KeyedRows:
        return self if wanted.all() else KeyedRows(self.rows.filter(pa.array(wanted)), self.keys[wanted])

    def adds(self) -> KeyedRows:
        """Return the rows without retracts: a key whose row is a delete has no row then."""
        return self.where(~is_retract(row_kinds(self.rows)))

    def of(self, keys: Mask) -> KeyedRows:
        """Return the rows of some keys.

        keys (g,): which of all keys to keep.
        """
        return self.where(keys[self.keys])

    def joined(self, others: KeyedRows) -> KeyedRows:
        """Add the rows of other keys. They must have the same columns."""
        if not len(others.keys):
            return self
        if not len(self.keys):
            return others
        keys = np.concatenate((self.keys, others.keys))
        order = np.argsort(keys, kind="stable")
        rows = pa.concat_batches([self.rows, others.rows.select(self.rows.schema.names).cast(self.rows.schema)])
        return KeyedRows(rows.take(pa.array(order)), keys[order])

    def places(self, count: int) -> RowIndices:
        """(g,): the position of each key's row, -1 if it has none.

        count: the number of all keys.
        """
        places = np.full(count, -1, np.intp)
        places[self.keys] = np.arange(len(self.keys))
        return places


def row_changes(
    before: KeyedRows, after: KeyedRows, count: int, compared: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Return changelog rows in key order, with the columns of `after.rows`, including `_VALUE_KIND`.

    before: the previous rows, without retracts. They have at least the columns of `after.rows`.
    after: the new rows, without retracts.
    count: the number of all keys.
    compared: an update is left out if all these columns are equal (`changelog-producer.row-deduplicate`). None includes
        every update.
    """
    rows = pa.concat_batches([before.rows.select(after.rows.schema.names).cast(after.rows.schema), after.rows])
    old, new = before.places(count), after.places(count)
    return changes_among(rows, old, np.where(new >= 0, new + before.rows.num_rows, new), compared)


def changes_among(
    rows: pa.RecordBatch, old: RowIndices, new: RowIndices, compared: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Like `row_changes`, if the previous and the new rows are in one batch.

    rows: the previous and the new rows.
    old (g,): the position of each key's previous row; -1 if it had none.
    new (g,): the position of each key's new row; -1 if it has none.
    compared: see `row_changes`.
    """
    updated = (old >= 0) & (new >= 0)
    counts = (old >= 0) | (new >= 0)
    if compared is not None and updated.any():
        keys = np.flatnonzero(updated)
        counts[keys[equal_rows(rows, old[keys], rows, new[keys], compared)]] = False
    keys = np.flatnonzero(counts)
    updated, old, new = updated[keys], old[keys], new[keys]
    taken = np.repeat(np.where(old >= 0, old, new), 1 + updated)
    kinds = np.repeat(np.where(old >= 0, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT)), 1 + updated)
    second = np.cumsum(1 + updated)[updated] - 1
    taken[second] = new[updated]
    kinds[second - 1], kinds[second] = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
    at = rows.schema.get_field_index(KIND_COLUMN)
    changes = rows.remove_column(at).take(pa.array(taken))
    return changes.add_column(at, rows.schema.field(at), pa.array(kinds))


def equal_rows(
    rows: pa.RecordBatch, places: RowIndices, others: pa.RecordBatch, other_places: RowIndices, columns: Sequence[str]
) -> NDArray[np.intp]:
    """Return the positions of the pairs of rows that are equal in all the columns."""
    pairs = np.arange(len(places))
    for name in columns:
        if not len(pairs):
            break
        one = rows.column(name).take(pa.array(places[pairs]))
        other = others.column(name).take(pa.array(other_places[pairs]))
        pairs = pairs[_equal_values(one, other)]
    return pairs


def _equal_values(one: pa.Array, other: pa.Array) -> Mask:
    """(n,): whether the values are equal. Null equals null, and NaN equals NaN. -0.0 and 0.0 differ, as in keys.

    In Java 0.0 equals -0.0, and NaN differs from NaN. Then a copy of the table could keep a sign that the table lost.
    """
    if pa.types.is_nested(one.type):
        codes = value_codes(pa.concat_arrays([one, other.cast(one.type)]))
        same: Mask = codes[: len(one)] == codes[len(one) :]
        return same
    if pa.types.is_floating(one.type):
        one, other = _bits(one), _bits(other)
    equal: Mask = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
    if one.null_count and other.null_count:
        equal = equal | pc.and_(pc.is_null(one), pc.is_null(other)).to_numpy(zero_copy_only=False)
    return equal


def _bits(values: pa.Array) -> pa.Array:
    """Convert floats to integers with the same bits. All NaN values become the same integer."""
    kind = values.type
    values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
    return values.view(pa.int32() if pa.types.is_float32(kind) else pa.int64())
