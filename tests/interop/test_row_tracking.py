"""`$row_tracking`: row ids and sequence numbers after Java's writes, deletes and compactions equal those that Java
reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

import tidelake
from tests.support.cases import unpack_golden
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused
from tidelake import col
from tidelake.verification import inspect_table

NAME: Final = "db.t"
COLUMNS: Final = [{"name": "id", "type": "INT"}, {"name": "p", "type": "STRING"}, {"name": "v", "type": "STRING"}]


def rows_of(warehouse: Path, **scan: Any) -> list[dict[str, Any]]:
    table = tidelake.open_catalog(str(warehouse)).table(f"{NAME}$row_tracking")
    rows: list[dict[str, Any]] = table.scan(**scan).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["_ROW_ID"])


def java_rows(java: JavaOracle, warehouse: Path, **options: str) -> list[dict[str, Any]]:
    named = {key.replace("_", "."): value for key, value in options.items()}
    found: list[dict[str, Any]] = java.system(warehouse, NAME, "row_tracking", options=named)
    return sorted(found, key=lambda row: row["_ROW_ID"])


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_rows_keep_their_ids_through_deletes_compactions_and_new_columns(
    file_format: str, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    options = {"row-tracking.enabled": "true", "deletion-vectors.enabled": "true", "file.format": file_format}
    java_oracle.create(tmp_path, NAME, COLUMNS, partition_keys=["p"], options=options)

    def write(*rows: tuple[int | str | None, ...]) -> None:
        java_oracle.write(tmp_path, NAME, [dict(zip(("id", "p", "v", "w"), row, strict=False)) for row in rows])

    def check() -> None:
        assert rows_of(tmp_path) == java_rows(java_oracle, tmp_path)

    write((1, "a", "x"), (2, "b", "y"), (3, "a", None))
    write((4, "a", "z"), (5, "b", "y"))
    check()
    java_oracle.delete(tmp_path, NAME, {"id": 3})
    check()
    java_oracle.compact(tmp_path, NAME, full=True)
    check()
    compacted = rows_of(tmp_path)
    assert sorted(row["id"] for row in compacted) == [1, 2, 4, 5]
    assert len({row["_ROW_ID"] for row in compacted}) == 4
    java_oracle.alter(tmp_path, NAME, {"add": {"name": "w", "type": "BIGINT"}})
    write((6, "b", "z", 60))
    check()
    assert rows_of(tmp_path, snapshot=1) == java_rows(java_oracle, tmp_path, **{"scan_snapshot-id": "1"})


def test_row_ids_in_avro_files_are_read_where_java_fails(java_oracle: JavaOracle, tmp_path: Path) -> None:
    options = {"row-tracking.enabled": "true", "file.format": "avro"}
    java_oracle.create(tmp_path, NAME, COLUMNS, options=options)
    for ids in ([1, 2], [3]):
        java_oracle.write(tmp_path, NAME, [{"id": number, "p": "a", "v": "x"} for number in ids])
    with pytest.raises(Refused, match="ArrayIndexOutOfBounds"):
        java_rows(java_oracle, tmp_path)
    found = [(row["id"], row["_ROW_ID"], row["_SEQUENCE_NUMBER"]) for row in rows_of(tmp_path)]
    assert found == [(1, 0, 1), (2, 1, 1), (3, 2, 2)]


def test_the_table_that_java_compacted_is_read_with_its_statistics(java_oracle: JavaOracle, tmp_path: Path) -> None:
    """The manifest entry of such a file names columns that the table doesn't have."""
    java_oracle.create(tmp_path, NAME, COLUMNS, options={"row-tracking.enabled": "true"})
    for number in (1, 2):
        java_oracle.write(tmp_path, NAME, [{"id": number, "p": "a", "v": "x"}])
    java_oracle.compact(tmp_path, NAME, full=True)
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    assert table.scan(filter=col("id") == 2).to_arrow().to_pylist() == [{"id": 2, "p": "a", "v": "x"}]
    assert table.scan(filter=col("id") == 3).splits() == []
    assert rows_of(tmp_path, filter=(col("id") == 2) & (col("_ROW_ID") == 1))[0]["_SEQUENCE_NUMBER"] == 2
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []


@pytest.mark.parametrize(
    "table_id", ["java/data_evolution", "pypaimon/append_row_tracking", "pypaimon/append_data_evolution"]
)
def test_golden_tables_have_the_ids_that_java_reads(table_id: str, java_oracle: JavaOracle, tmp_path: Path) -> None:
    warehouse = unpack_golden(table_id, tmp_path)
    name = f"golden.{table_id.split('/')[1]}"
    rows = tidelake.open_catalog(str(warehouse)).table(f"{name}$row_tracking").scan().to_arrow().to_pylist()
    assert sorted(rows, key=str) == sorted(java_oracle.system(warehouse, name, "row_tracking"), key=str)
