"""Every step of every aggregate function gives Java's result: the suite `aggregators`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.storage.merge.aggregators.support import fold, function
from tests.support.case_errors import check_meaning, refused_as
from tests.support.case_values import column_type, comparable, expected_value, python_value
from tests.support.cases import Case, NotUnderstood, case_id, check_members, options_of, vectors
from tidelake.errors import BadInput
from tidelake.storage.merge.aggregators.aggregator import Aggregator, Step
from tidelake.storage.model.types import DataType

_STEPS: Final = {"agg": Step.AGG, "agg_reversed": Step.AGG_REVERSED, "retract": Step.RETRACT}
_MEMBERS: Final = {"function", "type", "options", "steps", "row_fields", "compare", "expect_error"}


def values_of(case: Case) -> Iterator[Any]:
    for step in case["steps"]:
        yield from (step[member] for member in ("acc", "input", "expect") if member in step)


def aggregator_of(case: Case, data_type: DataType) -> Aggregator | None:
    """None where the case expects the function to be refused from the start, as it is."""
    errors = [case["expect_error"]] if "expect_error" in case else [step.get("expect_error") for step in case["steps"]]
    try:
        return function(case["function"], data_type, options_of(case))
    except BadInput as e:
        if not errors or None in errors:
            raise
        for reported in errors:
            check_meaning(reported, str(e))
        return None


@pytest.mark.parametrize("case", vectors("aggregators"), ids=case_id)
def test_each_step_gives_the_same_result_as_java(case: Case) -> None:
    check_members(case, _MEMBERS)
    data_type = column_type(case["type"], values_of(case), case.get("row_fields"))
    aggregator = aggregator_of(case, data_type)
    if aggregator is None:
        return
    assert "expect_error" not in case, "the function is not refused"
    rows: list[tuple[Step, Any]] = []
    known: Any = None  # what the accumulator holds
    for step in case["steps"]:
        check_members(step, {"op", "acc", "input", "expect", "expect_error"})
        if step["op"] == "reset":
            rows = [(Step.SET, known)]  # a group of its own, that begins with what was there
        elif "acc" in step:
            known = python_value(step["acc"], data_type)
            rows.append((Step.SET, known))
        if step["op"] not in ("set", "reset"):
            if step["op"] not in _STEPS:
                raise NotUnderstood(f"op {step['op']!r} of a step")
            row = (_STEPS[step["op"]], python_value(step["input"], data_type))
            if "expect_error" in step:
                with refused_as(step["expect_error"]):
                    fold(aggregator, data_type, [[*rows, row]])
                continue
            rows.append(row)
        if "expect" in step:
            known = python_value(step["expect"], data_type)
            (folded,) = fold(aggregator, data_type, [rows])
            unordered = case.get("compare") == "unordered"
            expect = expected_value(step["expect"], data_type)
            assert comparable(folded, unordered=unordered) == comparable(expect, unordered=unordered)
