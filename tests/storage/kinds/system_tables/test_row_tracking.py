"""`$row_tracking` of tables of other writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import unpack_golden
from tidelake import col


def tracked(table_id: str, target: Path) -> tidelake.Table:
    warehouse = unpack_golden(table_id, target)
    return tidelake.open_catalog(str(warehouse)).table(f"golden.{table_id.split('/')[1]}$row_tracking")


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    return tracked("pypaimon/append_row_tracking", tmp_path)


def test_rows_have_their_id_and_the_snapshot_that_wrote_them(table: tidelake.Table) -> None:
    assert table.schema.names == [*table.context.schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
    found = table.scan(columns=["id", "_ROW_ID", "_SEQUENCE_NUMBER"]).to_arrow()
    assert found.to_pydict() == {"id": [1, 2, 3], "_ROW_ID": [0, 1, 2], "_SEQUENCE_NUMBER": [1, 1, 2]}
    assert not any(field.nullable for field in found.schema if field.name.startswith("_"))


@pytest.mark.parametrize(
    ("scan", "ids"),
    [
        pytest.param({"snapshot": 1}, [0, 1], id="of an older snapshot"),
        pytest.param({"filter": col("id") >= 2}, [1, 2], id="on a column of the table"),
        pytest.param({"filter": col("_ROW_ID") >= 1}, [1, 2], id="on the id"),
        pytest.param({"filter": (col("id") == 3) | (col("_ROW_ID") == 0)}, [0, 2], id="on either"),
        pytest.param({"filter": (col("id") < 3) & (col("_SEQUENCE_NUMBER") == 2)}, [], id="on both"),
    ],
)
def test_columns_of_the_row_tracking_table_can_be_selected(table: tidelake.Table, scan: Any, ids: list[int]) -> None:
    assert table.scan(columns=["_ROW_ID"], **scan).to_arrow().column(0).to_pylist() == ids


def test_rows_can_be_counted(table: tidelake.Table) -> None:
    assert table.scan(columns=[]).to_arrow().num_rows == 3


def test_rows_with_lost_ids_raise_instead_of_getting_other_ids(tmp_path: Path) -> None:
    table = tracked("java/row_tracking", tmp_path)  # a compaction that stored no ids: Java fails, too
    with pytest.raises(tidelake.CorruptFile, match="row ids"):
        table.scan().to_arrow()


def test_a_table_without_row_tracking_has_no_such_system_table(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    with pytest.raises(tidelake.BadInput, match=r"db.t\$row_tracking: .*row-tracking.enabled"):
        catalog.table("db.t$row_tracking")
