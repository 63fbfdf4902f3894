"""Inserts rows that were looked up among the rows of their keys.

Source: Java `mergetree/compact/LookupMergeFunction.java` (`insertInto`), `KeyValueBuffer.java`; vectors
`lookup_insert_into.json`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.changelog_rows import KeyedRows
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.merge.normalized_keys import Word, normalize_column
from tidelake.storage.model.format import SEQUENCE_COLUMN


def with_previous(
    rows: pa.RecordBatch, groups: Groups, previous: KeyedRows, order: MergeOrder
) -> tuple[pa.RecordBatch, Groups]:
    """Return all rows, and groups to which the previous rows were added.

    A previous row is inserted before the first newer row of its key, by sequence fields and sequence number. So it is
    after rows that are equally new.

    previous: the previous rows, by the number of their group. They have at least the columns of `rows`.
    """
    count = len(previous.keys)
    if not count:
        return rows, groups
    both = pa.concat_batches([rows, previous.rows.select(rows.schema.names).cast(rows.schema)])
    of_group = np.full(len(groups), -1, np.intp)
    of_group[previous.keys] = rows.num_rows + np.arange(count)
    previous_row = groups.broadcast(of_group)
    at = np.flatnonzero(previous_row >= 0)
    is_not_newer = np.zeros(len(groups.rows), np.intp)
    is_not_newer[at] = ~_is_newer(_order_words(both, order), groups.rows[at], previous_row[at])
    places = groups.starts[previous.keys] + groups.reduce(np.add, is_not_newer)[previous.keys]
    grown = np.insert(groups.rows, places, rows.num_rows + np.arange(count))
    added = np.zeros(len(groups), np.intp)
    added[previous.keys] = 1
    return both, Groups(grown, groups.starts + np.cumsum(added) - added)


def not_older_than_newest(
    rows: pa.RecordBatch, groups: Groups, previous: KeyedRows, order: MergeOrder
) -> NDArray[np.bool_]:
    """(m,): which previous rows are inserted after all rows of their keys.

    The parameters are those of `with_previous`.
    """
    names = [*order.sequence_fields, SEQUENCE_COLUMN]
    newest = rows.select(names).take(pa.array(groups.rows[groups.ends[previous.keys] - 1]))
    both = pa.concat_batches([newest, previous.rows.select(names).cast(newest.schema)])
    count = len(previous.keys)
    return ~_is_newer(_order_words(both, order), np.arange(count), count + np.arange(count))


def _order_words(rows: pa.RecordBatch, order: MergeOrder) -> list[Word]:
    words = [
        word
        for name in order.sequence_fields
        for word in normalize_column(rows.column(name), nullable=True, descending=order.descending)
    ]
    return [*words, rows.column(SEQUENCE_COLUMN).to_numpy()]


def _is_newer(words: list[Word], rows: NDArray[np.intp], others: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(n,): whether each row is newer than the other row of its pair."""
    newer = np.zeros(len(rows), np.bool_)
    for word in reversed(words):
        one, other = word[rows], word[others]
        newer = (one > other) | ((one == other) & newer)
    return newer
