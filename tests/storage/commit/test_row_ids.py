"""Which row ids and sequence numbers new files get when they are committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.row_ids import with_row_ids
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.model.format import FileKind, FileSource


def new(name: str, rows: int, *columns: str) -> DataFileMeta:
    return DataFileMeta(
        name, 1, rows, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0,
        file_source=FileSource.APPEND, write_columns=columns or None,
    )  # fmt: skip


def added(*files: DataFileMeta) -> list[ManifestEntry]:
    return [ManifestEntry(FileKind.ADD, EMPTY_ROW, 0, -1, file) for file in files]


def numbered(entries: list[ManifestEntry]) -> list[tuple[str, int | None, int]]:
    return [(e.file.file_name, e.file.first_row_id, e.file.max_sequence_number) for e in entries]


def test_files_get_the_next_ids_in_their_order_and_the_snapshot_as_sequence_number() -> None:
    entries, next_row_id = with_row_ids(added(new("a.parquet", 3), new("b.parquet", 2)), 7, 100)
    assert numbered(entries) == [("a.parquet", 100, 7), ("b.parquet", 103, 7)]
    assert next_row_id == 105


def test_blobs_have_the_ids_of_the_data_file_before_them_column_by_column() -> None:
    files = [
        *(new("a.parquet", 3, "id"), new("a-b1.blob", 2, "b"), new("a-b2.blob", 1, "b"), new("a-c.blob", 3, "c")),
        *(new("z.parquet", 2, "id"), new("z-b.blob", 2, "b")),
    ]
    entries, next_row_id = with_row_ids(added(*files), 1, 0)
    assert [first for _, first, _ in numbered(entries)] == [0, 0, 2, 0, 3, 3]
    assert next_row_id == 5


@pytest.mark.parametrize(
    ("file", "first", "sequence"),
    [
        pytest.param(replace(new("v.parquet", 3, "v"), first_row_id=4), 4, 7, id="columns of rows that are there"),
        pytest.param(replace(new("c.parquet", 3), file_source=FileSource.COMPACT), None, 7, id="a compaction's"),
        pytest.param(replace(new("u.parquet", 3, "v", "_ROW_ID"), min_sequence_number=2), None, 7, id="moved rows"),
        pytest.param(
            replace(new("p.parquet", 3, "v", "_ROW_ID"), min_sequence_number=2, max_sequence_number=5),
            *(None, 5),
            id="rows that were only moved",
        ),
    ],
)
def test_files_whose_rows_already_have_ids_get_no_new_ones(
    file: DataFileMeta, first: int | None, sequence: int
) -> None:
    entries, next_row_id = with_row_ids(added(file), 7, 10)
    assert (numbered(entries), next_row_id) == ([(file.file_name, first, sequence)], 10)


def test_rows_with_ids_beyond_the_next_id_are_not_renumbered() -> None:
    cloned = replace(new("a.parquet", 3), first_row_id=20)
    entries, next_row_id = with_row_ids(added(cloned, new("b.parquet", 1)), 7, 0)
    assert [first for _, first, _ in numbered(entries)] == [20, 23]
    assert next_row_id == 24


def test_deleted_files_get_no_ids() -> None:
    gone = ManifestEntry(FileKind.DELETE, EMPTY_ROW, 0, -1, new("a.parquet", 3))
    assert with_row_ids([gone], 7, 10) == ([gone], 10)
