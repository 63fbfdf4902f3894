"""Our tables with row ids: Java and pypaimon read our rows, ids and blobs, and continue to write."""

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
from tests.support.pypaimon import Pypaimon
from tidelake.storage.model.types import DataField, parse_type
from tidelake.verification import inspect_table

NAME: Final = "db.t"
TRACKING: Final = {"row-tracking.enabled": "true"}
EVOLVING: Final = {**TRACKING, "data-evolution.enabled": "true"}


def rows(random: Random, start: int, count: int, *, blobs: bool) -> pa.Table:
    columns = {
        "id": pa.array(range(start, start + count), pa.int32()),
        "v": pa.array([None if random.random() < 0.2 else f"v{start + i}" for i in range(count)], pa.string()),
    }
    if blobs:
        sizes = [random.choice([0, 1, 30]) for _ in range(count)]
        columns["b"] = pa.array([None if size == 1 else random.randbytes(size) for size in sizes], pa.binary())
    return pa.table(columns)


def append(table: tidelake.Table, data: pa.Table) -> None:
    with table.writer() as writer:
        writer.write(data)
        writer.commit()


def blob_files(table: tidelake.Table) -> list[int]:
    """For each data file: how many files have the blobs of its rows."""
    files = [file for split in table.scan().splits() for file in split.files]
    first_rows = [file.first_row_id or 0 for file in files if file.file_name.endswith(".blob")]
    return [
        sum((file.first_row_id or 0) <= row < (file.first_row_id or 0) + file.row_count for row in first_rows)
        for file in files
        if not file.file_name.endswith(".blob")
    ]


def java_rows(answer: list[dict[str, Any]]) -> list[list[Any]]:
    return [list(row.values()) for row in answer]


@pytest.mark.parametrize(
    ("options", "blobs"),
    [
        pytest.param(TRACKING, False, id="row tracking"),
        pytest.param({**EVOLVING, "target-file-row-num": "7", "blob.target-file-size": "70 b"}, True, id="blobs"),
        pytest.param(EVOLVING, False, id="data evolution"),
    ],
)
def test_our_row_ids_and_blobs_are_read_by_java_and_pypaimon(
    options: Mapping[str, str], blobs: bool, tmp_path: Path, java_oracle: JavaOracle, pypaimon: Pypaimon
) -> None:
    random = Random(5)
    kinds = {"id": "INT", "v": "STRING", **({"b": "BLOB"} if blobs else {})}
    columns = [DataField(number, name, parse_type(kind)) for number, (name, kind) in enumerate(kinds.items())]
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(NAME, columns, options=options)
    written = []
    for start, count in ((0, 20), (20, 1), (21, 9)):
        written.append(rows(random, start, count, blobs=blobs))
        append(table, written[-1])
    java_oracle.write(tmp_path, NAME, [{"id": 30, "v": "java", **({"b": {"hex": "00ff"}} if blobs else {})}])
    written.append(rows(random, 31, 3, blobs=blobs))
    append(table, written[-1])
    by_java = pa.table({"id": pa.array([30], pa.int32()), "v": ["java"], **({"b": [b"\0\xff"]} if blobs else {})})
    every = pa.concat_tables([*written[:3], by_java, written[3]])
    expected = java_rows(java_oracle.read(tmp_path, NAME))
    assert difference(every, expected) is None
    assert difference(table.scan().to_arrow(), expected) is None
    tracked = java_rows(java_oracle.system(tmp_path, NAME, "row_tracking"))
    names = [*table.schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
    found = table.scan(columns=names).to_arrow().sort_by("id")
    assert difference(found, tracked) is None
    assert found.column("_ROW_ID").to_pylist() == list(range(34))
    assert found.column("_SEQUENCE_NUMBER").to_pylist() == [1] * 20 + [2] + [3] * 9 + [4] + [5] * 3
    theirs = pypaimon.read(tmp_path, NAME).select(every.column_names).cast(every.schema).sort_by("id")
    assert theirs.equals(every)
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []
    if blobs:
        assert max(blob_files(table)) > 1, "70 bytes are less than 7 rows"


@pytest.mark.parametrize(
    "updates",
    [
        pytest.param([{0: b"x"}], id="one row"),
        pytest.param([{0: None}], id="a null"),
        pytest.param([{0: b"x", 1: None, 2: b""}], id="every row"),
        pytest.param([{1: b"x"}, {2: b"y"}, {1: b"z", 0: None}], id="one after the other"),
    ],
)
def test_java_reads_a_blob_column_that_was_added_to_existing_rows(
    updates: list[dict[int, bytes | None]], tmp_path: Path, java_oracle: JavaOracle
) -> None:
    """Rows without a value have an entry in the first file: nothing older could be referred to."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(NAME, pa.schema([("id", pa.int32())]), options=EVOLVING)
    append(table, pa.table({"id": pa.array([0, 1, 2], pa.int32())}))
    table = catalog.alter_table(NAME, [tidelake.AddColumn("b", "BLOB")])
    values: dict[int, bytes | None] = {0: None, 1: None, 2: None}
    for update in updates:
        table.update_columns(pa.table({"_ROW_ID": list(update), "b": pa.array(update.values(), pa.binary())}))
        values |= update
        expected = pa.table({"id": pa.array(values.keys(), pa.int32()), "b": pa.array(values.values(), pa.binary())})
        assert table.scan().to_arrow().sort_by("id").equals(expected)
        assert difference(expected, java_rows(java_oracle.read(tmp_path, NAME))) is None


def test_rewritten_columns_and_deleted_rows_are_visible_to_java_and_pypaimon(
    tmp_path: Path, java_oracle: JavaOracle, pypaimon: Pypaimon
) -> None:
    """Against a model: a row is what was written last of each of its columns."""
    random = Random(11)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    kinds = {"id": "INT", "v": "STRING", "b": "BLOB"}
    columns = [DataField(number, name, parse_type(kind)) for number, (name, kind) in enumerate(kinds.items())]
    options = {**EVOLVING, "deletion-vectors.enabled": "true", "blob.target-file-size": "90 b"}
    catalog.create_table(NAME, columns, options=options)
    model: dict[int, dict[str, Any]] = {}
    written = 0
    for step in range(14):
        table = catalog.table(NAME)
        match random.choice(["append", "update", "update", "update", "delete", "java"]) if step > 1 else "append":
            case "append":
                count = random.randint(1, 12)
                data = rows(random, written, count, blobs=True)
                append(table, data)
                model |= {written + i: {"w": None, **row} for i, row in enumerate(data.to_pylist())}
                written += count
            case "update":
                if step > 5 and "w" not in table.schema.names:
                    catalog.alter_table(NAME, [tidelake.AddColumn("w", "BIGINT")])
                    table = catalog.table(NAME)
                names = random.sample([name for name in table.schema.names if name != "id"], 2)
                ids = random.sample(sorted(model), random.randint(1, len(model)))
                found = {"_ROW_ID": pa.array(ids, pa.int64())}
                for name in names:
                    kind = table.schema.field(name).type
                    found[name] = pa.array([_new(random, name, step) for _ in ids], kind)
                table.update_columns(pa.table(found))
                for row in pa.table(found).to_pylist():
                    model[row.pop("_ROW_ID")] |= row
            case "delete" if model:
                gone = random.sample(sorted(model), min(3, len(model)))
                table.delete(tidelake.col("id").is_in([model[number]["id"] for number in gone]))
                for number in gone:
                    del model[number]
            case _:
                java_oracle.write(tmp_path, NAME, [{"id": written, "v": "java", "b": {"hex": "0a"}}])
                model[written] = {"w": None, "id": written, "v": "java", "b": b"\n"}
                written += 1
    table = catalog.table(NAME)
    names = list(table.schema.names)
    every = pa.Table.from_pylist([{name: row[name] for name in names} for row in model.values()], table.schema)
    found = table.scan(columns=["_ROW_ID"]).to_arrow()
    assert sorted(found.column("_ROW_ID").to_pylist()) == sorted(model)
    expected = java_rows(java_oracle.read(tmp_path, NAME))
    assert difference(table.scan().to_arrow(), expected) is None
    assert difference(every, expected) is None
    theirs = pypaimon.read(tmp_path, NAME).select(names).cast(every.schema)
    assert theirs.sort_by("id").equals(every.sort_by("id"))
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []


@pytest.mark.parametrize("file_format", ["parquet", "orc"])  # of Avro files Java 2.0.0 reads no row ids
@pytest.mark.parametrize("order_by", [(), ("v",)], ids=["joined", "sorted"])
def test_rows_keep_their_ids_when_we_compact(
    order_by: tuple[str, ...], file_format: str, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    random = Random(2)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    columns = [DataField(0, "id", parse_type("INT")), DataField(1, "v", parse_type("STRING"))]
    options = {**TRACKING, "deletion-vectors.enabled": "true", "file.format": file_format}
    table = catalog.create_table(NAME, columns, options=options)
    for start in (0, 10, 20):
        append(table, rows(random, start, 10, blobs=False))
    table.delete(tidelake.col("id").is_in([3, 12, 13]))
    tracked = catalog.table(f"{NAME}$row_tracking")
    before = tracked.scan().to_arrow().sort_by("id")
    table.compact(full=True, order_by=order_by)
    assert tracked.scan().to_arrow().sort_by("id").equals(before)
    assert not any(split.deletion_files for split in table.scan().splits()), "deleted rows are gone for good"
    java_oracle.write(tmp_path, NAME, [{"id": 30, "v": "java"}])
    append(table, rows(random, 31, 2, blobs=False))
    table.compact(full=True)
    found = tracked.scan().to_arrow().sort_by("id")
    assert difference(found, java_rows(java_oracle.system(tmp_path, NAME, "row_tracking"))) is None
    assert found.slice(0, 27).equals(before)
    assert found.slice(27).column("_ROW_ID").to_pylist() == [30, 31, 32]
    assert found.slice(27).column("_SEQUENCE_NUMBER").to_pylist() == [6, 7, 7]
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []


def _new(random: Random, name: str, step: int) -> Any:
    if random.random() < 0.2:
        return None
    match name:
        case "b":
            return random.randbytes(random.choice([0, 5, 50]))
        case "v":
            return f"new-{step}-{random.randint(0, 9)}"
        case _:
            return step
