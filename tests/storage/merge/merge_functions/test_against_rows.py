"""Columnar merge engines give the result of row-by-row merging, for any rows and any mix of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.column_merge import KEY, batch_of_records, merge_function, merge_records
from tests.support.row_merge import Record, Refused, merge_row_by_row, merge_without_shortcut
from tidelake.errors import BadInput
from tidelake.storage.merge.merge_reader import MergeOrder, merge_batch
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.types import BIGINT, INT, ArrayType, DataType

# Protected columns are before, between and after their sequence fields.
TYPES: dict[str, DataType] = {
    KEY: BIGINT,
    "a": INT,
    "s": INT,
    "b": INT,
    "t": INT,
    "u": BIGINT,
    "c": INT,
    "list": ArrayType(INT),
    "free": INT,
}
GROUPS = {"fields.s.sequence-group": "a,b", "fields.t,u.sequence-group": "c,list"}
PARTIAL_UPDATE = {"merge-engine": "partial-update"}
FUNCTIONS = {
    "fields.a.aggregate-function": "sum",
    "fields.b.aggregate-function": "first_value",
    "fields.b.ignore-retract": "true",
    "fields.c.aggregate-function": "last_value",
    "fields.list.aggregate-function": "collect",
    "fields.list.ignore-retract": "true",
}
REMOVE_ON = "partial-update.remove-record-on-sequence-group"


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Of up to four keys, in merge order: sequence numbers rise."""
    small = st.none() | st.integers(0, 3)
    values = dict.fromkeys(TYPES, small) | {
        KEY: st.integers(1, 4),
        "list": st.none() | st.lists(st.integers(0, 3), max_size=2),
    }
    kinds = st.sampled_from(draw(st.sampled_from([["+I"], ["+I", "+U", "-D"], ["+I", "-U", "+U", "-D"]])))
    rows = draw(st.lists(st.tuples(kinds, st.fixed_dictionaries(values)), max_size=14))
    return [Record(kind, 10 + i, row) for i, (kind, row) in enumerate(rows)]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"merge-engine": "deduplicate"}, id="deduplicate"),
        pytest.param({"merge-engine": "deduplicate", "ignore-delete": "true"}, id="deduplicate, deletes ignored"),
        pytest.param({"merge-engine": "first-row"}, id="first row"),
        pytest.param({"merge-engine": "first-row", "ignore-delete": "true"}, id="first row, deletes ignored"),
        pytest.param(PARTIAL_UPDATE, id="plain partial update"),
        pytest.param(PARTIAL_UPDATE | {"ignore-delete": "true"}, id="deletes ignored"),
        pytest.param(
            PARTIAL_UPDATE | {"partial-update.remove-record-on-delete": "true"}, id="deletes remove the record"
        ),
        pytest.param(
            PARTIAL_UPDATE | {"fields.default-aggregate-function": "last_non_null_value"},
            id="a default that needs no group",
        ),
        pytest.param(PARTIAL_UPDATE | GROUPS, id="sequence groups"),
        pytest.param(PARTIAL_UPDATE | GROUPS | {"ignore-delete": "true"}, id="sequence groups, deletes ignored"),
        pytest.param(PARTIAL_UPDATE | GROUPS | {REMOVE_ON: "s"}, id="one group removes the record"),
        pytest.param(PARTIAL_UPDATE | GROUPS | {REMOVE_ON: "u,s"}, id="both groups remove the record"),
        pytest.param(
            PARTIAL_UPDATE | GROUPS | {"fields.default-aggregate-function": "last_non_null_value"},
            id="sequence groups with a default function",
        ),
        pytest.param(PARTIAL_UPDATE | GROUPS | FUNCTIONS, id="sequence groups with functions"),
        pytest.param(PARTIAL_UPDATE | GROUPS | FUNCTIONS | {"ignore-delete": "true"}, id="functions, deletes ignored"),
        pytest.param(
            PARTIAL_UPDATE | GROUPS | FUNCTIONS | {REMOVE_ON: "s,t"}, id="functions, and groups remove the record"
        ),
        pytest.param(
            PARTIAL_UPDATE | GROUPS | {"fields.a.aggregate-function": "max"},
            id="a function that can't take values back",
        ),
    ],
)
@given(drawn=records(), shortcut=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_columns_merge_as_rows_do(options: Mapping[str, str], drawn: list[Record], shortcut: bool, seed: int) -> None:
    model = merge_row_by_row if shortcut else merge_without_shortcut
    by_key = sorted(drawn, key=lambda record: record.row[KEY])
    function = merge_function(TYPES, options)
    if shortcut:  # the order of rows is irrelevant if they have sequence numbers
        drawn = [drawn[i] for i in np.random.default_rng(seed).permutation(len(drawn))]
    rows = batch_of_records(TYPES, drawn)
    try:
        expected = [
            merged
            for _, versions in groupby(by_key, key=lambda record: record.row[KEY])
            if (merged := model(options["merge-engine"], options, list(TYPES), KEY, list(versions))) is not None
        ]
    except Refused:
        with pytest.raises(BadInput):
            merge_records(function, rows, shortcut=shortcut)
    else:
        assert merge_records(function, rows, shortcut=shortcut) == expected


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(PARTIAL_UPDATE, id="plain partial update"),
        pytest.param(PARTIAL_UPDATE | GROUPS | FUNCTIONS, id="sequence groups with functions"),
        pytest.param(PARTIAL_UPDATE | GROUPS | {REMOVE_ON: "t"}, id="a group that removes the record"),
    ],
)
@given(drawn=records(), wanted=st.sets(st.sampled_from([name for name in TYPES if name != KEY])))
def test_a_column_does_not_depend_on_the_other_read_columns(
    options: Mapping[str, str], drawn: list[Record], wanted: set[str]
) -> None:
    drawn = [replace(record, kind="+I") for record in drawn] if options is PARTIAL_UPDATE else drawn
    function, rows = merge_function(TYPES, options), batch_of_records(TYPES, drawn)
    whole = merge_batch(rows, MergeOrder((KEY,)), function.merge)
    asked = [KEY, *sorted(wanted), SEQUENCE_COLUMN, KIND_COLUMN]
    part = merge_batch(rows.select([*asked, *function.columns_needed(wanted)]), MergeOrder((KEY,)), function.merge)
    assert part.select(asked) == whole.select(asked)
