"""Merge engine aggregation: columns are aggregated like single rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import aggregate_rows
from tests.support.column_merge import KEY, batch_of_records, merge_function, merge_records
from tests.support.levels import examples
from tests.support.row_aggregation import aggregate_row_by_row
from tests.support.row_merge import Record
from tidelake.errors import BadInput
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.normalized_keys import merge_order
from tidelake.storage.model.types import BIGINT, BOOLEAN, INT, STRING, ArrayType, DataType, not_null

AGGREGATION: Final = {"merge-engine": "aggregation"}


TYPES: Final[Mapping[str, DataType]] = {
    KEY: BIGINT,
    "total": BIGINT,
    "ts": INT,
    "most": INT,
    "latest": STRING,
    "first": STRING,
    "all": ArrayType(INT),
    "flag": BOOLEAN,
}
FUNCTIONS: Final = {
    "total": "sum",
    "most": "max",
    "first": "first_non_null_value",
    "all": "collect",
    "flag": "bool_or",
}
SMALL: Final = st.none() | st.integers(0, 3)
VALUES: Final = {
    KEY: st.integers(1, 4),
    "total": SMALL,
    "ts": st.none(),
    "most": SMALL,
    "latest": st.none() | st.sampled_from("ab"),
    "first": st.none() | st.sampled_from("ab"),
    "all": st.none() | st.lists(SMALL, max_size=2),
    "flag": st.none() | st.booleans(),
}


SQL_TYPES: Final = dict.fromkeys(TYPES, "STRING") | {"total": "BIGINT", "most": "INT"}  # numbers must say how wide


@settings(max_examples=examples(300))
@given(st.data())
def test_columns_aggregate_like_rows(data: st.DataObject) -> None:
    kinds = st.sampled_from(data.draw(st.sampled_from([["+I"], ["+I", "-D"], ["+I", "-U", "+U", "-D"]])))
    rows = data.draw(st.lists(st.tuples(kinds, st.fixed_dictionaries(VALUES)), max_size=16))
    records = [Record(kind, 10 + i, row) for i, (kind, row) in enumerate(rows)]
    removes = data.draw(st.booleans())
    ignored = frozenset() if removes else frozenset(data.draw(st.sampled_from([(), ("most", "first", "flag")])))
    options: dict[str, str] = {
        "aggregation.remove-record-on-delete": str(removes).lower(),
        "sequence.field": "ts",
        **{f"fields.{name}.aggregate-function": function for name, function in FUNCTIONS.items()},
        **{f"fields.{name}.ignore-retract": "true" for name in ignored},
    }
    function = merge_function(TYPES, AGGREGATION | options)
    by_key = groupby(sorted(records, key=lambda r: r.row[KEY]), key=lambda r: r.row[KEY])
    expected: list[Record] | None = None
    with suppress(aggregate_rows.Refused):
        expected = [aggregate_row_by_row(options, SQL_TYPES, (KEY,), list(group)) for _, group in by_key]
    if expected is None:
        with pytest.raises(BadInput, match="can't retract values"):
            merge_records(function, batch_of_records(TYPES, records))
    else:
        assert merge_records(function, batch_of_records(TYPES, records)) == expected


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("types", "options", "message"),
    [
        pytest.param({"v": INT}, {"fields.v.aggregate-function": "sums"}, "did you mean 'sum'", id="a misspelt name"),
        pytest.param({"v": INT}, {"fields.v.aggregate-function": "count"}, "use sum", id="count"),
        pytest.param(
            {"v": STRING},
            {"fields.v.aggregate-function": "sum"},
            "column 'v' STRING: .* takes numbers",
            id="sum of texts",
        ),
        pytest.param(
            {"v": INT},
            {"fields.default-aggregate-function": "listagg"},
            "takes STRING",
            id="an unfit default",
        ),
        pytest.param(
            {"v": INT},
            {
                "fields.v.aggregate-function": "max",
                "fields.v.ignore-retract": "true",
                "aggregation.remove-record-on-delete": "true",
            },
            "unset one of them",
            id="deletes are ignored and remove",
        ),
        pytest.param(
            {"v": INT}, {"fields.v.ignore-retract": "perhaps"}, "fields.v.ignore-retract.*neither true", id="no boolean"
        ),
    ],
)
def test_unsuitable_aggregate_functions_are_refused(
    types: Mapping[str, DataType], options: Mapping[str, str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        merge_function({KEY: BIGINT, **types}, AGGREGATION | dict(options))


def test_a_retract_may_leave_null_in_a_not_null_column() -> None:
    """As Java hands it to readers; it is not written."""
    types = {KEY: BIGINT, "v": not_null(INT)}
    records = [Record("+I", 0, {KEY: 1, "v": 1}), Record("-D", 1, {KEY: 1, "v": 1})]
    (merged,) = merge_records(merge_function(types, AGGREGATION), batch_of_records(types, records))
    assert merged.row == {KEY: 1, "v": None}


def test_system_columns_come_from_the_newest_row() -> None:
    types = {KEY: BIGINT, "v": INT}
    function = merge_function({**types}, AGGREGATION | {"fields.v.aggregate-function": "sum"})
    rows = batch_of_records(types, [Record("+I", at, {KEY: 1, "v": 1}) for at in range(2)], levels=[5, 0])
    (merged,) = function.merge(rows, Groups.of(*merge_order((rows.column(KEY).to_numpy(),)))).to_pylist()
    assert merged["_LEVEL"] == 0
