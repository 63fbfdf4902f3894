"""Which partitions expire, when they are checked, and what remains."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.storage.model.snapshots.tables import (
    FakeTime,
    added,
    committer,
    data_file,
    make_table,
    partition,
    with_increment,
)
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.storage.commit import table_commit
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.maintenance.partition_done import write_success_file
from tidelake.storage.maintenance.partition_expiry import PartitionExpiry, expire_partitions
from tidelake.storage.model.table import TableContext

DAY = {"partition.expiration-time": "1 d"}
NOW = datetime(2024, 5, 2, 12)
LOCAL_MS = 1_714_651_200_000  # NOW as if it were UTC


def new_table(*values: str | None, options: Mapping[str, str] | None = None) -> TableContext:
    table = make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", partitioned=True, options=options)
    for number, value in enumerate(values, start=1):
        committer(table).commit(Committable(number, [added(f"f{number}", in_partition=partition(value))]))
    return table


def left(table: TableContext) -> set[bytes]:
    latest = table.snapshots.latest()
    assert latest is not None
    return {entry.partition for entry in live_entries(table, latest)}


@pytest.mark.parametrize(
    ("values", "options", "going"),
    [
        pytest.param(["2024-05-01", "2024-05-02"], {}, ["p=2024-05-01"], id="the date of the first column"),
        pytest.param(
            ["2024-05-01 12:00:00", "2024-05-01 11:59:59"], {}, ["p=2024-05-01 11%3A59%3A59"], id="to the second"
        ),
        pytest.param(["x", None, "20240101"], {}, [], id="what names no time stays"),
        pytest.param(
            ["20240501", "20240502"], {"partition.timestamp-formatter": "yyyyMMdd"}, ["p=20240501"], id="a formatter"
        ),
        pytest.param(
            ["05-01", "05-02", None],
            {"partition.timestamp-pattern": "2024-$p"},
            ["p=05-01"],
            id="a pattern",
        ),
        pytest.param(
            ["2024-04-03", "2024-04-01", "2024-04-02"],
            {"partition.expiration-max-num": "2"},
            ["p=2024-04-01", "p=2024-04-02"],
            id="only so many, the smallest first",
        ),
    ],
)
def test_partitions_expire_by_the_time_in_their_values(
    values: list[str | None], options: dict[str, str], going: list[str]
) -> None:
    table = new_table(*values, options=DAY | options)
    assert expire_partitions(table, now=NOW, dry_run=True) == going
    assert len(left(table)) == len(values)
    assert expire_partitions(table, now=NOW) == going
    assert len(left(table)) == len(values) - len(going)


def test_partitions_expire_by_their_last_update() -> None:
    table = new_table(options=DAY | {"partition.expiration-strategy": "update-time"})
    old, young = LOCAL_MS - 86_400_001, LOCAL_MS - 86_399_999
    made: list[tuple[str, str, int | None]] = [
        ("a", "old", old),
        ("b", "touched", old),
        ("c", "touched", young),
        ("d", "unknown", None),
    ]
    for number, (name, value, time_ms) in enumerate(made, start=1):
        message = added(name, in_partition=partition(value))
        files = (data_file(name, creation_time_ms=time_ms),)
        committer(table).commit(Committable(number, [with_increment(message, new_files=files)]))
    assert expire_partitions(table, now=NOW) == ["p=old"]
    assert left(table) == {partition("touched"), partition("unknown")}


def test_a_partition_written_during_its_expiry_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ones go is decided again for the snapshot that the commit builds on."""
    table = new_table(options=DAY | {"partition.expiration-strategy": "update-time"})
    message = added("a", in_partition=partition("p"))
    old = (data_file("a", creation_time_ms=LOCAL_MS - 10**9),)
    committer(table).commit(Committable(1, [with_increment(message, new_files=old)]))
    new = (data_file("b", creation_time_ms=LOCAL_MS),)
    remove = table_commit.TableCommit.remove_partitions

    def write_first(self: table_commit.TableCommit, choose: object) -> None:
        committer(table).commit(Committable(2, [with_increment(message, new_files=new)]))
        remove(self, choose)  # type: ignore[arg-type]

    monkeypatch.setattr(table_commit.TableCommit, "remove_partitions", write_first)
    expire_partitions(table, now=NOW)
    assert left(table) == {partition("p")}


def test_partitions_expire_in_batches_of_one_commit_each() -> None:
    table = new_table("2024-04-01", "2024-04-02", "2024-04-03", options=DAY | {"partition.expiration-batch-size": "2"})
    expire_partitions(table, now=NOW)
    assert [snapshot.commit_kind.value for snapshot in table.snapshots.all()][3:] == ["OVERWRITE", "OVERWRITE"]
    assert left(table) == set()


def test_a_table_without_partitions_or_without_a_time_is_named() -> None:
    unpartitioned = make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t")
    with pytest.raises(tidelake.BadInput, match="is not partitioned"):
        expire_partitions(unpartitioned)
    with pytest.raises(tidelake.BadInput, match=r"no option partition\.expiration-time"):
        expire_partitions(new_table("2024-05-01"))


# ---------------------------------------------------------------- during commits


def test_partition_expiry_checks_once_per_interval() -> None:
    time = FakeTime()
    table = new_table("2020-01-01", options=DAY)
    step = PartitionExpiry(table, now_ms=lambda: time.now_ms, random_fraction=lambda: 0.25)
    time.now_ms += 45 * 60_000
    assert not step.is_due()
    time.now_ms += 1
    assert step.is_due()
    step.run()
    assert left(table) == set()
    assert not step.is_due(respect_interval=False)
    time.now_ms += 3_600_001
    assert step.is_due()


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        pytest.param({"partition.expiration-check-interval": "0 s"}, True, id="always"),
        pytest.param({"partition.expiration-check-interval": "1000 d"}, False, id="not yet"),
        pytest.param(
            {"partition.expiration-check-interval": "1000 d", "end-input.check-partition-expire": "true"},
            True,
            id="at the end of input",
        ),
        pytest.param({"partition.expiration-check-interval": "0 s", "write-only": "true"}, False, id="write-only"),
    ],
)
def test_a_writer_drops_old_partitions_when_it_closes(options: dict[str, str], gone: bool, tmp_path: Path) -> None:
    table = public_table(tmp_path, options | DAY)
    with table.writer() as writer:
        writer.write(rows("2020-01-01", f"{datetime.now():%Y-%m-%d}"))
        writer.commit(1)
    found = {row["p"] for row in table.scan().to_arrow().to_pylist()}
    assert ("2020-01-01" not in found) is gone
    assert len(found) == 2 - gone


def public_table(tmp_path: Path, options: Mapping[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([("k", pa.int32()), ("p", pa.string())])
    return catalog.create_table("db.t", schema, partition_by=["p"], options=dict(options))


def rows(*partitions: str) -> pa.Table:
    return pa.table({"k": pa.array(range(len(partitions)), pa.int32()), "p": list(partitions)})


def test_a_compaction_job_drops_old_partitions_or_skips_them(tmp_path: Path) -> None:
    options = DAY | {"write-only": "true", "compaction.skip-expired-partitions": "true"}
    table = public_table(tmp_path, options | {"partition.expiration-check-interval": "0 s"})
    today = f"{datetime.now():%Y-%m-%d}"
    for _ in range(2):
        with table.writer() as writer:
            writer.write(rows("2020-01-01", today))
            writer.commit()
    report = compact_table(table.context, CompactionRequest(full=True))
    assert [bucket.partition for bucket in report.buckets] == [{"p": today}]
    assert {row["p"] for row in table.scan().to_arrow().to_pylist()} == {today}


def test_rows_of_a_partition_that_names_no_time_are_refused_where_the_table_is_strict(tmp_path: Path) -> None:
    options = {"partition.timestamp-formatter": "yyyy-MM-dd", "partition.timestamp-format.strict": "true"}
    table = public_table(tmp_path, options)
    with table.writer() as writer:
        writer.write(rows("2024-05-01"))
        with pytest.raises(tidelake.BadInput, match=r"partition p=20240501 is not a time"):
            writer.write(rows("20240501"))
        writer.commit()
    assert table.scan().to_arrow().num_rows == 1


def test_empty_directories_are_deleted_with_snapshots_if_enabled(tmp_path: Path) -> None:
    kept: dict[str, bool] = {}
    for clean in ("false", "true"):
        options = {"snapshot.clean-empty-directories": clean, "snapshot.num-retained.min": "1"}
        table = public_table(tmp_path / clean, options | {"snapshot.num-retained.max": "1", "write-only": "true"})
        with table.writer() as writer:
            writer.write(rows("a", "b"))
            writer.commit()
        table.truncate(partition={"p": "a"})
        table.expire(retain_min=1, retain_max=1, retain_ms=0)
        root = Path(table.location)
        assert (root / "p=b" / "bucket-0").is_dir()
        kept[clean] = (root / "p=a").is_dir()
    assert kept == {"false": True, "true": False}


# ---------------------------------------------------------------- marked as done


def test_partitions_are_marked_done_manually_and_after_batch_writes(tmp_path: Path) -> None:
    table = public_table(tmp_path, {"partition.end-input-to-done": "true"})
    with table.writer() as writer:
        writer.write(rows("a"))
        writer.commit()
    done = Path(table.location) / "p=a" / "_SUCCESS"
    assert list(json.loads(done.read_text())) == ["creationTime", "modificationTime"]
    with table.writer() as writer:
        writer.write(rows("b", "c"))
        writer.commit(1)  # numbered: a stream, which has no end
    assert not (Path(table.location) / "p=b" / "_SUCCESS").exists()
    assert table.mark_done([{"p": "b"}], dry_run=True) == ["p=b"]
    assert not (Path(table.location) / "p=b" / "_SUCCESS").exists()
    assert table.mark_done([{"p": "b"}]) == ["p=b"]
    assert (Path(table.location) / "p=b" / "_SUCCESS").exists()
    with pytest.raises(tidelake.BadInput, match="no partition with rows that matches: p=z"):
        table.mark_done([{"p": "z"}])
    assert table.scan().to_arrow().num_rows == 3
    assert table.clean_orphans(older_than_ms=0, dry_run=True).paths == ()


def test_a_success_file_keeps_its_creation_time() -> None:
    io = MemoryFileIO()
    path = f"memory://{uuid.uuid4()}/_SUCCESS"
    write_success_file(io, path, 1)
    write_success_file(io, path, 2)
    assert json.loads(io.read(path)) == {"creationTime": 1, "modificationTime": 2}
    io.write(path, b"")
    write_success_file(io, path, 3)
    assert json.loads(io.read(path)) == {"creationTime": 3, "modificationTime": 3}


def test_the_worker_expires_partitions(tmp_path: Path) -> None:
    table = new_table("2020-01-01", options=DAY | {"partition.expiration-check-interval": "0 s"})
    worker = MaintenanceWorker()
    worker.watch(table)(1)
    worker.close(finish=True)
    assert left(table) == set()


def test_the_age_may_be_given_as_an_argument(tmp_path: Path) -> None:
    table = public_table(tmp_path, {})
    with table.writer() as writer:
        writer.write(rows("2020-01-01"))
        writer.commit()
    assert table.expire_partitions(older_than=timedelta(days=36500)) == []
    assert table.expire_partitions(older_than=timedelta(days=1)) == ["p=2020-01-01"]
