"""The place of a looked-up row among the rows of its key."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import Case, case_id, check_members, vectors
from tests.support.column_merge import KEY, batch_of_records
from tests.support.row_merge import Record
from tidelake.storage.merge.changelog_rows import KeyedRows
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.types import BIGINT
from tidelake.storage.write.lookup.previous_rows import with_previous

TYPES = {KEY: BIGINT, "v": BIGINT, "s": BIGINT}
Item = tuple[int, int]  # what orders it, what it holds


def insert_all(
    buffers: list[list[Item]], previous: dict[int, Item], sequence_fields: tuple[str, ...] = ()
) -> list[list[Item]]:
    """Groups with their rows, oldest first. With a sequence field, `_SEQUENCE_NUMBER` is the same everywhere."""

    def record(key: int, item: Item) -> Record:
        return Record("+I", 0 if sequence_fields else item[0], {KEY: key, "v": item[1], "s": item[0]})

    rows = batch_of_records(TYPES, [record(key, item) for key, items in enumerate(buffers) for item in items])
    starts = np.cumsum([0, *(len(items) for items in buffers)])[:-1]
    found = batch_of_records(TYPES, [record(key, item) for key, item in previous.items()])
    keyed = KeyedRows(found, np.array(list(previous), np.intp))
    order = MergeOrder((KEY,), sequence_fields)
    both, groups = with_previous(rows, Groups(np.arange(rows.num_rows), starts), keyed, order)
    drawn = both.take(groups.rows).to_pylist()
    cuts = [*groups.starts.tolist(), len(drawn)]
    return [[(row["s"], row["v"]) for row in drawn[a:b]] for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("sequence_fields", [(), ("s",)], ids=["sequence number", "sequence field"])
@pytest.mark.parametrize("case", vectors("lookup_insert_into"), ids=case_id)
def test_lookup_insert_into(case: Case, sequence_fields: tuple[str, ...]) -> None:
    check_members(case, {"buffer", "high_level", "expect"})
    buffer: list[Item] = [(order, held) for order, held in case["buffer"]]
    high: Item = (case["high_level"][0], case["high_level"][1])
    expected = [(order, held) for order, held in case["expect"]]
    if buffer:
        assert insert_all([buffer], {0: high}, sequence_fields) == [expected]
    else:
        assert expected == [high], "a key without rows is not looked up"


ITEMS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), min_size=1, max_size=4).map(
    lambda items: sorted(items, key=lambda item: item[0])
)


@given(
    buffers=st.lists(ITEMS, min_size=1, max_size=6),
    previous=st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 4), st.integers(100, 199))),
)
def test_each_row_is_inserted_after_rows_of_equal_age(buffers: list[list[Item]], previous: dict[int, Item]) -> None:
    previous = {key: previous[key] for key in sorted(previous) if key < len(buffers)}
    expected = []
    for key, items in enumerate(buffers):
        older = [item for item in items if key in previous and item[0] <= previous[key][0]]
        middle = [previous[key]] if key in previous else []
        expected.append([*older, *middle, *items[len(older) :]] if key in previous else items)
    assert insert_all(buffers, previous) == expected
