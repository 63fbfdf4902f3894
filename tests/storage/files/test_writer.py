"""The files of a rolling writer, and their metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.files.samples import options_of, table_schema
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.clock import local_time_as_utc_ms
from tidelake.storage.fileio.base import Output
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.files.writer import RollingFileWriter, file_fields
from tidelake.storage.model.binary_row import decode_rows, serialize_row
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.paths import DataFileNames
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_schema

COLUMNS = {"id": "INT", "name": "STRING", "amount": "DECIMAL(9, 2)"}


def table(
    folder: Path,
    columns: Mapping[str, str] | None = None,
    *,
    key: Sequence[str] = ("id",),
    options: Mapping[str, str] | None = None,
) -> TableContext:
    schema = table_schema(columns or COLUMNS, primary_keys=key, options=options)
    return context_of(folder, schema)


def context_of(folder: Path, schema: TableSchema) -> TableContext:
    return TableContext(LocalFileIO(), str(folder / "t"), "d.t", schema, options_of(schema))


def bucket(context: TableContext) -> str:
    return f"{context.location}/bucket-0"


def keyed_rows(
    context: TableContext, ids: Sequence[int], *, sequence: int = 0, kinds: Sequence[int] = ()
) -> pa.RecordBatch:
    """Rows of COLUMNS in file form."""
    values: dict[str, Any] = {
        "_KEY_id": ids,
        "_SEQUENCE_NUMBER": range(sequence, sequence + len(ids)),
        "_VALUE_KIND": kinds or [0] * len(ids),
        "id": ids,
        "name": [f"name {i}" for i in ids],
        "amount": [i % 100 for i in ids],
    }
    schema = arrow_schema(file_fields(context))
    return pa.RecordBatch.from_arrays([pa.array(values[f.name], f.type) for f in schema], schema=schema)


def files_in(context: TableContext) -> set[str]:
    return {status.name for status in context.io.list_directory(bucket(context))}


def test_a_file_of_a_keyed_table_has_complete_metadata(tmp_path: Path) -> None:
    context = table(tmp_path)
    writer = RollingFileWriter(context, bucket(context), clock_ms=lambda: 1_715_690_096_000)
    writer.write(keyed_rows(context, [-3, 1, 4], sequence=10, kinds=[0, 3, 2]))
    writer.write(keyed_rows(context, [5, 9], sequence=7, kinds=[1, 0]))
    (file,) = writer.close()
    key = context.schema.key_fields[0].type
    assert (file.min_key, file.max_key) == (serialize_row([-3], [key]), serialize_row([9], [key]))
    assert (file.row_count, file.delete_row_count) == (5, 2)
    assert (file.min_sequence_number, file.max_sequence_number) == (7, 12)
    assert (file.schema_id, file.level, file.file_source) == (0, 0, FileSource.APPEND)
    assert (file.extra_files, file.embedded_index, file.external_path, file.write_columns) == ((), None, None, None)
    assert file.creation_time_ms == 1_715_690_096_000
    assert file.file_size == context.io.size_bytes(f"{bucket(context)}/{file.file_name}")
    assert decode_rows([file.key_stats.min_values, file.key_stats.max_values], [key])[0].to_pylist() == [-3, 9]
    assert file.key_stats.null_counts == (0,)
    assert file.value_stats.null_counts == (0, 0, 0)
    assert file.value_stats_columns is None
    assert file.file_name.startswith("data-")
    assert file.file_name.endswith("-0.parquet")


def test_a_file_of_an_append_table_has_no_keys_and_counts_sequence_numbers_up(tmp_path: Path) -> None:
    context = table(tmp_path, key=())
    rows = pa.RecordBatch.from_pydict(
        {"id": [1, None], "name": ["a", "b"], "amount": [None, None]}, context.schema.arrow
    )
    writer = RollingFileWriter(context, bucket(context))
    writer.write(rows, first_sequence_number=100)
    writer.write(rows, first_sequence_number=102)
    (file,) = writer.close()
    assert (file.min_key, file.max_key, file.key_stats) == (EMPTY_ROW, EMPTY_ROW, EMPTY_STATS)
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (100, 103, 0)
    assert file.value_stats.null_counts == (2, 0, 4)
    with pytest.raises(BadInput, match="first_sequence_number"):
        RollingFileWriter(context, bucket(context)).write(rows)


def test_thin_files_leave_out_the_key_columns_and_keep_their_statistics(tmp_path: Path) -> None:
    thick, thin = table(tmp_path), table(tmp_path, options={"data-file.thin-mode": "true"})
    files = []
    for context in (thick, thin):
        writer = RollingFileWriter(context, bucket(context))
        writer.write(keyed_rows(context, [1, 2, 3]))
        files += writer.close()
    assert [pq.read_schema(f"{bucket(thick)}/{f.file_name}").names[0] for f in files] == ["_KEY_id", "_SEQUENCE_NUMBER"]
    assert files[0].key_stats == files[1].key_stats
    assert files[0].min_key == files[1].min_key


def test_no_rows_write_no_file(tmp_path: Path) -> None:
    context = table(tmp_path)
    writer = RollingFileWriter(context, bucket(context))
    writer.write(keyed_rows(context, []))
    assert writer.close() == []
    assert files_in(context) == set()


# ---------------------------------------------------------------- rolling


def test_files_roll_near_the_target_size_and_share_a_name_prefix(tmp_path: Path) -> None:
    context = table(tmp_path, options={"target-file-size": "300 kb", "file.compression": "none"})
    writer = RollingFileWriter(context, bucket(context))
    for start in range(0, 400_000, 100_000):
        writer.write(keyed_rows(context, range(start, start + 100_000), sequence=start))
    files = writer.close()
    assert len(files) > 2
    assert sum(f.row_count for f in files) == 400_000
    stems = {f.file_name.rpartition("-")[0] for f in files}
    assert len(stems) == 1
    assert [f.file_name.rpartition("-")[2] for f in files] == [f"{i}.parquet" for i in range(len(files))]
    types = [f.type for f in context.schema.key_fields]
    lasts, firsts = (decode_rows([getattr(f, which) for f in files], types)[0] for which in ("max_key", "min_key"))
    assert firsts.to_pylist()[1:] == [last + 1 for last in lasts.to_pylist()[:-1]]


@pytest.mark.parametrize(
    ("source", "changelog", "rows"),
    [
        pytest.param(FileSource.APPEND, False, [1000, 1000, 500], id="written"),
        pytest.param(FileSource.COMPACT, False, [2500], id="compacted"),
        pytest.param(FileSource.APPEND, True, [2500], id="changelog"),
    ],
)
def test_only_newly_written_files_have_a_row_target(
    source: FileSource, changelog: bool, rows: list[int], tmp_path: Path
) -> None:
    context = table(tmp_path, options={"target-file-row-num": "1000"})
    writer = RollingFileWriter(context, bucket(context), file_source=source, changelog=changelog)
    writer.write(keyed_rows(context, range(2500)))
    assert [f.row_count for f in writer.close()] == rows


def test_sequence_numbers_of_an_append_table_continue_in_the_next_file(tmp_path: Path) -> None:
    context = table(tmp_path, {"a": "INT"}, key=(), options={"target-file-row-num": "3"})
    writer = RollingFileWriter(context, bucket(context))
    writer.write(pa.RecordBatch.from_pydict({"a": range(7)}, context.schema.arrow), first_sequence_number=5)
    ranges = [(f.min_sequence_number, f.max_sequence_number) for f in writer.close()]
    assert ranges == [(5, 7), (8, 10), (11, 11)]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "level", "changelog", "ending", "prefix"),
    [
        pytest.param({}, 0, False, ".parquet", "data-", id="the default"),
        pytest.param({"file.format": "orc"}, 3, False, ".orc", "data-", id="another format"),
        pytest.param({"file.format.per.level": "0:avro,5:orc"}, 0, False, ".avro", "data-", id="a format for level 0"),
        pytest.param({"file.format.per.level": "0:avro,5:orc"}, 5, False, ".orc", "data-", id="a format for level 5"),
        pytest.param({"file.format.per.level": "0:avro,5:orc"}, 1, False, ".parquet", "data-", id="none for level 1"),
        pytest.param({"changelog-file.format": "avro"}, 0, True, ".avro", "changelog-", id="a changelog's own format"),
        pytest.param(
            {"file.suffix.include.compression": "true", "file.compression.per.level": "0:snappy"},
            0,
            False,
            ".zst.parquet",
            "data-",
            id="the table's codec in the name",
        ),
        pytest.param({"data-file.prefix": "rows-"}, 0, False, ".parquet", "rows-", id="a prefix"),
        pytest.param({"changelog-file.prefix": "log-"}, 0, True, ".parquet", "log-", id="a changelog's prefix"),
    ],
)
def test_names_follow_the_options(
    options: dict[str, str], level: int, changelog: bool, ending: str, prefix: str, tmp_path: Path
) -> None:
    context = table(tmp_path, options=options)
    writer = RollingFileWriter(context, bucket(context), level=level, changelog=changelog)
    writer.write(keyed_rows(context, [1]))
    (file,) = writer.close()
    assert file.file_name.startswith(prefix)
    assert file.file_name.split("-0.")[-1] == ending[1:]
    assert file.level == level
    path = f"{bucket(context)}/{file.file_name}"
    assert sum(b.num_rows for b in read_data_file(context, file, path, context.schema.fields)) == 1


@pytest.mark.parametrize(
    ("options", "level", "codec"),
    [
        ({}, 0, "ZSTD"),
        ({"file.compression": "snappy"}, 0, "SNAPPY"),
        ({"file.compression.per.level": "0:lz4"}, 0, "LZ4_RAW"),
        ({"file.compression.per.level": "0:lz4"}, 1, "ZSTD"),
        ({"file.compression": "none"}, 0, "UNCOMPRESSED"),
    ],
)
def test_files_are_compressed_by_the_codec_of_their_level(
    options: dict[str, str], level: int, codec: str, tmp_path: Path
) -> None:
    context = table(tmp_path, options=options)
    writer = RollingFileWriter(context, bucket(context), level=level)
    writer.write(keyed_rows(context, [1]))
    (file,) = writer.close()
    chunk = pq.read_metadata(f"{bucket(context)}/{file.file_name}").row_group(0).column(0)
    assert chunk.compression in (codec, codec.removesuffix("_RAW"))


@pytest.mark.parametrize(
    ("options", "level", "row_groups"),
    [
        ({"changelog-producer": "lookup"}, 1, 2),
        ({"deletion-vectors.enabled": "true"}, 5, 2),
        ({"changelog-producer": "lookup"}, 0, 2),
        ({"changelog-producer": "lookup", "parquet.block.size": "32 mb"}, 1, 1),
        ({"changelog-producer": "full-compaction"}, 5, 2),
        ({}, 1, 2),
        ({"file.block-size": "32 mb"}, 1, 1),
    ],
)
def test_row_groups_are_small_unless_their_size_is_set(
    options: dict[str, str], level: int, row_groups: int, tmp_path: Path
) -> None:
    context = table(tmp_path, options=options)
    writer = RollingFileWriter(context, bucket(context), level=level)
    writer.write(keyed_rows(context, range(150_000)))
    (file,) = writer.close()
    assert pq.read_metadata(f"{bucket(context)}/{file.file_name}").num_row_groups == row_groups


def test_a_stronger_zstd_makes_smaller_files(tmp_path: Path) -> None:
    sizes = []
    for level in ("1", "15"):
        context = table(tmp_path, options={"file.compression.zstd-level": level})
        writer = RollingFileWriter(context, bucket(context))
        writer.write(keyed_rows(context, range(20_000)))
        sizes += [f.file_size for f in writer.close()]
    assert sizes[1] < sizes[0]


def test_an_unsupported_format_is_refused_before_writing(tmp_path: Path) -> None:
    context = table(tmp_path, options={"file.format": "lance"})
    with pytest.raises(UnsupportedFeature, match="data files in lance"):
        RollingFileWriter(context, bucket(context))


def test_creation_times_are_local_wall_clock_times() -> None:
    shown = datetime.fromtimestamp(local_time_as_utc_ms() / 1000, UTC).replace(tzinfo=None)
    assert abs((datetime.now() - shown).total_seconds()) < 60


# ---------------------------------------------------------------- giving up


def test_abort_deletes_finished_and_unfinished_files(tmp_path: Path) -> None:
    context = table(tmp_path, options={"target-file-row-num": "10"})
    writer = RollingFileWriter(context, bucket(context))
    writer.write(keyed_rows(context, range(25)))
    assert len(files_in(context)) == 3
    writer.abort()
    assert files_in(context) == set()
    writer.abort()


def test_abort_after_close_deletes_too(tmp_path: Path) -> None:
    context = table(tmp_path)
    writer = RollingFileWriter(context, bucket(context))
    writer.write(keyed_rows(context, [1]))
    assert len(writer.close()) == 1
    writer.abort()
    assert files_in(context) == set()


class FullDisk(LocalFileIO):
    """The disk fills up while the second file is written."""

    outputs = 0

    def open_output(self, path: str) -> Output:
        type(self).outputs += 1
        output = super().open_output(path)
        if type(self).outputs == 2:
            return _FullOutput(output)
        return output


class _FullSink:
    closed = False

    def write(self, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        pass


class _FullOutput:
    def __init__(self, inner: Output) -> None:
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    def __enter__(self) -> _FullOutput:
        self._inner.__enter__()
        self.stream = pa.PythonFile(_FullSink(), mode="w")
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def write(self, data: bytes) -> None:
        _FullSink().write(data)


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_a_full_disk_leaves_no_files(name: str, tmp_path: Path) -> None:
    context = table(tmp_path, options={"target-file-row-num": "10", "file.format": name})
    FullDisk.outputs = 0
    context = TableContext(FullDisk(), context.location, context.name, context.schema, context.options)
    writer = RollingFileWriter(context, bucket(context))
    with pytest.raises(OSError, match="No space left on device"):
        writer.write(keyed_rows(context, range(25)))
    writer.abort()
    assert files_in(context) == set()


def test_values_that_do_not_fit_leave_no_files(tmp_path: Path) -> None:
    context = table(tmp_path, {"id": "INT", "t": "TIMESTAMP(6)"}, options={"file.format": "orc"})
    schema = arrow_schema(file_fields(context))
    values = [[1], [0], [0], [1], [-1]]
    columns = [pa.array(v, pa.int64()).cast(f.type) for v, f in zip(values, schema, strict=True)]
    writer = RollingFileWriter(context, bucket(context))
    with pytest.raises(BadInput, match="column 't'"):
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    writer.abort()
    assert files_in(context) == set()


def test_file_numbers_can_continue_those_of_another_writer(tmp_path: Path) -> None:
    context = table(tmp_path)
    names = DataFileNames("data-")
    files: list[DataFileMeta] = []
    for _ in range(2):
        writer = RollingFileWriter(context, bucket(context), names=names)
        writer.write(keyed_rows(context, [1]))
        files += writer.close()
    assert [f.file_name.rpartition("-")[2] for f in files] == ["0.parquet", "1.parquet"]
