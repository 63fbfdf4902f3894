"""Java Paimon reads our commits and commits on top of them, and we continue to read."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.model.snapshots.tables import (
    committer,
    data_file,
    latest,
    live_names,
    make_table,
    partition,
    snapshots,
)
from tests.support.java_oracle import JavaOracle
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext

TABLE = "db.t"


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    """An append table partitioned by p, without buckets."""
    options = {"manifest.merge-min-count": "3", "snapshot.num-retained.min": "100"}
    return make_table(LocalFileIO(), str(tmp_path / "db.db" / "t"), partitioned=True, options=options)


def written(table: TableContext, name: str, where: str | None, rows: list[tuple[int, int]]) -> CommitMessage:
    """A real file of k, v."""
    values = {"k": [k for k, _ in rows], "v": [v for _, v in rows], "p": [where] * len(rows)}
    types = {"k": pa.int32(), "v": pa.int64(), "p": pa.string()}
    fields = [pa.field(n, t, metadata={b"PARQUET:field_id": str(i).encode()}) for i, (n, t) in enumerate(types.items())]
    directory = Path(table.paths.bucket_directory(f"p={where or '__DEFAULT_PARTITION__'}", 0))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.parquet"
    pq.write_table(pa.table(values, schema=pa.schema(fields)), path)
    file = data_file(path.name, rows=len(rows), file_size=path.stat().st_size)
    return CommitMessage(BucketId(partition(where), 0), CommitIncrement(new_files=(file,)))


def compaction(where: str, before: list[CommitMessage], after: CommitMessage) -> CommitMessage:
    gone: tuple[DataFileMeta, ...] = tuple(file for message in before for file in message.increment.new_files)
    compacted = CompactResult(before=gone, after=after.increment.new_files)
    return CommitMessage(BucketId(partition(where), 0), CommitIncrement(compacted=compacted))


def test_java_reads_every_kind_of_commit_and_continues(
    table: TableContext, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    commit = committer(table)
    a1, a2 = written(table, "a1", "a", [(1, 10)]), written(table, "a2", "a", [(2, 20)])
    commit.commit(Committable(1, [a1], watermark=77, properties={"position": "é"}))
    commit.commit(Committable(2, [a2, written(table, "b1", "b", [(3, 30)]), written(table, "n1", None, [(4, 40)])]))
    commit.commit(Committable(3))
    merged = written(table, "a3", "a", [(1, 10), (2, 20)])
    commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, [compaction("a", [a1, a2], merged)]))
    commit.overwrite(Committable(4, [written(table, "b2", "b", [(5, 50)])]), {"p": "b"})
    commit.drop_partitions([{"p": None}])

    def keys(**when: Any) -> list[int]:
        return sorted(row["k"] for row in java_oracle.read(tmp_path, TABLE, **when))

    assert [keys(snapshot=n) for n in range(1, 7)] == [
        [1],
        [1, 2, 3, 4],
        [1, 2, 3, 4],
        [1, 2, 3, 4],
        [1, 2, 4, 5],
        [1, 2, 5],
    ]
    reported = java_oracle.system(tmp_path, TABLE, "snapshots")
    assert [(row["snapshot_id"], row["commit_kind"], row["total_record_count"]) for row in reported] == [
        (s.id, str(s.commit_kind), s.total_record_count) for s in snapshots(table)
    ]
    assert [row["watermark"] for row in reported] == [77] * 6
    listed = java_oracle.system(tmp_path, TABLE, "files")
    assert sorted(row["file_path"].rpartition("/")[2] for row in listed) == live_names(table)
    manifests = java_oracle.system(tmp_path, TABLE, "manifests")
    assert sum(row["num_added_files"] - row["num_deleted_files"] for row in manifests) == len(live_names(table))

    java_oracle.write(tmp_path, TABLE, [{"k": 6, "v": 60, "p": "a"}], commit_user="java", commit_id=1)
    assert latest(table).commit_user == "java"
    assert commit.commit(Committable(5, [written(table, "a4", "a", [(7, 70)])])) == 8
    assert keys() == [1, 2, 5, 6, 7]


def test_java_and_tidelake_merge_each_others_manifests(
    table: TableContext, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    commit = committer(table)
    for number in range(1, 13):
        if number % 3:
            commit.commit(Committable(number, [written(table, f"f{number}", "a", [(number, number)])]))
        else:
            java_oracle.write(
                tmp_path, TABLE, [{"k": number, "v": number, "p": "a"}], commit_user="java", commit_id=number
            )
    assert sorted(row["k"] for row in java_oracle.read(tmp_path, TABLE)) == list(range(1, 13))
    assert len(live_names(table)) == latest(table).total_record_count == 12
    assert len(java_oracle.system(tmp_path, TABLE, "manifests")) < 6


def test_java_reads_our_tags(table: TableContext, tmp_path: Path, java_oracle: JavaOracle) -> None:
    committer(table).commit(Committable(1, [written(table, "a1", "a", [(1, 10)])]))
    tags = TagStore(table.io, table.paths)
    now = datetime(2024, 5, 6, 7, 8, 9, 123456)
    tags.create("plain", latest(table), now=now)
    tags.create("kept a day", latest(table), retained=timedelta(days=1), now=now)
    committer(table).commit(Committable(2, [written(table, "a2", "a", [(2, 20)])]))
    assert [row["k"] for row in java_oracle.read(tmp_path, TABLE, tag="kept a day")] == [1]
    reported = {row["tag_name"]: row for row in java_oracle.system(tmp_path, TABLE, "tags")}
    assert reported.keys() == {"plain", "kept a day"}
    assert reported["kept a day"]["time_retained"] == "PT24H"
    assert str(reported["kept a day"]["create_time"]).startswith("2024-05-06T07:08:09.123")


@pytest.mark.parametrize("manifest_format", ["orc", "parquet", "avro"])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "null"])
def test_we_read_manifests_of_any_format_that_java_had(
    tmp_path: Path, java_oracle: JavaOracle, manifest_format: str, compression: str
) -> None:
    if compression == "null" and manifest_format != "avro":
        compression = "none"
    options = {"manifest.format": manifest_format, "manifest.compression": compression}
    columns = [{"name": "k", "type": "INT"}, {"name": "p", "type": "STRING"}]
    java_oracle.create(tmp_path, TABLE, columns, partition_keys=["p"], options=options)
    for number in range(3):
        java_oracle.write(tmp_path, TABLE, [{"k": number, "p": f"p{number}"}], commit_user="java", commit_id=number)
    table = TableContext.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), TABLE)
    before = sorted(row["file_path"].rpartition("/")[2] for row in java_oracle.system(tmp_path, TABLE, "files"))
    assert live_names(table) == before


def test_java_accepts_our_snapshot_as_base_after_expiry(
    table: TableContext, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    commit = committer(table)
    for number in range(1, 6):
        commit.commit(Committable(number, [written(table, f"f{number}", "a", [(number, number)])]))
    java_oracle.expire(tmp_path, TABLE, retain_max=2, retain_min=1)
    ids = table.snapshots.ids()
    assert ids[0] > 1
    assert commit.commit(Committable(6, [written(table, "f6", "a", [(6, 6)])])) == 6
    assert sorted(row["k"] for row in java_oracle.read(tmp_path, TABLE)) == list(range(1, 7))
