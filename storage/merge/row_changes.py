"""What changed from one row of a key to the next, for many keys at once: changelog rows, in columns.

    before    after         rows
    -         a row         +I after
    a row     -             -D before
    a row     a row         -U before, +U after; none where both are equal and equal ones don't count

Rows keep the sequence number of the row that they come from.

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

from storage.format import KIND_COLUMN, RowKind
from storage.merge.equal_keys import Mask
from storage.merge.sort_order import RowIndices
from storage.merge.values.equality import value_codes
from storage.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """At most one row of each key.

    keys (m,): ascending, which of the keys each row has.
    """

    rows: pa.RecordBatch
    keys: RowIndices

    def where(self, wanted: Mask) -> KeyedRows:
        return self if wanted.all() else KeyedRows(self.rows.filter(pa.array(wanted)), self.keys[wanted])

    def adds(self) -> KeyedRows:
        """Without retracts: a key whose row is a delete has no row."""
        return self.where(~is_retract(row_kinds(self.rows)))

    def of(self, keys: Mask) -> KeyedRows:
        """keys (g,): which of all keys to keep."""
        return self.where(keys[self.keys])

    def joined(self, others: KeyedRows) -> KeyedRows:
        """Rows of other keys too, with the same columns."""
        if not len(others.keys):
            return self
        if not len(self.keys):
            return others
        keys = np.concatenate((self.keys, others.keys))
        order = np.argsort(keys, kind="stable")
        rows = pa.concat_batches([self.rows, others.rows.select(self.rows.schema.names).cast(self.rows.schema)])
        return KeyedRows(rows.take(pa.array(order)), keys[order])

    def places(self, count: int) -> RowIndices:
        """(g,): the row of each of so many keys, -1 where there is none."""
        places = np.full(count, -1, np.intp)
        places[self.keys] = np.arange(len(self.keys))
        return places


def row_changes(
    before: KeyedRows, after: KeyedRows, count: int, compared: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Changelog rows in key order, with the columns of `after.rows`, `_VALUE_KIND` among them.

    count: of all keys.
    before, after: adds; before.rows has the columns too.
    compared: columns of which one must differ for an update to count (`changelog-producer.row-deduplicate`); None:
        every update counts.
    """
    rows = pa.concat_batches([before.rows.select(after.rows.schema.names).cast(after.rows.schema), after.rows])
    old, new = before.places(count), after.places(count)
    return changes_among(rows, old, np.where(new >= 0, new + before.rows.num_rows, new), compared)


def changes_among(
    rows: pa.RecordBatch, old: RowIndices, new: RowIndices, compared: Sequence[str] | None = None
) -> pa.RecordBatch:
    """As `row_changes`, of keys whose rows are together.

    old, new (g,): which row each key had, and which it has; -1 for none.
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
    """Positions of the pairs that are equal in all the columns."""
    pairs = np.arange(len(places))
    for name in columns:
        if not len(pairs):
            break
        one = rows.column(name).take(pa.array(places[pairs]))
        other = others.column(name).take(pa.array(other_places[pairs]))
        pairs = pairs[_equal_values(one, other)]
    return pairs


def _equal_values(one: pa.Array, other: pa.Array) -> Mask:
    """(n,): null equals null, NaN equals NaN; -0.0 and 0.0 differ, as keys do. Java calls the latter equal, and two NaN
    different: a copy of the table would keep the sign that the table lost.
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
    """Floats as whole numbers; there are many NaN, and one number for them."""
    kind = values.type
    values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
    return values.view(pa.int32() if pa.types.is_float32(kind) else pa.int64())
