"""Tables of Java whose columns are spread over several files: we read what Java reads, after columns were replaced,
renamed and dropped, for any projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tidelake.verification import inspect_table

NAME: Final = "db.t"
EVOLVING: Final = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
COLUMNS: Final = (
    {"name": "id", "type": "INT"},
    {"name": "v", "type": "STRING"},
    {"name": "w", "type": "INT"},
    {"name": "b", "type": "BLOB"},
)
CONDITIONS: Final = (
    [">", "w", 12],
    ["=", "v", "v-2-1"],
    ["is null", "v"],
    ["and", ["<", "id", 9], [">=", "w", 5]],
    ["in", "id", [1, 4, 100]],
)


def _value(random: Random, name: str, step: int, row: int) -> Any:
    if random.random() < 0.15:
        return None
    match name:
        case "b":
            return {"hex": random.randbytes(random.choice([0, 1, 40])).hex()}
        case "v":
            return f"v-{step}-{row % 3}"
        case _:
            return step * 5 + row


def _rows(random: Random, names: list[str], step: int, count: int) -> list[dict[str, Any]]:
    return [{name: _value(random, name, step, row) for name in names} for row in range(count)]


def life(java: JavaOracle, warehouse: Path, random: Random, options: Mapping[str, str]) -> None:
    """Appends, and columns written again for the rows of an earlier append; columns come, go and change their names."""
    java.create(warehouse, NAME, COLUMNS, options={**EVOLVING, **options})
    indexed = [name for name in options.get("file-index.bitmap.columns", "").split(",") if name]
    names, next_id, drawn = ["id", "v", "w", "b"], 0, 0
    ranges: list[tuple[int, int]] = []  # of row ids: the first, and how many
    for step in range(12):
        action = random.choice(["append", "replace", "replace", "alter"]) if ranges else "append"
        if action == "append":
            count = random.randint(1, 6)
            java.step(warehouse, NAME, {"op": "write", "rows": _rows(random, names, step, count)})
            ranges.append((next_id, count))
            next_id += count
        elif action == "replace":
            first, count = random.choice(ranges)
            plain = [name for name in names if name != "b"]
            chosen = random.sample(plain, random.randint(1, min(2, len(plain))))
            chosen = sorted({*chosen, *indexed})  # Java writes no file without a column that it shall index
            rows = _rows(random, chosen, step, count)
            java.step(warehouse, NAME, {"op": "write", "rows": rows, "columns": chosen, "firstRowId": first})
        else:
            drawn += 1
            change = random.choice(["add", "rename", "type"])
            extra = [name for name in names if name not in ("id", "v", "w", "b")]
            if change == "add" or not extra:
                java.alter(warehouse, NAME, {"add": {"name": f"z{drawn}", "type": "INT"}})
                names.append(f"z{drawn}")
            elif change == "rename":
                java.alter(warehouse, NAME, {"rename": {"name": extra[0], "to": f"r{drawn}"}})
                names[names.index(extra[0])] = f"r{drawn}"
            else:
                java.alter(warehouse, NAME, {"type": {"name": extra[0], "type": "BIGINT"}})


def condition(java: list[Any]) -> Any:
    """As the oracle spells it, for us."""
    operator, *rest = java
    if operator == "and":
        return condition(rest[0]) & condition(rest[1])
    column = tidelake.col(rest[0])
    match operator:
        case "is null":
            return column.is_null()
        case "in":
            return column.is_in(rest[1])
        case "=":
            return column == rest[1]
        case ">":
            return column > rest[1]
        case ">=":
            return column >= rest[1]
        case _:
            return column < rest[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("seed", "options"),
    [
        pytest.param(1, {}, id="Parquet"),
        pytest.param(2, {"file.format": "orc"}, id="ORC"),
        pytest.param(3, {"file.format": "avro"}, id="Avro"),
        pytest.param(4, {"file-index.bitmap.columns": "w"}, id="with indexes of columns that are replaced"),
        pytest.param(5, {"blob.target-file-size": "60 b"}, id="several blob files a data file"),
        pytest.param(6, {"metadata.stats-mode": "none"}, id="without statistics"),
    ],
)
def test_rows_with_replaced_columns_are_read_as_in_java(
    seed: int, options: Mapping[str, str], tmp_path: Path, java_oracle: JavaOracle
) -> None:
    life(java_oracle, tmp_path, Random(seed), options)
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    for snapshot in table.snapshots():
        expected = [list(row.values()) for row in java_oracle.read(tmp_path, NAME, snapshot=snapshot.id)]
        assert difference(table.scan(snapshot=snapshot.id).to_arrow(), expected) is None
        streamed = java_oracle.stream(tmp_path, NAME, start=snapshot.id, end=snapshot.id)
        ours = [batch.rows.drop_columns(["_VALUE_KIND"]) for batch in table.changes(start=snapshot.id, end=snapshot.id)]
        plain = [[value for name, value in row.items() if name[0] != "_"] for row in streamed]
        assert (difference(pa.Table.from_batches(ours), plain) if ours else plain or None) is None
    for java_condition in CONDITIONS:
        expected = [list(row.values()) for row in java_oracle.read(tmp_path, NAME, where=java_condition)]
        assert difference(table.scan(filter=condition(java_condition)).to_arrow(), expected) is None
    tracked = [list(row.values()) for row in java_oracle.system(tmp_path, NAME, "row_tracking")]
    names = [*table.schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
    assert difference(table.scan(columns=names).to_arrow(), tracked) is None
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []


def test_vectors_in_separate_files_are_read_as_in_java(tmp_path: Path, java_oracle: JavaOracle) -> None:
    vector = {"type": "VECTOR", "element": "FLOAT", "length": 2}
    kinds: dict[str, Any] = {"id": "INT", "e": vector, "b": "BLOB"}
    columns = [{"name": name, "type": kind} for name, kind in kinds.items()]
    options = {**EVOLVING, "vector.file.format": "parquet", "vector.target-file-size": "1 b"}
    java_oracle.create(tmp_path, NAME, columns, options=options)
    for start in (0, 5):
        rows = [{"id": start + i, "e": [i, -0.5] if i % 3 else None, "b": {"hex": f"0{i}"}} for i in range(5)]
        java_oracle.write(tmp_path, NAME, rows)
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    names = [file.file_name for split in table.scan().splits() for file in split.files]
    assert any(".vector." in name for name in names)
    expected = [list(row.values()) for row in java_oracle.read(tmp_path, NAME)]
    assert difference(table.scan().to_arrow(), expected) is None
    alone = [[row[1]] for row in expected]
    assert difference(table.scan(columns=["e"]).to_arrow(), alone) is None
