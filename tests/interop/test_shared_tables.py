"""Tidelake and Java alternately write and compact one table. All readers read the same rows, at every snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.interop.conftest import NewTable
from tests.interop.layouts import LAYOUTS, Layout


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_several_writers_continue_one_table(layout: Layout, new_table: NewTable) -> None:
    table = new_table(
        layout.columns,
        primary_key=layout.key,
        partition_by=layout.partition,
        options=layout.options,
        cannot=layout.cannot,
    )
    may_delete = bool(layout.key)

    def rows(numbers: Sequence[int], turn: int) -> pa.Table:
        """Upserts, and a delete for every fifth number."""
        kinds = [3 if number % 5 == turn % 5 else 2 * (number % 2) for number in numbers] if may_delete else None
        return layout.rows(numbers, kinds, turn=turn)

    table.write(layout.rows(range(40), turn=0))
    table.write(rows([*range(0, 60, 3), 3, 3, 6], turn=1))  # some keys more than once in a commit
    table.check()
    table.java_writes(rows(range(30, 75), turn=2))
    table.java_compacts(full=True)
    table.check()
    table.write(rows(range(0, 75, 2), turn=3))  # newer than rows that are in level 5 now
    table.java_compacts()
    table.write(rows(range(60, 90), turn=4))
    table.java_writes(rows(range(0, 90, 4), turn=5))
    table.java_compacts(full=True)
    table.write(rows([1, 2, 88], turn=6))
    table.check()
    table.check_history()
