"""Options that decide which row of a key wins, or the kind of a row: Java and Tidelake agree for rows of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.shared_table import KIND, NAME, values
from tests.support.expected import difference

TURNS: Final = 12
COLUMNS: Final = (
    Column("k", "INT", pa.int32(), tuple(range(8))),
    Column("ts", "TIMESTAMP(3)", pa.timestamp("ms"), (-1, 0, 5, None)),
    Column("version", "DOUBLE", pa.float64(), (-0.0, 0.0, 1.5, float("nan"), None)),
    Column("text", "STRING", pa.string(), ("", "a", "ab", None)),
    Column("op", "STRING", pa.string(), ("+I", "+U", "-D", "-U")),
    Column("v", "INT", pa.int32(), ()),
)


@dataclass(frozen=True)
class Case:
    id: str
    options: Mapping[str, str]


CASES: Final = (
    Case("the last row", {}),
    Case("one field", {"sequence.field": "ts"}),
    Case("a number with NaN and two zeros", {"sequence.field": "version"}),
    Case("three fields", {"sequence.field": "text,version,ts"}),
    Case("descending", {"sequence.field": "ts,text", "sequence.field.sort-order": "descending"}),
    Case("deletes ignored", {"ignore-delete": "true"}),
    Case("deletes ignored, one field", {"ignore-delete": "true", "sequence.field": "ts"}),
    Case("updates before ignored", {"ignore-update-before": "true"}),
    Case("a column says the kind", {"rowkind.field": "op"}),
    Case("a column says the kind, deletes ignored", {"rowkind.field": "op", "ignore-delete": "true"}),
    Case("changelog of the input, one field", {"changelog-producer": "input", "sequence.field": "ts"}),
)


def rows(random: Random, turn: int, *, kinds: bool) -> pa.Table:
    count = random.choice([1, 4, 12])
    table = pa.table(
        {
            column.name: pa.array(
                random.choices(column.values, k=count) if column.values else [turn] * count, column.arrow
            )
            for column in COLUMNS
        }
    )
    return table.append_column(KIND, pa.array(random.choices(range(4), k=count), pa.int8())) if kinds else table


@pytest.mark.parametrize("option", ["ignore-delete", "ignore-update-before"])
def test_a_writer_drops_the_same_rows_as_javas(option: str, new_table: NewTable) -> None:
    """A reader doesn't show which of the two has dropped a row, so each writes a table alone."""
    options = {"bucket": "1", option: "true"}
    ours, javas = (new_table(COLUMNS, primary_key=["k"], options=options, folder=who) for who in ("we", "java"))
    random = Random(option)
    for turn in range(4):
        written = rows(random, turn, kinds=True)
        ours.write(written)
        javas.java_writes(written)
        found = values(javas.java.read(javas.warehouse, NAME))
        assert difference(ours.ours.scan().to_arrow(), found) is None, f"turn {turn}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_same_rows_win_as_in_java(case: Case, new_table: NewTable) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "4", **case.options}
    table = new_table(COLUMNS, primary_key=["k"], options=options)
    random = Random(case.id)
    for turn in range(TURNS):
        written = rows(random, turn, kinds="rowkind.field" not in case.options)
        if turn % 3 == 2:
            table.java_writes(written)
        else:
            table.write(written)
        found = table.ours.scan().to_arrow()
        assert difference(found, values(table.java.read(table.warehouse, NAME))) is None, f"turn {turn}"
    table.check_history()
