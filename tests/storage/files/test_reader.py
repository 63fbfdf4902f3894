"""A file of an older schema, read with the current schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.storage.files.samples import FORMATS, table_schema
from tests.storage.files.test_statistics import evolved, written
from tests.storage.files.test_writer import bucket, context_of
from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.schema.table_schema import KIND_FIELD, POSITION_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.read.predicate import Predicate, col


def rows(
    context: TableContext, file: DataFileMeta, fields: Sequence[DataField], **options: Any
) -> dict[str, list[Any]]:
    batches = list(read_data_file(context, file, f"{bucket(context)}/{file.file_name}", fields, **options))
    found: dict[str, list[Any]] = pa.Table.from_batches(batches).to_pydict()
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_is_read_under_a_later_schema(name: str, tmp_path: Path) -> None:
    """Renamed, dropped, added again under the old name, widened, turned into text, moved."""
    old = context_of(
        tmp_path,
        table_schema({"a": "INT", "b": "STRING", "c": "FLOAT", "d": "DECIMAL(6, 2)"}, options={"file.format": name}),
    )
    file = written(old, {"a": [1, None], "b": ["x", "y"], "c": [0.5, 1.5], "d": [1, 2]})
    new = evolved(old, {"d": (3, "DECIMAL(12, 4)"), "b": (4, "INT"), "a": (0, "STRING"), "bb": (1, "STRING")})
    found = rows(new, file, new.schema.fields)
    assert {name: [None if v is None else str(v) for v in values] for name, values in found.items()} == {
        "d": ["1.0000", "2.0000"],
        "b": [None, None],
        "a": ["1", None],
        "bb": ["x", "y"],
    }


@pytest.mark.parametrize(
    ("narrow", "wide", "fitting", "large"),
    [
        ("SMALLINT", "INT", 7, 40_000),
        ("INT", "BIGINT", -7, 1 << 31),
        ("FLOAT", "DOUBLE", 0.5, 0.1),
        ("DECIMAL(4, 2)", "DECIMAL(6, 2)", 7, 700),
        ("INT", "DOUBLE", 7, 7.5),
    ],
)
def test_a_reader_from_before_a_column_was_widened_gets_no_value_that_does_not_fit(
    tmp_path: Path, narrow: str, wide: str, fitting: float, large: float
) -> None:
    """A follower reads with the schema of its start. Integers of Java's readers wrap here."""
    old = context_of(tmp_path, table_schema({"a": narrow}))
    new = evolved(old, {"a": (0, wide)})
    same = rows(old, written(new, {"a": [fitting, None]}), old.schema.fields)["a"]
    assert same == [fitting, None]
    with pytest.raises(BadInput, match=r"column 'a' was .* when the table was opened, .* Open the table again"):
        rows(old, written(new, {"a": [fitting, large]}), old.schema.fields)


@pytest.mark.parametrize("name", FORMATS)
def test_nested_fields_are_mapped_by_id_inside_lists_and_maps(name: str, tmp_path: Path) -> None:
    old_type = "ARRAY<ROW<x INT, y STRING>>"
    old = context_of(tmp_path, table_schema({"a": old_type}, options={"file.format": name}))
    file = written(old, {"a": [[{"x": 1, "y": "t"}, None], None, []]})
    new = evolved(old, {"a": (0, "ARRAY<ROW<x2 BIGINT, y STRING, z INT>>")})
    assert rows(new, file, new.schema.fields)["a"] == [[{"x2": 1, "y": "t", "z": None}, None], None, []]


@pytest.mark.parametrize("name", FORMATS)
def test_keys_are_read_from_their_columns_and_system_columns_as_stored(name: str, tmp_path: Path) -> None:
    for thin in ("false", "true"):
        options = {"file.format": name, "data-file.thin-mode": thin}
        context = context_of(tmp_path, table_schema({"v": "INT", "k": "INT"}, primary_keys=["k"], options=options))
        file = written(context, {"v": [7, 8], "k": [1, 2]})
        fields = [*context.schema.key_fields, KIND_FIELD, SEQUENCE_FIELD, *context.schema.fields]
        assert rows(context, file, fields) == {
            "_KEY_k": [1, 2],
            "_VALUE_KIND": [0, 0],
            "_SEQUENCE_NUMBER": [0, 1],
            "v": [7, 8],
            "k": [1, 2],
        }


def test_partition_values_come_from_the_manifest_not_from_the_file(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"p": "STRING", "a": "INT"}, partition_keys=["p"]))
    file = written(context, {"p": ["in the file"] * 2, "a": [1, 2]})
    types = [f.type for f in context.schema.partition_fields]
    for value in ("in the manifest", None):
        partition = serialize_row([value], types)
        assert rows(context, file, context.schema.fields, partition=partition) == {"p": [value] * 2, "a": [1, 2]}
        assert rows(context, file, context.schema.partition_fields, partition=partition) == {"p": [value] * 2}
    assert rows(context, file, context.schema.fields)["p"] == ["in the file"] * 2


def test_missing_columns_are_null_and_rows_are_counted_without_columns(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT", "b": "INT"}))
    file = replace(written(context, {"a": [1, 2, 3], "b": [4, 5, 6]}), write_columns=("a",))
    assert rows(context, file, context.schema.fields) == {"a": [1, 2, 3], "b": [None] * 3}
    path = f"{bucket(context)}/{file.file_name}"
    assert [b.num_rows for b in read_data_file(context, file, path, [], batch_rows=2)] == [2, 1]


@pytest.mark.parametrize("name", FORMATS)
def test_batches_are_cut_by_bytes_even_if_few_rows_hold_most(name: str, tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "STRING"}, options={"file.format": name}))
    texts = ["small"] * 1000 + ["large" * 1000] * 20 + ["huge" * 10_000]
    file = written(context, {"a": texts})
    path = f"{bucket(context)}/{file.file_name}"
    batches = list(read_data_file(context, file, path, context.schema.fields, batch_bytes=20_000))
    assert [text for batch in batches for text in batch.column("a").to_pylist()] == texts
    assert all(batch.nbytes <= 20_000 or batch.num_rows == 1 for batch in batches)


def test_default_values_are_not_filled_in(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}))
    file = written(context, {"a": [None]})
    with_default = context.with_schema(
        replace(context.schema, fields=(replace(context.schema.fields[0], default="5"),))
    )
    assert rows(with_default, file, with_default.schema.fields) == {"a": [None]}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param(col("a") == 2500, (2000, 3000), id="one row group"),
        pytest.param(col("a") < 1500, (0, 2000), id="the first two"),
        pytest.param((col("a") > 8500) & (col("t") >= "0"), (8000, 10000), id="the last two, by both columns"),
        pytest.param(col("t").is_null(), None, id="no nulls: nothing"),
        pytest.param(col("a") != 5, (0, 10000), id="it can't tell"),
        pytest.param(col("changed") == 5, (0, 10000), id="a column of another type since"),
        pytest.param(col("new") == 5, (0, 10000), id="a column that is newer"),
    ],
)
def test_row_groups_without_a_matching_row_are_left_out(
    condition: Predicate, expected: tuple[int, int] | None, tmp_path: Path
) -> None:
    options = {"file.block-size": "1 b"}
    columns = {"a": "INT", "t": "STRING", "changed": "INT"}
    old = context_of(tmp_path, table_schema(columns, options=options))
    writer = RollingFileWriter(old, bucket(old))
    for start in range(0, 10_000, 1000):
        ids = range(start, start + 1000)
        values = {"a": ids, "t": [str(i) for i in ids], "changed": ids}
        writer.write(pa.RecordBatch.from_pydict(values, old.schema.arrow), first_sequence_number=start)
    (file,) = writer.close()
    new = evolved(old, {"a": (0, "INT"), "t": (1, "STRING"), "changed": (2, "STRING"), "new": (8, "INT")})
    if "changed" in condition.columns:
        condition = col("changed") == "5"
    path = f"{bucket(new)}/{file.file_name}"
    batches = list(read_data_file(new, file, path, new.schema.fields, predicate=condition))
    found = [i for batch in batches for i in batch.column("a").to_pylist()]
    assert found == ([] if expected is None else list(range(*expected)))


# ---------------------------------------------------------------- what can't be read


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_shorter_than_its_manifest_says_is_corrupt_with_the_offset(name: str, tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}, options={"file.format": name}))
    file = written(context, {"a": list(range(1000))})
    path = Path(bucket(context)) / file.file_name
    path.write_bytes(path.read_bytes()[: file.file_size // 2])
    with pytest.raises(CorruptFile) as error:
        rows(context, file, context.schema.fields)
    assert (error.value.path, error.value.offset) == (str(path), file.file_size // 2)
    assert str(file.file_size) in error.value.expected


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("found", [999, 1001], ids=["fewer", "more"])
def test_a_file_with_other_rows_than_its_manifest_says_is_corrupt(name: str, found: int, tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}, options={"file.format": name}))
    file = replace(written(context, {"a": list(range(found))}), row_count=1000)
    for fields in (context.schema.fields, ()):
        with pytest.raises(CorruptFile, match=f"expected 1000 rows, as its manifest says, found {found}"):
            rows(context, file, fields)
    path = f"{bucket(context)}/{file.file_name}"
    with pytest.raises(CorruptFile, match=f"found {found}"):  # also where parts of it are left out
        list(read_data_file(context, file, path, context.schema.fields, predicate=col("a") < -1))


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}))
    file = written(context, {"a": [1]})
    (Path(bucket(context)) / file.file_name).unlink()
    with pytest.raises(CorruptFile, match="has the snapshot expired"):
        rows(context, file, context.schema.fields)


def test_a_missing_schema_version_is_corrupt(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}))
    file = replace(written(context, {"a": [1]}), schema_id=17)
    with pytest.raises(CorruptFile, match="schema version 17"):
        rows(context, file, context.schema.fields)


@pytest.mark.parametrize("name", ["data-1-0.csv", "data-1-0.zst.lance"])
def test_unsupported_formats_are_refused_by_name(name: str, tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}))
    file = replace(written(context, {"a": [1]}), file_name=name)
    with pytest.raises(UnsupportedFeature, match=f"data files in {name.rpartition('.')[2]}"):
        rows(context, file, context.schema.fields)


@pytest.mark.parametrize("condition", [None, col("a") == 2500, (col("a") < 1500) | (col("a") >= 9000)])
@pytest.mark.parametrize("name", FORMATS)
def test_deleted_rows_are_left_out_by_their_position_in_the_file(
    name: str, condition: Predicate | None, tmp_path: Path
) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}, options={"file.format": name, "file.block-size": "1 b"}))
    writer = RollingFileWriter(context, bucket(context))
    for start in range(0, 10_000, 1000):
        rows_of_group = pa.RecordBatch.from_pydict({"a": range(start, start + 1000)}, context.schema.arrow)
        writer.write(rows_of_group, first_sequence_number=start)
    (file,) = writer.close()
    deleted = np.array([0, 1, 999, 1000, 2500, 9_999, *range(3000, 5000)])
    path = f"{bucket(context)}/{file.file_name}"
    fields = [*context.schema.fields, POSITION_FIELD]
    whole = read_data_file(context, file, path, context.schema.fields, predicate=condition)
    kept = set(range(10_000)) - set(deleted.tolist())
    expected = [a for batch in whole for a in batch.column("a").to_pylist() if a in kept]
    found = list(read_data_file(context, file, path, fields, predicate=condition, deleted=deleted))
    assert [a for batch in found for a in batch.column("a").to_pylist()] == expected
    assert [i for batch in found for i in batch.column("_POSITION").to_pylist()] == expected


def test_a_deletion_vector_beyond_the_end_of_the_file_is_corrupt(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}))
    file = written(context, {"a": [1, 2]})
    with pytest.raises(CorruptFile, match=r"deleted rows among 2.*position 2"):
        rows(context, file, context.schema.fields, deleted=np.array([2]))


def test_a_file_with_all_rows_deleted_returns_none(tmp_path: Path) -> None:
    context = context_of(tmp_path, table_schema({"a": "INT"}))
    file = written(context, {"a": [1, 2]})
    path = f"{bucket(context)}/{file.file_name}"
    assert list(read_data_file(context, file, path, context.schema.fields, deleted=np.array([0, 1]))) == []
