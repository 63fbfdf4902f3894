"""Which files are read together, and which of them contains a column."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelake.errors import CorruptFile
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import INT, AtomicType, DataField, Root
from tidelake.storage.read.evolution.row_id_groups import anchor_of, column_sources, ordinary_files, row_id_groups

FIELDS = (
    DataField(0, "a", INT),
    DataField(1, "v", INT),
    DataField(2, "b", AtomicType(Root.BLOB)),
    DataField(3, "new", INT),
)
OPTIONS = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
CONTEXT = TableContext(LocalFileIO(), "/t", "db.t", TableSchema(0, FIELDS, 3, options=OPTIONS), TableOptions(OPTIONS))


def file(name: str, first: int | None, rows: int, sequence: int, *columns: str) -> DataFileMeta:
    return DataFileMeta(
        name, 1, rows, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, sequence, sequence, 0, 0,
        first_row_id=first, write_columns=columns or ("a", "v"),
    )  # fmt: skip


OLD = file("old.parquet", 0, 10, 1)
NEW_V = file("v.parquet", 0, 10, 5, "v")
BLOB_1 = file("b-1.blob", 0, 6, 1, "b")
BLOB_2 = file("b-2.blob", 6, 4, 1, "b")
NEXT = file("next.parquet", 10, 5, 2)


def test_files_with_overlapping_row_ids_form_a_group() -> None:
    groups = row_id_groups([NEXT, BLOB_2, OLD, NEW_V, BLOB_1])
    assert groups == [[BLOB_2, OLD, NEW_V, BLOB_1], [NEXT]]


def test_a_column_is_read_from_the_newest_file_that_contains_it() -> None:
    sources = column_sources(CONTEXT, [OLD, NEW_V, BLOB_1, BLOB_2], FIELDS)
    found = {tuple(f.file_name for f in source.files): [f.name for f in source.fields] for source in sources}
    assert found == {("v.parquet",): ["v"], ("old.parquet",): ["a"], ("b-1.blob", "b-2.blob"): ["b"]}


def test_rows_are_counted_if_no_file_contains_the_columns() -> None:
    (source,) = column_sources(CONTEXT, [OLD, NEW_V], [FIELDS[3]])
    assert (len(source.files), source.fields) == (1, ())


def test_deletion_vectors_refer_to_the_oldest_ordinary_file() -> None:
    tied = replace(OLD, file_name="a-first-name.parquet")
    assert anchor_of([NEW_V, BLOB_1, OLD, tied]) == tied
    assert anchor_of([BLOB_1]) is None


@pytest.mark.parametrize(
    "group",
    [
        pytest.param([OLD, file("x.parquet", 0, 9, 7, "v")], id="ordinary files of other rows"),
        pytest.param([OLD, file("y.parquet", None, 10, 7)], id="no row ids"),
    ],
)
def test_contradictory_files_raise(group: list[DataFileMeta]) -> None:
    with pytest.raises(CorruptFile):
        ordinary_files(group)
