"""A table that Tidelake, Java and pypaimon share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
def new_table(java_oracle: JavaOracle, pypaimon: Pypaimon, tmp_path: Path) -> NewTable:
    """Makes the table, through Java: SQL has more types than Arrow. In a folder of its own when called again."""

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
        return SharedTable(java_oracle, pypaimon, warehouse, model, cannot or {})

    return create
