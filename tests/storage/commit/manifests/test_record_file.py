"""Metadata files in every form that writers use, and broken ones."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro.types import Schema
from fastavro.write import Writer
from pyarrow import orc

from tests.storage.model.snapshots.tables import data_file, partition
from tests.support.cases import unpack_golden
from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.commit.manifests.avro_schemas import MANIFEST_ENTRY_SCHEMA, MANIFEST_LIST_SCHEMA
from tidelake.storage.commit.manifests.columnar_records import metadata_writer
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, entry_from_record, entry_to_record
from tidelake.storage.commit.manifests.manifest_file_meta import describe_manifest, meta_from_record, meta_to_record
from tidelake.storage.commit.manifests.record_file import AvroRecordWriter, avro_codec, format_of_metadata, read_records
from tidelake.storage.files.data_file import DataFileMeta, SimpleStats
from tidelake.storage.model.format import FileKind, FileSource

FULL = ManifestEntry(
    FileKind.DELETE,
    partition("münchen"),
    3,
    7,
    DataFileMeta(
        file_name="data-0.parquet",
        file_size=2**40,
        row_count=5,
        min_key=b"\0\0\0\1low",
        max_key=b"\0\0\0\1high",
        key_stats=SimpleStats(b"a", b"b", (0,)),
        value_stats=SimpleStats(b"c", b"d", (None, 2)),
        min_sequence_number=-1,
        max_sequence_number=2**62,
        schema_id=4,
        level=5,
        extra_files=("data-0.parquet.index",),
        creation_time_ms=-1,
        delete_row_count=1,
        embedded_index=b"\1\2",
        file_source=FileSource.COMPACT,
        value_stats_columns=("k", "v"),
        external_path="s3://elsewhere/data-0.parquet",
        first_row_id=9,
        write_columns=("k",),
        write_columns_sequences=(2**40,),
    ),
)
SPARSE = ManifestEntry(FileKind.ADD, partition(None), 0, -1, data_file("data-1.orc", creation_time_ms=None))


def container(entries: list[ManifestEntry], codec: str = "zstandard") -> bytes:
    writer = AvroRecordWriter(MANIFEST_ENTRY_SCHEMA, codec, zstd_level=1)
    writer.write(map(entry_to_record, entries))
    return writer.finish()


def entries_of(data: bytes) -> list[ManifestEntry]:
    return list(read_records(data, "m", entry_from_record))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz", "zstandard"])
def test_entries_are_read_back_with_every_codec(codec: str) -> None:
    assert entries_of(container([FULL, SPARSE], codec)) == [FULL, SPARSE]


@pytest.mark.parametrize(
    ("file_format", "compression"),
    [
        *(("parquet", codec) for codec in ("none", "snappy", "gzip", "lz4", "zstd")),
        *(("orc", codec) for codec in ("none", "snappy", "zlib", "lz4", "zstd")),
    ],
)
def test_entries_are_read_back_in_every_format(file_format: str, compression: str) -> None:
    entries = [replace(FULL, file=replace(FULL.file, creation_time_ms=1_700_000_000_123)), SPARSE]
    writer = metadata_writer(MANIFEST_ENTRY_SCHEMA, file_format, compression, zstd_level=1)
    writer.write(map(entry_to_record, entries[:1]))
    writer.write(map(entry_to_record, entries[1:]))
    data = writer.finish()
    assert format_of_metadata(data) == file_format
    assert entries_of(data) == entries


@pytest.mark.parametrize("file_format", ["avro", "parquet", "orc"])
def test_an_empty_list_is_readable_in_every_format(file_format: str) -> None:
    data = metadata_writer(MANIFEST_LIST_SCHEMA, file_format, "zstd", zstd_level=1).finish()
    assert read_records(data, "m", meta_from_record) == ()


@pytest.mark.parametrize(
    ("file_format", "compression", "named"),
    [
        ("json", "zstd", "manifest.format = 'json'"),
        ("orc", "gzip", "manifest.compression = 'gzip': ORC"),
        ("parquet", "deflate", "manifest.compression = 'deflate': Parquet"),
    ],
)
def test_unsupported_manifest_formats_are_refused_by_name(file_format: str, compression: str, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        metadata_writer(MANIFEST_ENTRY_SCHEMA, file_format, compression, zstd_level=1)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz", "zstandard"])
def test_our_container_header_equals_that_of_fastavro(codec: str) -> None:
    for number in range(2):  # the second time from what was kept
        ours, fastavros = container([FULL] if number else [], codec), io.BytesIO()
        Writer(fastavros, cast(Schema, MANIFEST_ENTRY_SCHEMA), codec=codec)
        header = fastavros.getvalue()[:-16]  # without the marker, which is another one in each file
        assert b"avro.schema" in header
        assert ours.startswith(header)
        assert ours[len(header) : len(header) + 16] == ours[-16:]


def test_two_containers_have_other_sync_markers() -> None:
    assert container([FULL])[-16:] != container([FULL])[-16:]


@pytest.mark.parametrize("codec", ["null", "zstandard"])
def test_a_container_has_blocks_of_64_kilobytes_before_compression(codec: str) -> None:
    entries = [FULL, SPARSE] * 1_000
    data = container(entries, codec)
    blocks = [(block.num_records, block.size) for block in fastavro.block_reader(io.BytesIO(data))]
    assert sum(records for records, _ in blocks) == len(entries)
    assert len(blocks) > 3
    if codec == "null":
        assert all(64_000 <= size < 65_000 for _, size in blocks[:-1])
    assert entries_of(data) == entries


def test_an_empty_container_holds_no_entries() -> None:
    assert entries_of(container([])) == []


def test_a_manifest_list_is_read_back() -> None:
    meta = describe_manifest("manifest-1", 99, [FULL], SimpleStats(b"x", b"y", (1,)))
    writer = AvroRecordWriter(MANIFEST_LIST_SCHEMA, "zstandard", zstd_level=1)
    writer.write([meta_to_record(meta)])
    assert read_records(writer.finish(), "l", meta_from_record) == (meta,)


def table_of(entries: list[ManifestEntry]) -> pa.Table:
    """As Parquet and ORC hold it: times are times there, and TINYINT is one byte."""
    return pa.Table.from_pylist(
        list(read_records(container(entries), "m", dict)),
        schema=pa.schema(
            [
                ("_VERSION", pa.int32()),
                ("_KIND", pa.int8()),
                ("_PARTITION", pa.binary()),
                ("_BUCKET", pa.int32()),
                ("_TOTAL_BUCKETS", pa.int32()),
                ("_FILE", pa.struct(_file_fields())),
            ]
        ),
    )


def _file_fields() -> list[pa.Field]:
    stats = pa.struct(
        [("_MIN_VALUES", pa.binary()), ("_MAX_VALUES", pa.binary()), ("_NULL_COUNTS", pa.list_(pa.int64()))]
    )
    types = {
        "string": pa.string(),
        "bytes": pa.binary(),
        "long": pa.int64(),
        "int": pa.int32(),
        "timestamp-millis": pa.timestamp("ms"),
    }

    def arrow(avro: Any) -> pa.DataType:
        match avro:
            case ["null", inner]:
                return arrow(inner)
            case {"type": "array", "items": items}:
                return pa.list_(arrow(items))
            case {"type": "record"}:
                return stats
            case {"logicalType": name}:
                return types[name]
        return types[avro]

    (file,) = (f for f in MANIFEST_ENTRY_SCHEMA["fields"] if f["name"] == "_FILE")
    return [pa.field(f["name"], arrow(f["type"])) for f in file["type"]["fields"]]


def test_manifests_in_parquet_read_like_avro_ones() -> None:
    sink = io.BytesIO()
    pq.write_table(table_of([FULL, SPARSE]), sink)
    assert entries_of(sink.getvalue()) == [FULL, SPARSE]


def test_manifests_in_orc_read_like_avro_ones() -> None:
    sink = pa.BufferOutputStream()
    orc.write_table(table_of([FULL, SPARSE]), sink)
    assert entries_of(sink.getvalue().to_pybytes()) == [FULL, SPARSE]


# ---------------------------------------------------------------- what other writers made of it


def rewritten(change: Any) -> list[ManifestEntry]:
    """Our entries under another Avro schema, as fastavro itself maps them."""
    schema = copy.deepcopy(MANIFEST_ENTRY_SCHEMA)
    (file,) = (f["type"] for f in schema["fields"] if f["name"] == "_FILE")
    change(schema, file)
    sink = io.BytesIO()
    fastavro.writer(sink, schema, read_records(container([SPARSE]), "m", dict))
    return entries_of(sink.getvalue())


def test_record_names_are_ignored() -> None:
    def rename(schema: Any, file: Any) -> None:
        schema |= {"name": "ManifestEntry", "namespace": "pypaimon"}
        file["name"] = "DataFileMeta"

    assert rewritten(rename) == [SPARSE]


def test_fields_missing_from_an_older_writer_are_null() -> None:
    def drop(_: Any, file: Any) -> None:
        file["fields"] = [
            f for f in file["fields"] if f["name"] not in ("_CREATION_TIME", "_DELETE_ROW_COUNT", "_WRITE_COLS")
        ]

    (entry,) = rewritten(drop)
    assert entry.file.delete_row_count is None
    assert entry.file.creation_time_ms is None
    assert entry.file.write_columns is None
    assert entry.file.file_name == SPARSE.file.file_name


def test_fields_of_a_newer_writer_are_ignored() -> None:
    def add(_: Any, file: Any) -> None:
        file["fields"].append({"name": "_FUTURE", "type": ["null", "string"], "default": None})

    assert rewritten(add) == [SPARSE]


def test_null_counts_may_be_plain_numbers() -> None:
    def plain(_: Any, file: Any) -> None:
        for f in file["fields"]:
            if f["name"].endswith("_STATS"):
                f["type"]["fields"][2]["type"][1]["items"] = "long"

    assert rewritten(plain) == [SPARSE]


def test_a_timestamp_may_lack_its_logical_type() -> None:
    schema = copy.deepcopy(MANIFEST_ENTRY_SCHEMA)
    (file,) = (f["type"] for f in schema["fields"] if f["name"] == "_FILE")
    (time,) = (f for f in file["fields"] if f["name"] == "_CREATION_TIME")
    time["type"] = ["null", "long"]
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [entry_to_record(FULL)])
    assert entries_of(sink.getvalue()) == [FULL]


# ---------------------------------------------------------------- broken files

GOOD = container([FULL, SPARSE] * 20)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="no bytes"),
        pytest.param(b"Obj", id="less than the magic"),
        pytest.param(GOOD[: len(GOOD) // 2], id="cut in the header or a block"),
        pytest.param(GOOD[:-1], id="cut in the last marker"),
        pytest.param(b"\0" * len(GOOD), id="zeros"),
        pytest.param(b"PAR1" + GOOD[4:], id="calls itself Parquet"),
        pytest.param(b"ORC" + GOOD[3:], id="calls itself ORC"),
        pytest.param(GOOD[:-40] + bytes(40), id="zeros at the end, as after a power cut"),
    ],
)
def test_a_broken_file_is_named(data: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"^m/manifest-7"):
        read_records(data, "m/manifest-7", dict)


def test_a_file_cut_between_two_blocks_is_detected_by_its_size() -> None:
    short = container([FULL])
    assert read_records(short, "m", dict)
    with pytest.raises(CorruptFile, match=f"m at byte {len(short)}: expected {len(short) + 1} bytes") as caught:
        read_records(short, "m", dict, len(short) + 1)
    assert caught.value.offset == len(short)


def test_a_truncation_anywhere_is_detected() -> None:
    data = container([FULL])
    for length in range(len(data)):
        with pytest.raises(CorruptFile):
            read_records(data[:length], "m", dict, len(data))


def test_an_unknown_codec_option_is_refused_by_name() -> None:
    assert avro_codec("zstd") == "zstandard"
    assert avro_codec("none") == avro_codec("null") == "null"
    with pytest.raises(BadInput, match=r"manifest.compression = 'lzo'"):
        avro_codec("lzo")


def test_javas_parquet_manifests_equal_the_golden_table(tmp_path: Any) -> None:
    folder = unpack_golden("java/manifest_merge", tmp_path) / "golden.db" / "manifest_merge" / "manifest"
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith("manifest-list")]
    assert {path.read_bytes()[:4] for path in files} == {b"PAR1"}
    entries = [entry for path in files for entry in entries_of(path.read_bytes())]
    assert {entry.file.row_count for entry in entries} == {1}
    assert all(entry.file.creation_time_ms is not None for entry in entries)
