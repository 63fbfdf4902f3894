"""Bounds from manifests under the current schema: they include every row, or are unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.files.samples import table_schema
from tests.storage.files.test_writer import bucket, context_of
from tests.support.cases import GOLDEN_DATABASE, golden_table, golden_tables
from tidelake.errors import CorruptFile
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.files.statistics import key_bounds, value_bounds
from tidelake.storage.files.stats_collection import ColumnBounds
from tidelake.storage.files.writer import RollingFileWriter, file_fields
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema, parse_type


@pytest.mark.parametrize(
    "table_id",
    [
        t.id
        for t in golden_tables()
        if any(word in t.name for word in ("types_", "schema_evolution", "stats", "pk_d", "append_", "partition"))
        and not any(word in t.name for word in ("blob", "data_evolution"))
    ],
)
def test_bounds_of_other_writers_include_all_rows_of_their_files(table_id: str, tmp_path: Path) -> None:
    table = golden_table(table_id)
    location = str(table.unpack(tmp_path) / f"{GOLDEN_DATABASE}.db" / table.name)
    context = TableContext.open(LocalFileIO(), location, table.name)
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    entries = [e for e in live_entries(context, snapshot) if not e.file.file_name.endswith(".blob")]
    files = [e.file for e in entries]
    bounds = value_bounds(context, files)
    for f in context.schema.fields:
        known = bounds(f.name)
        assert known.row_count.to_pylist() == [file.row_count for file in files]
        for number, entry in enumerate(entries):
            path = data_file_path(bucket_directory(context, entry.partition, entry.bucket), entry.file)
            rows = pa.Table.from_batches(read_data_file(context, entry.file, path, [f]), arrow_schema([f]))
            assert holds(known, number, rows.column(0)), (f.name, entry.file.file_name)


def holds(known: ColumnBounds, number: int, values: pa.ChunkedArray) -> bool:
    low, high, nulls = (of[number] for of in (known.minimum, known.maximum, known.null_count))
    if nulls.is_valid and nulls.as_py() != values.null_count:
        return False
    if pa.types.is_floating(values.type):
        values = values.filter(pa.compute.invert(pa.compute.fill_null(pa.compute.is_nan(values), False)))
    lower = not low.is_valid or pa.compute.all(pa.compute.greater_equal(values, low)).as_py()
    upper = not high.is_valid or pa.compute.all(pa.compute.less_equal(values, high)).as_py()
    return bool(lower and upper)


def written(context: TableContext, columns: Mapping[str, Sequence[Any]]) -> DataFileMeta:
    """A file with these values; for a key, columns it lacks are made up."""
    rows = len(next(iter(columns.values())))
    keys = {f"_KEY_{name}": columns[name] for name in context.schema.trimmed_primary_keys}
    values = {**columns, **keys, "_SEQUENCE_NUMBER": range(rows), "_VALUE_KIND": [0] * rows}
    schema = arrow_schema(file_fields(context))
    arrays = [pa.array(values[f.name], f.type) for f in schema]
    writer = RollingFileWriter(context, bucket(context))
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema), first_sequence_number=0)
    (file,) = writer.close()
    return file


def spelled(known: ColumnBounds) -> list[tuple[Any, ...]]:
    return list(zip(*(of.to_pylist() for of in (known.minimum, known.maximum, known.null_count)), strict=True))


def evolved(context: TableContext, columns: dict[str, tuple[int, str]]) -> TableContext:
    """The same table under a newer schema: name -> (id, type)."""
    fields = tuple(DataField(i, name, parse_type(text)) for name, (i, text) in columns.items())
    old = context.schema
    schema = TableSchema(old.id + 1, fields, 99, old.partition_keys, old.primary_keys, old.options)
    for version in (old, schema):
        context.schemas.publish(version)
    return context.with_schema(schema)


def test_columns_are_matched_by_id_and_newer_ones_are_all_null(tmp_path: Path) -> None:
    old = context_of(tmp_path, table_schema({"a": "INT", "b": "STRING", "gone": "INT"}))
    new = evolved(old, {"b": (9, "INT"), "renamed": (0, "INT"), "b2": (1, "STRING")})
    files = [written(old, {"a": [3, 1, None], "b": ["x", "y", "z"], "gone": [1, 1, 1]})]
    files += [written(new, {"b": [7], "renamed": [8], "b2": [None]}), files[0]]
    bounds = value_bounds(new, files)
    assert spelled(bounds("renamed")) == [(1, 3, 1), (8, 8, 0), (1, 3, 1)]
    assert spelled(bounds("b2")) == [("x", "z", 0), (None, None, 1), ("x", "z", 0)]
    assert spelled(bounds("b")) == [(None, None, 3), (7, 7, 0), (None, None, 3)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("INT", "BIGINT", (1, 30, 0), id="a wider integer"),
        pytest.param("INT", "TINYINT", (None, None, 0), id="one that may wrap"),
        pytest.param("INT", "STRING", (None, None, 0), id="a text, which sorts in another way"),
        pytest.param("INT", "DOUBLE", (1.0, 30.0, 0), id="a double"),
    ],
)
def test_bounds_follow_an_order_preserving_type_change(
    old: str, new: str, expected: tuple[Any, ...], tmp_path: Path
) -> None:
    before = context_of(tmp_path, table_schema({"a": old}))
    after = evolved(before, {"a": (0, new)})
    assert spelled(value_bounds(after, [written(before, {"a": [30, 1, 4]})])("a")) == [expected]


def test_dropped_and_dense_statistics_are_unknown(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT", "b": "INT"}))
    sparse = context_of(tmp_path, table_schema({"a": "INT", "b": "INT"}, options={"fields.a.stats-mode": "none"}))
    values = {"a": [1, 2], "b": [3, 4]}
    files = [
        written(context, values),
        written(sparse, values),
        replace(written(context, values), value_stats=EMPTY_STATS),
    ]
    assert files[1].value_stats_columns == ("b",)
    bounds = value_bounds(context, files)
    assert spelled(bounds("a")) == [(1, 2, 0), (None, None, None), (None, None, None)]
    assert spelled(bounds("b")) == [(3, 4, 0), (3, 4, 0), (None, None, None)]


def test_nan_bounds_are_treated_as_unknown(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "DOUBLE"}))
    file = written(context, {"a": [1.0, float("nan"), 2.0]})
    assert spelled(value_bounds(context, [file])("a")) == [(1.0, None, 0)]


def test_a_maximum_truncated_by_java_within_a_character_is_above_its_rows(tmp_path: Path) -> None:
    """U+D7FF counted up is half of a surrogate pair, and becomes a question mark."""
    context = context_of(tmp_path, table_schema({"s": "STRING"}))
    cut, row = "x" * 15 + "?", "x" * 15 + "\ud7ff and more"
    file = written(context, {"s": [cut]})
    bounds = value_bounds(context, [file])("s")
    assert bounds.maximum[0].as_py() >= row


def test_no_files_have_no_bounds(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}, primary_keys=["a"]))
    for bounds in (value_bounds(context, []), key_bounds(context, [])):
        assert spelled(bounds("a")) == []


def test_broken_statistics_name_the_file(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT", "b": "INT"}))
    file = written(context, {"a": [1], "b": [2]})
    broken = replace(file, value_stats=replace(file.value_stats, min_values=b"\0\0\0\x02\0\0"))
    with pytest.raises(CorruptFile, match=file.file_name):
        value_bounds(context, [broken])("a")


def test_key_bounds_do_not_depend_on_value_statistics(tmp_path: Path) -> None:
    options = {"metadata.stats-mode": "none"}
    schema = table_schema({"v": "INT", "k2": "INT", "k1": "STRING"}, primary_keys=["k1", "k2"], options=options)
    context = context_of(tmp_path, schema)
    long = "x" * 300
    files = [
        written(context, {"v": [0, 0], "k2": [9, 1], "k1": ["a", long]}),
        written(context, {"v": [0], "k2": [5], "k1": ["b"]}),
    ]
    bounds = key_bounds(context, files)
    assert spelled(bounds("k1")) == [("a", long, 0), ("b", "b", 0)]
    assert spelled(bounds("k2")) == [(1, 9, 0), (5, 5, 0)]
    without = [replace(files[0], key_stats=EMPTY_STATS)]
    assert spelled(key_bounds(context, without)("k1")) == [("a", long, None)]
    assert spelled(key_bounds(context, without)("k2")) == [(None, None, None)]
    assert files[0].min_key != EMPTY_ROW
