"""Every aggregate function does, step by step, what Java's does: the suite `aggregators`."""

from __future__ import annotations

from typing import Any, Final

import pytest

from storage.errors import BadInput
from storage.merge.aggregators import Step
from tests.storage.merge.aggregators.support import fold, function
from tests.support.cases import Case, case_id, vectors

_STEPS: Final = {"agg": Step.AGG, "agg_reversed": Step.AGG_REVERSED, "retract": Step.RETRACT, "set": Step.SET}
_ERRORS: Final = {"arithmetic overflow": "overflows at", "retraction not supported": "can't take a value back"}


def column_type(case: Case) -> str:
    match case["type"]:
        case "map":
            return "MAP<INT, STRING>"
        case "map<string,row>":
            return f"MAP<STRING, ROW<{', '.join(f'{name} STRING' for name in case['row_fields'])}>>"
        case "array<row>":
            rows = [row for step in case["steps"] for row in step.get("input", step.get("acc")) or () if row]
            names = case.get("row_fields", ["f0", "f1"])
            kinds = ["STRING" if any(isinstance(row[at], str) for row in rows) else "INT" for at in range(len(names))]
            return f"ARRAY<ROW<{', '.join(f'{name} {kind}' for name, kind in zip(names, kinds, strict=True))}>>"
        case simple:
            return str(simple).upper()


def value_of(case: Case, value: Any) -> Any:
    """A vector's value as Arrow takes it: rows as dicts."""
    if value is None:
        return None
    names = case.get("row_fields", ["f0", "f1"])
    if case["type"] == "array<row>":
        return [None if row is None else dict(zip(names, row, strict=True)) for row in value]
    if case["type"] == "map<string,row>":
        return [(key, None if row is None else dict(zip(names, row, strict=True))) for key, row in value]
    if case["type"] == "map":
        return [tuple(entry) for entry in value]
    return value


def comparable(case: Case, value: Any) -> Any:
    return sorted(value, key=repr) if case.get("compare") == "unordered" and value is not None else value


@pytest.mark.parametrize("case", vectors("aggregators"), ids=case_id)
def test_each_step_gives_what_java_gives(case: Case) -> None:
    column = column_type(case)
    aggregator = function(case["function"], column, case["options"])
    rows: list[tuple[Step, Any]] = []
    known = None
    for step in case["steps"]:
        if step["op"] == "reset":
            rows = [(Step.SET, known)]  # a group of its own, that begins with what was there
            continue
        row = (_STEPS[step["op"]], value_of(case, step.get("input", step.get("acc"))))
        if "expect_error" in step:
            with pytest.raises(BadInput, match=_ERRORS[step["expect_error"]]):
                fold(aggregator, column, [[*rows, row]])
            continue
        rows.append(row)
        known = row[1] if row[0] is Step.SET else value_of(case, step["expect"])
        (folded,) = fold(aggregator, column, [rows])
        assert comparable(case, folded) == comparable(case, known)
