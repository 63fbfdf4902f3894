"""Buckets that are flushed together give the same files as buckets flushed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.files.samples import SAMPLES, column_of, options_of
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files import small_files
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import INT, STRING, DataField, arrow_schema, not_null
from tidelake.storage.write import small_flush
from tidelake.storage.write.table_writer import TableWriter
from tidelake.table import Table

BUCKETS: Final = 5
SAMPLES_IN_KEYED_FILES: Final = [sample for sample in SAMPLES if "parquet" not in sample.refused_by]


def table_of(schema: TableSchema, folder: Path) -> TableContext:
    location = str(folder / "t")
    SchemaStore(LocalFileIO(), TablePaths(location)).publish(schema)
    return TableContext(LocalFileIO(), location, "d.t", schema, options_of(schema))


def every_type(options: Mapping[str, str], location: Path) -> TableContext:
    fields = [DataField(0, "id", not_null(INT))]
    fields += [DataField(i, f"c{i}", sample.type) for i, sample in enumerate(SAMPLES_IN_KEYED_FILES, 1)]
    schema = TableSchema(0, tuple(fields), len(fields) - 1, (), ("id",), {"bucket": str(BUCKETS), **options})
    return table_of(schema, location)


def rows_of_every_type(context: TableContext, count: int) -> pa.RecordBatch:
    """Repeated keys in random order, and all values of each sample, in different rows of each column."""
    ids = pa.array([(i * 7) % (count * 2 // 3) for i in range(count)], pa.int32())
    columns = [
        column_of(sample.type, [sample.values[(i * 5 + shift) % len(sample.values)] for i in range(count)])
        for shift, sample in enumerate(SAMPLES_IN_KEYED_FILES)
    ]
    return pa.RecordBatch.from_arrays([ids, *columns], schema=arrow_schema(context.schema.fields))


def messages_of(context: TableContext, rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Of each bucket, with what manifests say of its file: all but name, size and time."""
    writer = TableWriter(context)
    writer.write(rows)
    messages = writer.prepare_commit(1)
    TableCommit(context, "test").commit(Committable(1, messages))
    writer.abort()
    found = []
    for message in sorted(messages, key=lambda m: m.bucket):
        (file,) = message.increment.new_files
        meta = asdict(file)
        assert (
            Path(context.location) / f"bucket-{message.bucket.bucket}" / meta.pop("file_name")
        ).stat().st_size == meta.pop("file_size")
        assert meta.pop("creation_time_ms") > 0
        meta["extra_files"] = len(meta["extra_files"])
        found.append({"bucket": message.bucket, **meta})
    return found


@pytest.mark.exhaustive(kept=6)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="as tables are"),
        pytest.param({"merge-engine": "first-row"}, id="first-row"),
        pytest.param({"merge-engine": "partial-update"}, id="partial-update"),
        pytest.param({"data-file.thin-mode": "true"}, id="without key columns"),
        pytest.param({"metadata.stats-dense-store": "false"}, id="with statistics of unknown columns"),
        pytest.param({"metadata.stats-mode": "truncate(2)"}, id="with short bounds"),
        pytest.param({"metadata.stats-mode": "full"}, id="with whole bounds"),
        pytest.param({"metadata.stats-mode": "counts"}, id="with counts alone"),
        pytest.param({"metadata.stats-mode": "none"}, id="without statistics"),
        pytest.param({"file.compression": "snappy"}, id="snappy"),
        pytest.param({"file.compression": "none"}, id="not compressed"),
        pytest.param({"file.format": "orc"}, id="ORC, which writes each file by itself"),
        pytest.param({"file-index.bloom-filter.columns": "c5"}, id="with file indexes"),
        pytest.param({"changelog-producer": "input"}, id="with a changelog of the input"),
    ],
)
def test_files_flushed_together_equal_files_flushed_alone(
    tmp_path: Path, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "file.format" in options:
        monkeypatch.setattr(
            f"{__name__}.SAMPLES_IN_KEYED_FILES", [sample for sample in SAMPLES if "orc" not in sample.refused_by]
        )
    together = every_type(options, tmp_path / "together")
    rows = rows_of_every_type(together, 90)
    found = messages_of(together, rows)
    monkeypatch.setattr(small_flush, "BUCKETS_MIN", BUCKETS + 1)
    alone = every_type(options, tmp_path / "alone")
    expected = messages_of(alone, rows)
    assert len(found) == BUCKETS
    assert found == expected
    if "merge-engine" in options:
        return  # readers of first-row don't look at level 0
    one, other = Table(together).scan().to_arrow(), Table(alone).scan().to_arrow()
    assert one.num_rows == len(set(rows["id"].to_pylist()))
    assert repr(one.sort_by("id").to_pylist()) == repr(other.sort_by("id").to_pylist())


def simple(location: Path, **options: str) -> TableContext:
    fields = (DataField(0, "id", not_null(INT)), DataField(1, "n", INT))
    schema = TableSchema(0, fields, 1, (), ("id",), {"bucket": str(BUCKETS), **options})
    return table_of(schema, location)


def numbers(ids: range) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int32()), "n": pa.array(ids, pa.int32())})


def test_one_failed_file_deletes_all_others(tmp_path: Path) -> None:
    context = simple(tmp_path)
    in_the_way = Path(context.location) / "bucket-3"
    in_the_way.write_text("a file where the bucket's directory must be")
    writer = TableWriter(context)
    writer.write(numbers(range(100)))
    with pytest.raises(OSError, match="bucket-3"):
        writer.prepare_commit(1)
    writer.abort()
    assert list(Path(context.location).rglob("*.parquet")) == []
    assert in_the_way.is_file()


def test_only_columns_of_more_than_a_few_bytes_are_compressed(tmp_path: Path) -> None:
    fields = (DataField(0, "id", not_null(INT)), DataField(1, "text", STRING))
    schema = TableSchema(0, fields, 1, (), ("id",), {"bucket": str(BUCKETS), "file.compression": "zstd"})
    context = table_of(schema, tmp_path)
    writer = TableWriter(context)
    ids = pa.array(range(100), pa.int32())
    writer.write(pa.record_batch({"id": ids, "text": pa.array(["long text " * 20] * 100)}))
    messages = writer.prepare_commit(1)
    writer.abort()
    path = Path(context.location) / f"bucket-{messages[0].bucket.bucket}" / messages[0].increment.new_files[0].file_name
    group = pq.read_metadata(path).row_group(0)
    codecs = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert codecs["text"] == "ZSTD"
    assert set(codecs.values()) == {"ZSTD", "UNCOMPRESSED"}


def test_rows_of_all_rounds_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_flush, "ROUND_BYTES", 500)
    context = simple(tmp_path)
    writer = TableWriter(context)
    writer.write(numbers(range(200)))
    TableCommit(context, "test").commit(Committable(1, writer.prepare_commit(1)))
    writer.abort()
    assert sorted(Table(context).scan().to_arrow()["n"].to_pylist()) == list(range(200))


@pytest.mark.interop
def test_a_bucket_with_many_rows_is_flushed_separately_from_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = simple(tmp_path)
    together: list[int] = []
    whole = small_files.write_small_files

    def counted(*arguments: Any) -> Any:
        together.append(len(arguments[3]))
        return whole(*arguments)

    monkeypatch.setattr(small_flush, "write_small_files", counted)
    monkeypatch.setattr(small_flush, "SMALL_BUCKET_BYTES", 2_000)
    writer = TableWriter(context)
    many = [i for i in range(20_000) if writer.route(numbers(range(i, i + 1))).parts[0][0].bucket == 0][:500]
    writer.write(numbers(range(100)))
    writer.write(pa.record_batch({"id": pa.array(many, pa.int32()), "n": pa.array(many, pa.int32())}))
    TableCommit(context, "test").commit(Committable(1, writer.prepare_commit(1)))
    writer.abort()
    assert together == [BUCKETS - 1]
    assert sorted(Table(context).scan().to_arrow()["n"].to_pylist()) == sorted({*range(100), *many})
