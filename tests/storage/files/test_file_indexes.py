"""Which data files get indexes, where the indexes are stored, and that they are created and deleted with their file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError
from tidelake import RenameColumn, SetOption, Table, col
from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.file_index.container import Container
from tidelake.storage.files.file_indexes import index_file_name
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.paths import next_file_index_name

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.string()),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("x", pa.decimal128(10, 2)),
    ]
)
BLOOM: Final = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "100"}
BESIDE: Final = {"file-index.in-manifest-threshold": "1 b"}
HEAD_BYTES: Final = 8 + 4 + 4 + 4 + (2 + 1 + 4) + (2 + 12 + 8) + 4  # of a container with a Bloom filter of `v`
BLOOM_BYTES: Final = 4 + 60  # for 100 items


def rows(first: int = 0, count: int = 20) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        [pa.array(ids), [f"v{i}" for i in ids], [[("a", i)] if i % 2 else None for i in ids], [None for _ in ids]],
        schema=SCHEMA,
    )


def new_table(options: Mapping[str, str], lake: str | None = None, key: bool = True) -> Table:
    catalog = tidelake.open_catalog(lake or f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    return catalog.create_table(
        "db.t", SCHEMA, primary_key=["id"] if key else [], options={"bucket": "1" if key else "-1", **options}
    )


def write(table: Table, *parts: pa.Table) -> list[DataFileMeta]:
    """In a commit each. The files afterwards."""
    with table.writer() as writer:
        for part in parts:
            writer.write(part)
            writer.commit()
    return files(table)


def files(table: Table) -> list[DataFileMeta]:
    return [file for split in table.scan().splits() for file in split.files]


def without_indexes(table: Table) -> Table:
    return Table(table.context.with_options({"file-index.read.enabled": "false"}))


def names_in(table: Table) -> set[str]:
    return {status.name for status in table.context.io.list_directory(f"{table.location}/bucket-0")}


def kinds_in(data: bytes) -> dict[str, list[str]]:
    return {column: sorted(kinds) for column, kinds in Container.of_bytes(data, "f").places.items()}


@pytest.mark.parametrize(
    ("threshold", "embedded"),
    [(HEAD_BYTES + BLOOM_BYTES, True), (HEAD_BYTES + BLOOM_BYTES - 1, False)],
    ids=["just small enough", "a byte too large"],
)
def test_an_index_is_embedded_in_the_manifest_up_to_the_threshold(threshold: int, embedded: bool) -> None:
    table = new_table({**BLOOM, "file-index.in-manifest-threshold": f"{threshold} b"})
    (file,) = write(table, rows())
    if embedded:
        assert file.embedded_index is not None
        assert len(file.embedded_index) == threshold
        assert file.extra_files == ()
        assert names_in(table) == {file.file_name}
    else:
        assert file.embedded_index is None
        assert file.extra_files == (f"{file.file_name}.index",)
        assert names_in(table) == {file.file_name, f"{file.file_name}.index"}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_files_of_every_format_have_the_indexes_that_the_options_name(file_format: str) -> None:
    options = {
        "file.format": file_format,
        "file-index.bloom-filter.columns": "v, m[a],m[b]",
        "file-index.bloom-filter.m.items": "10",
        "file-index.bloom-filter.m[b].items": "20",
        "file-index.bitmap.columns": "v",
        "file-index.bsi.columns": "id",
        "file-index.range-bitmap.columns": "id,x",
        "file-index.in-manifest-threshold": "10 mb",
    }
    (file,) = write(new_table(options), rows())
    data = file.embedded_index or b""
    assert kinds_in(data) == {
        "v": ["bitmap", "bloom-filter"],
        "m[a]": ["bloom-filter"],
        "m[b]": ["bloom-filter"],
        "id": ["bsi", "range-bitmap"],
        "x": ["range-bitmap"],
    }
    indexes = Container.of_bytes(data, "f").all()
    sizes = {column: len(indexes[column]["bloom-filter"] or b"") for column in ("v", "m[a]", "m[b]")}
    assert sizes == {"v": 599_071, "m[a]": 10, "m[b]": 16}


def test_changelog_files_have_no_index() -> None:
    table = new_table({**BLOOM, **BESIDE, "changelog-producer": "input"})
    (file,) = write(table, rows())
    assert {name for name in names_in(table) if name.endswith(".index")} == {f"{file.file_name}.index"}


def test_a_failed_index_write_deletes_its_data_file(tmp_path: Path) -> None:
    table = new_table({**BLOOM, **BESIDE}, str(tmp_path))

    def fault(call: Call) -> Fault | None:
        return Fault.AFTER if call.name == "open_output" and call.path.endswith(".index") else None

    faulty = FaultyFileIO(table.context.io, fault)
    broken = Table(replace(table.context, io=faulty))
    with pytest.raises(FaultyIOError), broken.writer() as writer:
        writer.write(rows())
        writer.commit()
    assert names_in(table) == set()


def test_indexes_are_written_by_compactions_and_deleted_with_their_files() -> None:
    table = new_table({**BLOOM, **BESIDE})
    before = write(table, rows(), rows(10), rows(15))
    table.compact(full=True)
    (file,) = files(table)
    assert file.extra_files == (f"{file.file_name}.index",)
    assert verify(table.context) == []
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    assert names_in(table) == {file.file_name, f"{file.file_name}.index"}
    assert file not in before


def test_an_aborted_commit_leaves_no_index() -> None:
    table = new_table({**BLOOM, **BESIDE})
    faulty = FaultyFileIO(table.context.io, lambda call: Fault.BEFORE if "/manifest/" in call.path else None)
    with pytest.raises(FaultyIOError), Table(replace(table.context, io=faulty)).writer() as writer:
        writer.write(rows())
        writer.commit()
    assert any(call.path.endswith(".index") for call in faulty.calls)
    assert names_in(table) == set()


def test_a_scan_reads_no_file_that_the_index_rules_out() -> None:
    table = new_table({**BLOOM, **BESIDE, "metadata.stats-mode": "none"}, key=False)
    (file,) = write(table, rows())
    table.context.io.delete(f"{table.location}/bucket-0/{file.file_name}")
    wanted = col("v") == "nowhere"
    assert table.scan(filter=wanted).to_arrow().num_rows == 0
    with pytest.raises(CorruptFile, match="no file"):
        without_indexes(table).scan(filter=wanted).to_arrow()


def test_an_index_in_the_manifest_excludes_the_file_from_the_plan() -> None:
    table = new_table({**BLOOM, "metadata.stats-mode": "none"}, key=False)
    write(table, rows())
    assert [len(table.scan(filter=col("v") == value).splits()) for value in ("v3", "nowhere")] == [1, 0]


def test_a_lost_index_raises_with_the_remedy() -> None:
    table = new_table({**BLOOM, **BESIDE})
    (file,) = write(table, rows())
    table.context.io.delete(f"{table.location}/bucket-0/{file.file_name}.index")
    assert [finding.check for finding in verify(table.context)] == ["file-missing"]
    with pytest.raises(CorruptFile, match="reads without"):
        table.scan(filter=col("v") == "v3").to_arrow()
    plain = without_indexes(table)
    assert plain.scan(filter=col("v") == "v3").to_arrow().num_rows == 1


def test_a_damaged_index_raises() -> None:
    table = new_table({**BLOOM, **BESIDE, "file-index.range-bitmap.columns": "v"})
    (file,) = write(table, rows())
    path = f"{table.location}/bucket-0/{file.file_name}.index"
    data = table.context.io.read(path)
    wanted = col("v") == "v3"
    for damaged in (data[:10], b"\1" + data[1:], data[:70], data[:-300], data[: -len(data) // 2] + b"\0" * 100):
        table.context.io.write(path, damaged)
        with pytest.raises(CorruptFile):
            table.scan(filter=wanted).to_arrow()


def test_indexes_of_a_renamed_column_are_found_and_those_of_a_new_type_are_not() -> None:
    lake = f"memory://{uuid4().hex}/lake"
    options = {"file-index.bitmap.columns": "v,id", "file-index.in-manifest-threshold": "1 mb"}
    write(new_table({**options, "metadata.stats-mode": "none"}, lake, key=False), rows())
    catalog = tidelake.open_catalog(lake)
    catalog.alter_table("db.t", [RenameColumn("v", "w")])
    assert catalog.table("db.t").options["file-index.bitmap.columns"] == "w,id"
    assert catalog.table("db.t").scan(filter=col("w") == "nowhere").splits() == []
    catalog.alter_table("db.t", [tidelake.UpdateColumnType("w", "BYTES"), SetOption("file-index.bitmap.columns", "id")])
    assert len(catalog.table("db.t").scan(filter=col("w") == b"v3").splits()) == 1
    assert catalog.table("db.t").scan(filter=col("w") == b"v3").to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file-index.bloom-filter.columns": "w"}, r"file-index.bloom-filter.columns: no column 'w'"),
        ({"file-index.bloom-filter.columns": "v,"}, "a name is empty"),
        (
            {"file-index.bloom.columns": "v"},
            r"the index kind 'bloom' does not exist; choose one of bloom-filter, bitmap",
        ),
        (
            {"file-index.bitmap.columns": "x"},
            r"x is DECIMAL\(10, 2\), which bitmap does not support; the column can have bsi",
        ),
        ({"file-index.bitmap.columns": "m"}, "column m is MAP.*no index supports it"),
        ({"file-index.bitmap.columns": "v[a]"}, "column v is STRING, not a MAP with string keys"),
        ({"file-index.bitmap.v.version": "1"}, "v has no such index; add it to file-index.bitmap.columns"),
        ({**BLOOM, "file-index.bloom-filter.v.items": "0"}, "items = 0"),
        ({**BLOOM, "file-index.bloom-filter.v.fpp": "1.5"}, r"bloom-filter.v.fpp = 1.5: expected a share"),
        ({**BLOOM, "file-index.bloom-filter.v.items": "many"}, "items = 'many'"),
        ({"file-index.bitmap.columns": "v", "file-index.bitmap.v.version": "3"}, "version = 3: expected 1 or 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_columns_that_an_index_does_not_support_are_refused(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        new_table(options)


def test_two_index_files_of_one_data_file_raise() -> None:
    table = new_table({**BLOOM, **BESIDE})
    (file,) = write(table, rows())
    twice = replace(file, extra_files=("a.index", "b.index"))
    with pytest.raises(CorruptFile, match=r"a\.index and b\.index"):
        index_file_name(twice)


def test_an_index_that_replaces_another_has_the_next_number() -> None:
    assert next_file_index_name("data-1.parquet", "data-1.parquet.index") == "data-1.parquet-1.index"
    assert next_file_index_name("data-1.parquet", "data-1.parquet-1.index") == "data-1.parquet-2.index"
