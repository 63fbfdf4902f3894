"""A table that Tidelake, Java and pypaimon share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.interop.columns import Column
from tests.interop.naive_table import NaiveTable
from tests.interop.shared_table import NAME, Reader, SharedTable
from tests.support.java_oracle import JavaOracle
from tests.support.pypaimon import Pypaimon

NewTable: TypeAlias = Callable[..., SharedTable]


@pytest.fixture
def new_table(java_oracle: JavaOracle, pypaimon: Pypaimon, tmp_path: Path) -> Iterator[NewTable]:
    """Makes the table, through Java: SQL has more types than Arrow. A second one needs another folder.

    In the end every reader that was said to be unable must have failed: so those lists stay true.
    """
    made: list[SharedTable] = []

    def create(
        columns: Sequence[Column],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        cannot: Mapping[Reader, str] | None = None,
        folder: str = "warehouse",
    ) -> SharedTable:
        declared = [{**column.declaration, "nullable": column.name not in primary_key} for column in columns]
        warehouse = tmp_path / folder
        java_oracle.create(
            warehouse, NAME, declared, primary_keys=primary_key, partition_keys=partition_by, options=options
        )
        model = NaiveTable([column.name for column in columns], primary_key)
        made.append(SharedTable(java_oracle, pypaimon, warehouse, model, cannot or {}))
        return made[-1]

    yield create
    for table in made:
        able = table.cannot.keys() - table.failed
        assert not able, f"{', '.join(able)} could read this table all the time: take it from the list"
