"""Each aggregate function has one row, and the row agrees with its class, its documentation and its tests."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.test_aggregate_functions import COLUMNS, SETS
from tests.storage.merge.aggregators.support import fold
from tests.storage.merge.aggregators.test_against_rows import FOLDS
from tests.support.cases import vectors
from tidelake.errors import BadInput
from tidelake.storage.merge import aggregators
from tidelake.storage.merge.aggregate_functions import (
    AGGREGATE_FUNCTIONS,
    AggregateFunction,
    Retracts,
    aggregator_of,
    column_aggregation,
)
from tidelake.storage.merge.aggregators.aggregator import IgnoreRetract, RowByRow, Step, WithoutRetract
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types import DataField, parse_type

ROOT: Final = Path(__file__).parents[3]
FUNCTIONS: Final = list(AGGREGATE_FUNCTIONS.values())
WRAPPERS: Final = (IgnoreRetract, RowByRow, WithoutRetract)
INTERNAL: Final = "primary-key"  # users don't set it
TYPES: Final = (
    "INT",
    "BOOLEAN",
    "STRING",
    "BYTES",
    "ARRAY<INT>",
    "MAP<INT, INT>",
    "ARRAY<ROW<k INT, v INT>>",
    "MAP<INT, ROW<v INT, ts STRING>>",
)


def type_for(function: AggregateFunction) -> str:
    """A type of a column that the function accepts."""
    return next(text for text in TYPES if function.accepts.fits(parse_type(text)))


def column_of(function: AggregateFunction) -> ColumnAggregation:
    """The aggregation of a column that the function accepts."""
    field = DataField(0, "c", parse_type(type_for(function)))
    options = {"fields.c.nested-key": "k"} if "nested-key" in function.options else {}
    return column_aggregation(function.name, field, TableOptions(options))


def without_wrappers(function: AggregateFunction) -> Any:
    found: Any = aggregator_of(column_of(function))
    while isinstance(found, WRAPPERS):
        found = found.function
    return found


def documented() -> Iterator[tuple[str, str, str]]:
    """Name, column types, effect of a retract, for each function in the table of the docs."""
    text = (ROOT / "docs" / "merge-engines.md").read_text()
    table = text.split("| Function | Column types |", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[2:]:
        names, types, _, retract = (cell.strip() for cell in line.strip("|").split(" | "))
        for name in re.findall(r"`([a-z_0-9]+)`", names):
            yield name, types, retract


IN_JAVAS_TABLES: Final = {column.function for column in COLUMNS} | {name for name, _ in SETS.values()}
IN_VECTORS: Final = {case["function"] for case in vectors("aggregators")}
ROW_BY_ROW: Final = {case.function for case in FOLDS} | {name for name, _ in SETS.values()}  # sets: in the interop test


def test_each_class_of_an_aggregate_function_has_a_row() -> None:
    classes = {
        found
        for module in pkgutil.iter_modules(aggregators.__path__)
        for _, found in inspect.getmembers(importlib.import_module(f"{aggregators.__name__}.{module.name}"))
        if inspect.isclass(found)
        and found.__module__.startswith(aggregators.__name__)
        and hasattr(found, "aggregate")
        and list(inspect.signature(found.aggregate).parameters)[1:3] == ["values", "groups"]
        and not getattr(found, "_is_protocol", False)
    }
    assert classes - set(WRAPPERS) == {type(without_wrappers(function)) for function in FUNCTIONS}


def test_each_aggregate_function_is_documented() -> None:
    lines = sorted(name for name, _, _ in documented())
    assert lines == sorted(AGGREGATE_FUNCTIONS.keys() - {INTERNAL}), "a line of each in docs/merge-engines.md"


@pytest.mark.parametrize(("name", "types", "retract"), list(documented()))
def test_the_documentation_of_a_function_agrees_with_its_row(name: str, types: str, retract: str) -> None:
    function = AGGREGATE_FUNCTIONS[name]
    assert (types == "any") == (function.accepts.words == "any type")
    assert (retract == "refused") == (function.retracts is Retracts.REFUSED)
    assert retract.startswith("sets null") == (function.retracts is Retracts.EMPTY)


def test_the_documentation_lists_the_functions_whose_order_is_free() -> None:
    text = (ROOT / "docs" / "keeping-tables.md").read_text()
    (line,) = re.findall(r"Functions that need no order: (.*?), without", text)
    free = {function.name for function in FUNCTIONS if function.order_free}
    assert set(re.findall(r"`([a-z_0-9]+)`", line)) == free - {INTERNAL}, "the list in docs/keeping-tables.md"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_each_aggregate_function_is_tested(function: AggregateFunction) -> None:
    assert function.name in IN_JAVAS_TABLES | IN_VECTORS, (
        "add a column to COLUMNS of tests/interop/test_aggregate_functions.py: nothing compares it with Java"
    )
    assert function.name in ROW_BY_ROW or function.name == INTERNAL, (
        "add it to tests/support/aggregate_rows.py, and a case to tests/storage/merge/aggregators/test_against_rows.py"
    )


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_a_function_does_with_retracts_what_its_row_says(function: AggregateFunction) -> None:
    column = type_for(function)
    value: Any = {"INT": 2, "BOOLEAN": True, "STRING": "a", "BYTES": None}.get(column, [])
    aggregator = aggregator_of(column_of(function))
    rows = [[(Step.AGG, value), (Step.RETRACT, value)]]
    if function.retracts is Retracts.REFUSED:
        with pytest.raises(BadInput, match="retract"):
            fold(aggregator, column, rows)
    else:
        (left,) = fold(aggregator, column, rows)
        assert (left is None) == (function.retracts is Retracts.EMPTY)
