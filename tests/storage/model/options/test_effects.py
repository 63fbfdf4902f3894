"""The effects of options: in files, directories, snapshots and consumers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import tidelake
from tidelake.compaction.merge_tree.universal_compaction import UniversalCompactionOptions
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.publisher import CommitEnvironment
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.index_file import IndexFileMeta, index_file_path
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import SnapshotCommit, Statistics
from tidelake.storage.write.bucket_writer import PrimaryKeyBucketWriter
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string()), pa.field("p", pa.string())])
ROWS = 20_000


def rows(count: int = ROWS) -> pa.Table:
    values = [f"value {n % 50}" for n in range(count)]
    return pa.table([pa.array(range(count)), pa.array(values), pa.nulls(count, pa.string())], schema=SCHEMA)


def new_table(tmp_path: Path, options: Mapping[str, str], **more: Any) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db", if_not_exists=True)
    more = {"primary_key": ["id"], **more}
    return catalog.create_table("db.t", SCHEMA, options={"bucket": "1", "bucket-key": "id", **options}, **more)


def written(tmp_path: Path, options: Mapping[str, str], data: pa.Table | None = None, **more: Any) -> tidelake.Table:
    table = new_table(tmp_path, options, **more)
    with table.writer() as writer:
        writer.write(rows() if data is None else data)
        writer.commit()
    return table


def files(table: tidelake.Table, pattern: str) -> list[Path]:
    return sorted(Path(table.location).rglob(pattern))


def parquet(table: tidelake.Table, pattern: str = "data-*.parquet") -> pq.FileMetaData:
    (path,) = files(table, pattern)
    return pq.read_metadata(path)


# ---------------------------------------------------------------- data files


@pytest.mark.parametrize(("value", "pages"), [("true", True), ("false", False)])
def test_parquet_enable_dictionary_decides_about_dictionary_pages(value: str, pages: bool, tmp_path: Path) -> None:
    group = parquet(written(tmp_path, {"parquet.enable.dictionary": value})).row_group(0)
    has_pages = {group.column(n).has_dictionary_page for n in range(group.num_columns)}
    assert pages in has_pages
    assert pages or has_pages == {False}


@pytest.mark.parametrize("value", ["0", "1", "no"])
def test_parquet_enable_dictionary_must_be_boolean(value: str, tmp_path: Path) -> None:
    with pytest.raises(tidelake.BadInput, match=r"parquet\.enable\.dictionary = .* is neither true nor false"):
        new_table(tmp_path, {"parquet.enable.dictionary": value})


@pytest.mark.parametrize("key", ["parquet.block.size", "file.block-size"])
def test_a_block_size_bounds_row_groups(key: str, tmp_path: Path) -> None:
    assert parquet(written(tmp_path / "a", {})).num_row_groups == 1
    assert parquet(written(tmp_path / "b", {key: "32 kb", "file.compression": "none"})).num_row_groups > 2


def test_parquet_enable_dictionary_may_be_set_for_one_column(tmp_path: Path) -> None:
    options = {"parquet.enable.dictionary": "false", "parquet.enable.dictionary#v": "true"}
    group = parquet(written(tmp_path, options)).row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.has_dictionary_page} == {"v"}


def test_avro_codec_wins_over_the_codec_of_the_table(tmp_path: Path) -> None:
    (path,) = files(written(tmp_path, {"file.format": "avro", "avro.codec": "deflate"}), "data-*.avro")
    assert b"deflate" in path.read_bytes()[:4096]


def test_parquet_page_size_makes_more_offsets(tmp_path: Path) -> None:
    sizes = {}
    for size in ("1 mb", "1 kb"):
        options = {"parquet.page.size": size, "parquet.enable.dictionary": "false", "file.compression": "none"}
        (path,) = files(written(tmp_path / size.replace(" ", ""), options), "data-*.parquet")
        sizes[size] = path.stat().st_size
    assert sizes["1 kb"] > sizes["1 mb"]  # a header for every page


def test_parquet_compression_codec_zstd_level_wins_over_that_of_the_table(tmp_path: Path) -> None:
    noise = rows().set_column(1, SCHEMA.field("v"), pa.array([f"{n * 7919 % 99991} is a number" for n in range(ROWS)]))
    sizes = {}
    for level in ("1", "19"):
        options = {"parquet.compression.codec.zstd.level": level, "parquet.enable.dictionary": "false"}
        (path,) = files(written(tmp_path / level, options, noise), "data-*.parquet")
        sizes[level] = path.stat().st_size
    assert sizes["19"] < sizes["1"]


@pytest.mark.parametrize(("option", "value"), [("orc.compress", "zlib"), ("file.compression", "lz4")])
def test_options_decide_format_and_codec(option: str, value: str, tmp_path: Path) -> None:
    (path,) = files(written(tmp_path, {"file.format": "orc", option: value}), "data-*.orc")
    assert orc.ORCFile(path).compression.lower() == value


def test_orc_dictionary_key_threshold_turns_dictionaries_off(tmp_path: Path) -> None:
    sizes = {}
    for threshold in ("0", "1"):
        options = {"file.format": "orc", "orc.dictionary.key.threshold": threshold, "file.compression": "none"}
        (path,) = files(written(tmp_path / threshold, options), "data-*.orc")
        sizes[threshold] = path.stat().st_size
    assert sizes["1"] < sizes["0"] / 2


def test_orc_stripe_size_bounds_stripes(tmp_path: Path) -> None:
    noise = rows(200_000).set_column(1, SCHEMA.field("v"), pa.array([f"{n * 7919 % 999983}" for n in range(200_000)]))
    stripes = {}
    for size in ("64 mb", "64 kb"):
        options = {"file.format": "orc", "orc.stripe.size": size, "file.compression": "none"}
        (path,) = files(written(tmp_path / size.replace(" ", ""), options, noise), "data-*.orc")
        stripes[size] = orc.ORCFile(path).nstripes
    assert stripes["64 kb"] > stripes["64 mb"]


def test_changelog_files_have_their_own_codec(tmp_path: Path) -> None:
    table = written(tmp_path, {"changelog-producer": "input", "changelog-file.compression": "snappy"})
    assert parquet(table, "changelog-*.parquet").row_group(0).column(0).compression == "SNAPPY"
    assert parquet(table, "data-*.parquet").row_group(0).column(0).compression == "ZSTD"


def test_dense_statistics_omit_columns_without_statistics(tmp_path: Path) -> None:
    kept = {}
    for dense in ("true", "false"):
        options = {"metadata.stats-dense-store": dense, "metadata.stats-mode": "none"}
        (split,) = written(tmp_path / dense, options).scan().splits()
        (file,) = split.files
        kept[dense] = file.value_stats_columns
    assert kept == {"true": (), "false": None}


@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_manifests_have_the_configured_codec(codec: str, tmp_path: Path) -> None:
    table = written(tmp_path, {"manifest.compression": codec}, rows(3))
    paths = files(table, "manifest-*")
    assert len(paths) >= 3
    assert all(b"avro.codec" in path.read_bytes() for path in paths)
    assert all(codec.encode() in path.read_bytes() for path in paths)


# ---------------------------------------------------------------- directories


def test_data_files_are_stored_in_the_configured_directory(tmp_path: Path) -> None:
    table = written(tmp_path, {"data-file.path-directory": "rows"})
    assert files(table, "data-*.parquet") == files(table, "rows/bucket-0/*.parquet") != []
    assert table.scan().to_arrow().num_rows == ROWS


def test_rows_with_a_null_partition_use_the_configured_name(tmp_path: Path) -> None:
    table = written(tmp_path, {"partition.default-name": "nothing"}, rows(3), primary_key=[], partition_by=["p"])
    assert [path.parent.parent.name for path in files(table, "data-*.parquet")] == ["p=nothing"]
    assert table.scan().to_arrow()["p"].to_pylist() == [None, None, None]


@pytest.mark.parametrize(("legacy", "name"), [("true", "d=20000"), ("false", "d=2024-10-04")])
def test_partitions_are_named_by_the_internal_value_or_as_sql_casts_it(legacy: str, name: str, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([("d", pa.date32()), ("v", pa.int64())])
    table = catalog.create_table("db.t", schema, partition_by=["d"], options={"partition.legacy-name": legacy})
    with table.writer() as writer:
        writer.write(pa.table({"d": pa.array([20000], pa.int32()).cast(pa.date32()), "v": [1]}, schema=schema))
        writer.commit()
    assert [path.parent.parent.name for path in files(table, "data-*.parquet")] == [name]


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize(("spillable", "count"), [("true", 1), ("false", 3)])
def test_a_full_buffer_is_spilled_or_flushed(spillable: str, count: int, tmp_path: Path) -> None:
    context = new_table(tmp_path, {"write-buffer-spillable": spillable}).context
    writer = TableWriter(context, memory=MemoryBudget(1))  # full after each batch
    for _ in range(3):
        writer.write(rows(3))
    (message,) = writer.prepare_commit(1)
    writer.abort()
    assert len(message.increment.new_files) == count


def test_a_sequence_field_decides_which_row_of_a_key_wins(tmp_path: Path) -> None:
    table = new_table(tmp_path, {"sequence.field": "v"})
    for value in ("b", "a"):
        with table.writer() as writer:
            writer.write(pa.table([pa.array([1]), pa.array([value]), pa.nulls(1, pa.string())], schema=SCHEMA))
            writer.commit()
    assert table.scan().to_arrow()["v"].to_pylist() == ["b"]


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(("options", "splits"), [({}, 1), ({"source.split.target-size": "1 b"}, 3)])
def test_splits_have_the_configured_size(options: Mapping[str, str], splits: int, tmp_path: Path) -> None:
    table = new_table(tmp_path, options, primary_key=[])
    for _ in range(3):
        with table.writer() as writer:
            writer.write(rows(3))
            writer.commit()
    assert len(table.scan().splits()) == splits


# ---------------------------------------------------------------- compaction


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        pytest.param({}, [1, 2], id="every update"),
        pytest.param({"changelog-producer.row-deduplicate": "true"}, [2], id="no update that changes nothing"),
        pytest.param(
            {
                "changelog-producer.row-deduplicate": "true",
                "changelog-producer.row-deduplicate-ignore-fields": "v",
            },
            [],
            id="of a column that is ignored",
        ),
    ],
)
def test_options_decide_which_updates_are_no_changes(
    options: Mapping[str, str], changes: list[int], tmp_path: Path
) -> None:
    table = new_table(tmp_path, {"changelog-producer": "full-compaction", **options})
    for values in (["a", "a"], ["a", "b"]):
        with table.writer() as writer:
            writer.write(pa.table([pa.array([1, 2]), pa.array(values), pa.nulls(2, pa.string())], schema=SCHEMA))
            writer.commit()
        table.compact(full=True)
    updates = [row["id"] for batch in table.changes(start=3) for row in pa.Table.from_batches([batch.rows]).to_pylist()]
    assert sorted(set(updates)) == changes


PICKING = [
    ({"compaction.max-size-amplification-percent": "7"}, "max_size_amplification_percent", 7),
    ({"compaction.size-ratio": "7"}, "size_ratio_percent", 7),
    ({"compaction.offpeak.start.hour": "7"}, "off_peak.start_hour", 7),
    ({"compaction.offpeak.end.hour": "7"}, "off_peak.end_hour", 7),
    ({"compaction.offpeak-ratio": "7"}, "off_peak.ratio_percent", 7),
    ({"compaction.optimization-interval": "7 s"}, "optimization_interval_ms", 7_000),
    ({"compaction.total-size-threshold": "7 kb"}, "total_size_threshold_bytes", 7_168),
    ({"compaction.incremental-size-threshold": "7 kb"}, "incremental_size_threshold_bytes", 7_168),
    (
        {"force-lookup": "true", "lookup-compact": "gentle", "lookup-compact.max-interval": "7"},
        "force_level_0_every",
        7,
    ),
]


@pytest.mark.parametrize(("options", "setting", "value"), PICKING)
def test_options_decide_the_picked_compaction(options: Mapping[str, str], setting: str, value: int) -> None:
    def of(settings: object) -> object:
        for name in setting.split("."):
            settings = getattr(settings, name)
        return settings

    assert of(UniversalCompactionOptions.of(TableOptions(options))) == value
    assert of(UniversalCompactionOptions()) != value


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("key", ["lookup-wait", "changelog-producer.lookup-wait"])
def test_a_commit_waits_for_lookups_unless_disabled(
    key: str, wait: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older name of the option is as good."""
    waits: list[bool] = []
    prepare = PrimaryKeyBucketWriter.prepare_commit

    def prepare_commit(self: Any, *, wait_compaction: bool = False, full_compaction: bool = False) -> None:
        waits.append(wait_compaction)
        prepare(self, wait_compaction=wait_compaction, full_compaction=full_compaction)

    monkeypatch.setattr(PrimaryKeyBucketWriter, "prepare_commit", prepare_commit)
    table = new_table(tmp_path, {"force-lookup": "true", key: str(wait).lower()})
    with table.writer(commit_user="w") as writer:
        writer.write(rows(3))
        writer.commit(1)
    assert waits == [wait]


def test_a_sort_sample_that_is_too_coarse_is_refused(tmp_path: Path) -> None:
    options = {"bucket": "-1", "sort-compaction.local-sample.magnification": "1"}
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, options=options)
    with table.writer() as writer:
        writer.write(rows(10))
        writer.commit()
    with pytest.raises(tidelake.BadInput, match="too coarse"):
        table.compact(order_by=["id"])


# ---------------------------------------------------------------- commits and expiry


@pytest.mark.parametrize(("value", "snapshots"), [("true", 0), ("false", 1)])
def test_an_empty_commit_makes_a_snapshot_only_if_configured(value: str, snapshots: int, tmp_path: Path) -> None:
    table = new_table(tmp_path, {"snapshot.ignore-empty-commit": value})
    with table.writer() as writer:
        writer.commit()
    assert len(table.snapshots()) == snapshots


EXPIRING = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}


def test_an_expired_consumer_protects_no_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, {**EXPIRING, "consumer.expiration-time": "1 h"})
    for name in ("idle", "busy"):
        Consumer(table.context.io, table.context.paths, name).write(1)
    path = Path(table.context.paths.consumer("idle"))
    os.utime(path, (0, 0))
    with table.writer(commit_user="w") as writer:
        for number in (1, 2):
            writer.write(rows(3))
            writer.commit(number)
    assert not path.exists()
    assert Path(table.context.paths.consumer("busy")).exists()
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2]  # the busy one has still to read 1


@pytest.mark.parametrize(("value", "left"), [("false", [1, 2, 3]), ("true", [3])])
def test_changelog_only_consumers_protect_no_snapshot(value: str, left: list[int], tmp_path: Path) -> None:
    table = new_table(tmp_path, {**EXPIRING, "consumer.changelog-only": value})
    Consumer(table.context.io, table.context.paths, "c").write(1)
    with table.writer(commit_user="w") as writer:
        for number in (1, 2, 3):
            writer.write(rows(3))
            writer.commit(number)
    table.expire()
    assert [snapshot.id for snapshot in table.snapshots()] == left


def test_one_expiry_round_removes_at_most_the_configured_number() -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    for limit in (2, 4):
        retention = Retention.of_snapshots(TableOptions({**kept, "snapshot.expire.limit": str(limit)}))
        assert retention.earliest_to_keep(1, 9, 10**15, lambda _: 0) == 1 + limit


MINUTE = 60_000


@pytest.mark.parametrize(
    ("options", "first"),
    [
        pytest.param({"snapshot.time-retained": "3 min"}, 16, id="younger ones"),
        pytest.param({"snapshot.time-retained": "5 min"}, 14, id="more of them"),
        pytest.param({"snapshot.time-retained": "1 ms", "snapshot.num-retained.min": "7"}, 13, id="at least 7"),
        pytest.param({"snapshot.num-retained.max": "12"}, 8, id="at most 12"),
    ],
)
def test_options_decide_which_snapshots_are_kept(options: Mapping[str, str], first: int) -> None:
    """One is published each minute, the 19th now."""
    few = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "100", "snapshot.time-retained": "1 d"}
    retention = Retention.of_snapshots(TableOptions({**few, **options}))
    assert retention.earliest_to_keep(1, 19, 19 * MINUTE, lambda snapshot_id: snapshot_id * MINUTE) == first


class _NeverFirst:
    """Commits that always find another snapshot in the place."""

    keeps_partitions = False

    def __call__(self, context: object) -> SnapshotCommit:
        return self

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        return False

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        return False


def test_retry_waits_stay_between_the_configured_bounds(tmp_path: Path) -> None:
    waits = {"commit.min-retry-wait": "7 ms", "commit.max-retry-wait": "20 ms", "commit.max-retries": "4"}
    context = replace(new_table(tmp_path, waits).context, snapshot_commit=_NeverFirst())
    waited: list[float] = []
    environment = CommitEnvironment(sleep_ms=waited.append, random=lambda: 0.0)
    with pytest.raises(tidelake.CommitConflict, match="5 times in a row"):
        TableCommit(context, "w", environment=environment).commit(Committable(1, ()))
    assert waited == [7, 14, 20, 20]


@pytest.mark.parametrize(("value", "directory"), [("false", "index"), ("true", "bucket-0")])
def test_index_files_are_stored_in_the_configured_directory(value: str, directory: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, {"index-file-in-data-file-dir": value})
    path = index_file_path(table.context, b"\0" * 12, 0, IndexFileMeta("HASH", "index-1"))
    assert Path(path).parent.name == directory


# ---------------------------------------------------------------- sizes

TARGET = 1024 * 1024


@pytest.mark.parametrize("file_format", ["parquet", "avro"])  # ORC: Java, too, only knows of whole stripes
def test_files_roll_at_their_target_size_not_at_the_next_65536_rows(file_format: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(7).integers(0, 2**63, (120_000, 2), np.int64)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "-1", "target-file-size": "1 mb", "file.format": file_format}
    table = catalog.create_table("db.t", schema, options=options)
    with table.writer() as writer:
        writer.write(pa.table([noise[:, 0], noise[:, 1]], schema=schema))
        writer.commit()
    written = [file for split in table.scan().splits() for file in split.files]
    *full, _ = (file.file_size for file in written)
    assert len(full) >= 1
    assert all(0.8 * TARGET <= size <= 1.2 * TARGET for size in full), full
    assert all(file.row_count % 1_000 == 0 for file in written)  # where Java looks, too
