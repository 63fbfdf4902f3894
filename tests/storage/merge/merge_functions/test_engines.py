"""Deduplicate, first-row and partial-update: Java's cases, one key at a time."""

from __future__ import annotations

from typing import Any

import pytest

from storage.types import BIGINT, DOUBLE, INT, STRING, ArrayType, DataType
from tests.support.cases import Case, case_id, vectors
from tests.support.column_merge import batch_of_records, merge_function, merge_records
from tests.support.row_merge import Record, merge_row_by_row, merge_without_shortcut

CASES = [case for case in vectors("merge_functions") if case["engine"] != "aggregation"]


def type_of(values: list[Any]) -> DataType:
    """A column type that holds these values."""
    match next((value for value in values if value is not None), None):
        case str():
            return STRING
        case float():
            return DOUBLE
        case list():
            return ArrayType(INT)
        case _:
            return BIGINT


def columns_of(case: Case) -> list[str]:
    return list(case.get("fields") or ["k", "v"])


def records_of(case: Case) -> list[Record]:
    names = columns_of(case)
    return [
        Record(r["kind"], r.get("seq", i), dict(zip(names, r["v"], strict=True))) for i, r in enumerate(case["records"])
    ]


def expected_of(case: Case) -> list[Record]:
    expect = case["expect"]
    if expect is None:
        return []
    sequence = expect.get("seq", len(case["records"]) - 1)
    return [Record(expect["kind"], sequence, dict(zip(columns_of(case), expect["v"], strict=True)))]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_rows_of_a_key_merge_as_in_java(case: Case) -> None:
    records, names = records_of(case), columns_of(case)
    types = {name: type_of([record.row[name] for record in records]) for name in names}
    function = merge_function(types, {"merge-engine": case["engine"], **case["options"]}, names[0])
    merged = merge_records(
        function, batch_of_records(types, records), names[0], shortcut=case["through_reducer_wrapper"]
    )
    assert merged == expected_of(case)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_row_by_row_model_merges_as_java(case: Case) -> None:
    """The model that other tests trust, held to the same cases."""
    merge = merge_row_by_row if case["through_reducer_wrapper"] else merge_without_shortcut
    names = columns_of(case)
    merged = merge(case["engine"], case["options"], names, names[0], records_of(case))
    assert ([] if merged is None else [merged]) == expected_of(case)
