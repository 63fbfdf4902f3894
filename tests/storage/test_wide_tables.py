"""What a table of many columns costs: calls and lists of names are counted, as times would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.scan import projection
from tidelake.storage.merge.merge_reader import MergeOrder, _deciding_columns


class CountingSchema:
    """Arrow makes a new list of all names each time that it is asked for them; this counts how often."""

    def __init__(self, columns: int) -> None:
        self._names = ["id", *(f"c{number}" for number in range(columns - 1))]
        self.lists = 0

    @property
    def names(self) -> list[str]:
        self.lists += 1
        return self._names


class RowsWith:
    def __init__(self, schema: CountingSchema) -> None:
        self.schema = schema


CASES: dict[str, Callable[[Any], object]] = {
    "all columns of a scan": lambda schema: projection(schema, None, None),
    "named columns of a scan": lambda schema: projection(schema, schema.names[::2], None),
    "the columns that decide between two rows": lambda schema: _deciding_columns(
        RowsWith(schema),
        MergeOrder(("id",), tuple(schema.names[1:])),
    ),
}


@pytest.mark.parametrize("step", CASES.values(), ids=CASES)
def test_the_names_of_columns_are_listed_as_often_for_many_columns_as_for_few(step: Callable[[Any], object]) -> None:
    few, many = CountingSchema(10), CountingSchema(1_000)
    step(few)
    step(many)
    assert many.lists == few.lists


def _calls(action: Callable[[], object]) -> int:
    """Count the calls of Python functions."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_ten_times_the_columns_take_at_most_ten_times_the_calls(engine: str) -> None:
    def calls_of_life(columns: int) -> dict[str, int]:
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False)] + [(f"c{n}", pa.int64()) for n in range(columns)]
        )
        rows = pa.table([[1, 2]] * (columns + 1), schema=schema)
        catalog = tidelake.open_catalog(f"memory://wide-{engine}-{columns}")
        catalog.create_database("db")
        table = catalog.create_table(
            "db.t", schema, primary_key=["id"], options={"bucket": "1", "merge-engine": engine, "write-only": "true"}
        )
        return {
            "write": _calls(lambda: table.append(rows)),
            "second write": _calls(lambda: table.append(rows)),
            "merge": _calls(lambda: table.scan().to_arrow()),
            "filter": _calls(lambda: table.scan(filter=tidelake.col("c0") == 2).to_arrow()),
            "compaction": _calls(lambda: table.compact(full=True)),
            "read": _calls(lambda: table.scan().to_arrow()),
        }

    calls_of_life(1)  # what is imported and cached once
    few, many = calls_of_life(40), calls_of_life(400)
    assert {step: (few[step], many[step]) for step in few if many[step] > 10 * few[step]} == {}
