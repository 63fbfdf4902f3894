"""A filter finds its rows by its own columns, and other columns are decoded for these rows only. No row differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.columns import SCALARS, Column
from tests.storage.read.test_scan import simple_conditions
from tidelake.storage.files.formats import parquet_pages, parquet_writer
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.read import late_materialization, snapshot_reader
from tidelake.storage.read.predicate import And, Not, col
from tidelake.table import Table

_ROWS: Final = 2_000
_SLOW: Final = "deletion vectors"
KINDS: Final = {
    "an append table": {"bucket": "-1"},
    "a table with a key": {"bucket": "1"},
    _SLOW: {"bucket": "1", "deletion-vectors.enabled": "true"},
    "orc": {"bucket": "-1", "file.format": "orc"},
}


@pytest.fixture
def pages_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of wanted rows of the row groups that were read page by page."""
    found: list[int] = []
    original = parquet_pages.WantedPages.files

    def files(self: Any, source: Any) -> Any:
        found.append(int(self._wanted.sum()))
        return original(self, source)

    monkeypatch.setattr(parquet_pages.WantedPages, "files", files)
    monkeypatch.setattr(parquet_pages, "_ROWS_MIN", 1)
    monkeypatch.setattr(parquet_pages, "_BLOCK_ROWS", 1)
    monkeypatch.setattr(parquet_writer, "_PAGE_STEP_ROWS", 10)
    monkeypatch.setattr(late_materialization, "ROWS_MIN", 1)
    monkeypatch.setattr(late_materialization, "_BLOCK_ROWS", 1)
    monkeypatch.setattr("tidelake.storage.files.writer.ROW_GROUP_ROWS", 700)
    return found


def made(folder: Path, kind: str, columns: Sequence[Column]) -> Table:
    """A table of rows with all columns: each value comes now and then, most are null."""
    random = Random(kind)
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db")
    key = ["n"] if KINDS[kind]["bucket"] == "1" else []
    schema = pa.schema([pa.field("n", pa.int32(), not key), *(pa.field(c.name, c.arrow) for c in columns)])
    options = {**KINDS[kind], "parquet.page.size": "256", "write-only": "true"}
    table = catalog.create_table("db.t", schema, primary_key=key, options=options)
    file_format = KINDS[kind].get("file.format", "parquet")

    def values(column: Column) -> pa.Array:
        some = column.values_for(file_format)
        return pa.array([random.choice(some) if random.random() < 0.05 else None for _ in range(_ROWS)], column.arrow)

    rows = pa.table([pa.array(range(_ROWS), pa.int32()), *map(values, columns)], schema=schema)
    table.append(rows) if not key else table.upsert(rows)
    if key:
        table.compact(full=True)
        table.delete(col("n").is_in(range(0, _ROWS, 7)))
        table.compact(full=kind != _SLOW)
    return table


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", [*(kind for kind in KINDS if kind != _SLOW), pytest.param(_SLOW, marks=pytest.mark.interop)]
)
def test_rows_that_a_filter_finds_are_those_of_a_read_of_all_columns_at_once(
    kind: str, tmp_path: Path, pages_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_scan.py` compares the latter with conditions in Python."""
    random = Random(kind)
    table = made(tmp_path, kind, SCALARS)
    reads = []
    for column in SCALARS:
        condition = random.choice([ours for ours, _ in simple_conditions(column, random)])
        if random.random() < 0.5:
            condition = And((Not(condition), col("n") < random.randrange(_ROWS)))
        reads.append((["n", *random.sample([c.name for c in SCALARS], k=6)], condition))
    found = [repr(table.scan(columns=columns, filter=condition).to_arrow().to_pylist()) for columns, condition in reads]
    assert bool(pages_read) == (kind != "orc")
    monkeypatch.setattr(late_materialization, "ROWS_MIN", _ROWS + 1)
    for (columns, condition), rows in zip(reads, found, strict=True):
        assert rows == repr(table.scan(columns=columns, filter=condition).to_arrow().to_pylist()), condition


def texts(folder: Path) -> Table:
    """A table of numbers and long texts."""
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db")
    schema = pa.schema([("n", pa.int32()), ("word", pa.string()), ("t", pa.string())])
    table = catalog.create_table("db.t", schema, options={"bucket": "-1", "parquet.page.size": "256"})
    numbers = range(_ROWS)
    columns = [list(numbers), ["ac"[i % 2] for i in numbers], [f"text number {i} of {_ROWS}" for i in numbers]]
    table.append(pa.table(columns, schema=schema))
    return table


def test_columns_are_decoded_for_the_found_rows_only(tmp_path: Path, pages_read: list[int]) -> None:
    table = texts(tmp_path)
    assert table.scan(columns=["t"], filter=col("n") == 123).to_arrow()["t"].to_pylist() == ["text number 123 of 2000"]
    assert pages_read == [1]


def test_a_file_without_a_found_row_is_read_no_further(
    tmp_path: Path, pages_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = texts(tmp_path)
    read: list[list[str]] = []
    original = read_data_file

    def noted(*arguments: Any, **options: Any) -> Any:
        read.append([f.name for f in options["read_fields"]])
        return original(*arguments, **options)

    monkeypatch.setattr(snapshot_reader, "read_data_file", noted)
    assert table.scan(columns=["t"], filter=col("word") == "b").to_arrow().num_rows == 0  # bounds don't exclude it
    assert read == [["word", "_POSITION"]]


def test_a_search_that_finds_rows_everywhere_ends_early(
    tmp_path: Path, pages_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = texts(tmp_path)
    decoded: list[int] = []
    original = snapshot_reader.filtered

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        decoded.append(batch.num_rows)
        return batch

    def noted(context: Any, batches: Any, condition: Any) -> Any:
        return original(context, map(counted, batches), condition)

    monkeypatch.setattr(snapshot_reader, "filtered", noted)
    assert table.scan(columns=["t"], filter=col("n") >= 0).to_arrow().num_rows == _ROWS
    assert sum(decoded) < 2 * _ROWS
    assert pages_read == []
