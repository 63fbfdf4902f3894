"""A compaction job on tables that other writers use: what it compacts, and what it leaves alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidelake
import tidelake.aio
from tests.compaction.invariants import live_files
from tests.compaction.lakes import commits, content, file_counts, local_io, new_table, orphans, with_io, write
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.errors import BadInput, CommitConflict, CorruptFile, UnsupportedFeature
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.publisher import CommitEnvironment
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY

NO_WAIT = CommitEnvironment(sleep_ms=lambda _: None)
FULL = CompactionRequest(full=True)


@dataclass(frozen=True)
class Case:
    """before, minor, full: files by (partition, bucket, level), at first, after a minor and after a full compaction."""

    id: str
    keyed: bool
    partitioned: bool
    options: dict[str, str]
    before: dict[tuple[str, int, int], int]
    minor: dict[tuple[str, int, int], int]
    full: dict[tuple[str, int, int], int]


CASES = [
    Case("append", False, False, {}, {("", 0, 0): 6}, {("", 0, 0): 1}, {("", 0, 0): 1}),
    Case(
        "append, too few files to be worth it",
        False,
        False,
        {"compaction.min.file-num": "7"},
        {("", 0, 0): 6},
        {("", 0, 0): 6},
        {("", 0, 0): 1},
    ),
    Case(
        "append in buckets",
        False,
        False,
        {"bucket": "1", "bucket-key": "k", "compaction.min.file-num": "3"},
        {("", 0, 0): 6},
        {("", 0, 0): 2},
        {("", 0, 0): 2},
    ),
    Case(
        "primary key",
        True,
        True,
        {},
        {("p=a", 0, 0): 6, ("p=b", 0, 0): 6},
        {("p=a", 0, 5): 1, ("p=b", 0, 5): 1},
        {("p=a", 0, 5): 1, ("p=b", 0, 5): 1},
    ),
    Case(
        "primary key, nothing due",
        True,
        False,
        {"num-sorted-run.compaction-trigger": "7"},
        {("", 0, 0): 6},
        {("", 0, 0): 6},
        {("", 0, 7): 1},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_compaction_reduces_files_and_keeps_rows(case: Case, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=case.keyed, partitioned=case.partitioned, options=case.options)
    write(table, *commits(6, partitions="ab" if case.partitioned else "a"))
    rows = content(table)
    for request, expected in ((CompactionRequest(), case.minor), (FULL, case.full)):
        before = file_counts(table.context)
        ids = [snapshot.id for snapshot in table.snapshots()]
        report = compact_table(table.context, request)
        assert file_counts(table.context) == expected
        assert content(table) == rows
        assert sum(one.files_before for one in report.buckets) == sum(before.values()) or before == expected
        assert [s.commit_kind.value for s in table.snapshots() if s.id not in ids] == ["COMPACT"] * len(
            report.snapshot_ids
        )
        assert bool(report.buckets) == (before != expected)
        assert report.planned_snapshot_id == table.snapshots()[-1].id
    assert orphans(table.context) == set()


def test_reasons_are_reported_and_stored_in_the_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="ab"))
    (one, other) = compact_table(table.context).buckets
    assert (one.directory, one.bucket, one.reason) == ("p=a", 0, "size amplification")
    assert (one.files_before, one.files_after, one.files_written) == (6, 1, 1)
    assert one.bytes_before > one.bytes_after > 0
    assert other.directory == "p=b"
    newest = table.snapshots()[-1]
    assert newest.properties == {COMPACTION_REASON_PROPERTY: "size amplification (2)"}


def test_the_job_commits_under_its_own_user(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"commit.user-prefix": "jobs"})
    with table.writer(commit_user="etl") as writer:
        for identifier in range(1, 6):
            writer.write(pa.table({"k": [identifier], "v": ["x"], "p": ["a"]}))
            writer.commit(identifier)
    compact_table(table.context)
    assert table.snapshots()[-1].commit_user.startswith("jobs_")
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"k": [5], "v": ["again"], "p": ["a"]}))
        assert writer.commit(5) is None, "the replay is still recognised"


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_a_table_without_snapshots_is_left_alone(keyed: bool, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=keyed)
    report = compact_table(table.context, FULL)
    assert (report.planned_snapshot_id, report.buckets, table.snapshots()) == (None, (), [])


def test_an_empty_commit_is_nothing_to_compact(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with table.writer() as writer:
        writer.commit(1)
    assert compact_table(table.context, FULL).planned_snapshot_id == 1
    assert len(table.snapshots()) == 1


def test_only_the_selected_partitions_are_compacted(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="abc"))
    condition = tidelake.col("p").is_in(["a", "c"])
    compact_table(table.context, CompactionRequest(where=condition))
    assert file_counts(table.context) == {("p=a", 0, 5): 1, ("p=b", 0, 0): 6, ("p=c", 0, 5): 1}
    assert compact_table(table.context, CompactionRequest(where=tidelake.col("p") == "z")).buckets == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: CompactionRequest(where=tidelake.col("k") == 1),
            r"db.t is partitioned by p; a condition on 'k' can't select the partitions to compact",
            id="a condition on another column",
        ),
        pytest.param(
            lambda: CompactionRequest(order_by=("z",)), r"no column 'z'; the table has k, v, p", id="no such column"
        ),
        pytest.param(
            lambda: CompactionRequest(order_by=("k", "k")), r"is named twice: k, k", id="a column named twice"
        ),
        pytest.param(
            lambda: CompactionRequest(order_by=("p",)), r"p has only one value in a partition", id="a partition column"
        ),
    ],
)
def test_invalid_arguments_are_refused(make: Callable[[], CompactionRequest], message: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, partitioned=True)
    write(table, *commits(6))
    with pytest.raises(BadInput, match=message):
        compact_table(table.context, make())
    assert len(table.snapshots()) == 6


@pytest.mark.parametrize(
    ("keyed", "options"),
    [pytest.param(True, {}, id="primary key"), pytest.param(False, {"bucket": "2", "bucket-key": "k"}, id="buckets")],
)
def test_a_table_with_an_order_is_not_sorted(keyed: bool, options: dict[str, str], tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=keyed, options=options)
    with pytest.raises(BadInput, match=r"rows can't be sorted, .* bucket = -1 can be sorted; compact this"):
        compact_table(table.context, CompactionRequest(order_by=("v",)))


def test_a_table_whose_callbacks_would_not_be_called_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(1))
    with pytest.raises(UnsupportedFeature, match=r"commit.callbacks = org.example.Callback: cannot compact"):
        compact_table(table.context.with_options({"commit.callbacks": "org.example.Callback"}))


def test_a_dropped_table_is_named_in_the_error(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    tidelake.open_catalog(str(tmp_path)).drop_table("db.t")
    with pytest.raises(BadInput, match=r"db.t no longer exists: the table was dropped"):
        compact_table(table.context)


def test_columns_added_since_the_table_was_opened_are_kept(tmp_path: Path) -> None:
    opened = new_table(tmp_path)
    write(opened, *commits(3))
    newer = tidelake.open_catalog(str(tmp_path)).alter_table("db.t", [tidelake.AddColumn("extra", pa.int32())])
    with newer.writer() as writer:
        writer.write(pa.table({"k": [99], "v": ["x"], "p": ["a"], "extra": pa.array([7], pa.int32())}))
        writer.commit()
    rows = content_with_nulls(newer)
    assert compact_table(opened.context, FULL).buckets
    assert content_with_nulls(newer) == rows
    assert (99, "x", "a", 7) in rows


def content_with_nulls(table: tidelake.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def test_rows_of_a_bucket_keep_their_order(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"bucket": "1", "bucket-key": "k", "compaction.min.file-num": "2"})
    write(table, *[[(n, f"{n}", "a")] for n in (5, 3, 9, 1, 7)])
    compact_table(table.context)
    assert table.scan().to_arrow()["k"].to_pylist() == [5, 3, 9, 1, 7]
    compact_table(table.context, FULL)
    assert table.scan().to_arrow()["k"].to_pylist() == [5, 3, 9, 1, 7]


def test_all_types_and_nulls_pass_through(tmp_path: Path) -> None:
    columns = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            ("d", pa.decimal128(38, 3)),
            ("f", pa.float64()),
            ("t", pa.timestamp("us")),
            ("l", pa.list_(pa.string())),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("b", pa.binary()),
        ]
    )
    table = new_table(tmp_path, columns=columns)
    values = pa.Table.from_pylist(
        [
            {"k": 1, "d": None, "f": float("nan"), "t": None, "l": None, "m": None, "b": None},
            {"k": 2, "d": -1, "f": -0.0, "t": -1, "l": ["é", None], "m": [("x", None)], "b": b"\0"},
        ],
        columns,
    )
    for _ in range(3):
        with table.writer() as writer:
            writer.write(values)
            writer.commit()
    before = table.scan().to_arrow()
    compact_table(table.context, FULL)
    assert table.scan().to_arrow().combine_chunks().to_pydict().keys() == before.to_pydict().keys()
    assert repr(table.scan().to_arrow().to_pylist()) == repr(before.to_pylist())


# ---------------------------------------------------------------- with other writers


def before_commits(io: FaultyFileIO, action: Callable[[], object], times: int = 1) -> None:
    """Another process acts whenever a snapshot is about to be created."""
    left = [times]

    def act(call: Call) -> Fault | None:
        if call.name == "create_if_absent" and call.file_name.startswith("snapshot-") and left[0]:
            left[0] -= 1
            action()
        return None

    io.fault = act


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_rows_written_during_the_job_are_kept(keyed: bool, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=keyed)
    write(table, *commits(6))
    io = FaultyFileIO(local_io(tmp_path))
    before_commits(io, lambda: write(table, [(1000, "new", "a")]))
    report = compact_table(with_io(table, io), FULL, environment=NO_WAIT)
    assert report.lost == 0
    assert (1000, "new", "a") in content(table)
    assert [s.commit_kind.value for s in table.snapshots()[-2:]] == ["APPEND", "COMPACT"]


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_results_that_conflict_with_another_compaction_are_discarded_and_the_rest_kept(
    keyed: bool, tmp_path: Path
) -> None:
    table = new_table(tmp_path, keyed=keyed, partitioned=True)
    write(table, *commits(6, partitions="abc"))
    rows = content(table)
    io = FaultyFileIO(local_io(tmp_path))
    only_b = CompactionRequest(full=True, where=tidelake.col("p") == "b")
    before_commits(io, lambda: compact_table(table.context, only_b))
    report = compact_table(with_io(table, io), environment=NO_WAIT)
    assert report.lost == 1
    assert [one.directory for one in report.buckets] == ["p=a", "p=c"]
    assert content(table) == rows
    assert orphans(table.context) == set(), "the files of the lost attempt are deleted"
    assert [s.commit_kind.value for s in table.snapshots()[6:]] == ["COMPACT", "COMPACT"]


def test_discarded_work_is_planned_again(tmp_path: Path) -> None:
    """Another job takes three of the files, then more rows come: there is something left to do for us."""
    table = new_table(tmp_path, options={"compaction.min.file-num": "2"})
    write(table, *commits(6))
    io = FaultyFileIO(local_io(tmp_path))

    def interfere() -> None:
        compact_table(table.context)
        write(table, [(2000, "new", "a")])

    before_commits(io, interfere)
    report = compact_table(with_io(table, io), environment=NO_WAIT)
    assert (report.lost, len(report.buckets)) == (1, 1)
    assert file_counts(table.context) == {("", 0, 0): 1}
    assert orphans(table.context) == set()


def test_files_replaced_and_expired_during_the_job_are_not_reported_as_corrupt(tmp_path: Path) -> None:
    """Another job was done, and its old files are deleted already, when ours begins to read."""
    table = new_table(tmp_path, options={"compaction.min.file-num": "2"})
    write(table, *commits(3))
    rows = content(table)
    has_acted: list[Call] = []

    def act(call: Call) -> Fault | None:
        if call.name == "open_input" and call.file_name.startswith("data-") and not has_acted:
            has_acted.append(call)
            compact_table(table.context)
            for file in Path(table.location, "bucket-0").iterdir():
                if orphans_at_latest(table, file.name):
                    file.unlink()
        return None

    report = compact_table(with_io(table, FaultyFileIO(local_io(tmp_path), act)))
    assert (report.lost, report.buckets) == (1, ())
    assert content(table) == rows


def orphans_at_latest(table: tidelake.Table, name: str) -> bool:
    return name not in {file.file_name for split in table.scan().splits() for file in split.files}


def test_published_work_is_not_repeated_when_a_later_part_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job replaces the second partition's files while the first is being sorted."""
    monkeypatch.setattr(
        "tidelake.compaction.jobs.compact_job.COMMIT_BYTES_MAX", 1
    )  # each partition is committed by itself
    table = new_table(tmp_path, partitioned=True)
    write(table, *commits(6, partitions="ab"))
    rows = content(table)
    has_acted: list[Call] = []

    def act(call: Call) -> Fault | None:
        if call.name == "create_if_absent" and call.file_name.startswith("snapshot-") and not has_acted:
            has_acted.append(call)
            compact_table(table.context, CompactionRequest(full=True, where=tidelake.col("p") == "b"))
            for file in Path(table.location, "p=b", "bucket-0").iterdir():
                if orphans_at_latest(table, file.name):
                    file.unlink()
        return None

    io = FaultyFileIO(local_io(tmp_path), act)
    report = compact_table(with_io(table, io), CompactionRequest(order_by=("k",)), environment=NO_WAIT, threads=1)
    assert [one.directory for one in report.buckets] == ["p=a", "p=b"]
    assert content(table) == rows


@dataclass(frozen=True)
class Expiring:
    """A newer snapshot follows and all others expire, just before the first so many files of a kind are read."""

    id: str
    prefix: str
    times: int


@pytest.mark.parametrize(
    "case",
    [
        Expiring("a list", "manifest-list-", 1),
        Expiring("a manifest", "manifest-", 1),
        Expiring("again and again", "manifest-", 4),
    ],
    ids=lambda case: case.id,
)
def test_snapshots_that_expire_during_planning_are_not_reported_as_corrupt(case: Expiring, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(6))
    acted = [0]

    def act(call: Call) -> Fault | None:
        if call.name == "read" and call.file_name.startswith(case.prefix) and acted[0] < case.times:
            acted[0] += 1
            compact_table(table.context, FULL)
            write(table, [(1000 + acted[0], "new", "a")])
            table.expire(retain_min=1, retain_max=1, retain_ms=0)
        return None

    compact_table(with_io(table, FaultyFileIO(local_io(tmp_path), act)), FULL, environment=NO_WAIT)
    assert acted == [case.times]
    assert (1000 + case.times, "new", "a") in content(table)
    assert sum(file_counts(table.context).values()) == 1


def test_a_lost_manifest_is_reported_although_newer_snapshots_exist(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(6))
    manifests = Path(table.location, "manifest")
    oldest = min((p for p in manifests.glob("manifest-*") if "list" not in p.name), key=lambda p: p.stat().st_mtime_ns)

    def act(call: Call) -> Fault | None:
        if call.name == "read" and call.file_name == oldest.name:
            write(table, [(1000, "new", "a")])
            oldest.unlink(missing_ok=True)
        return None

    with pytest.raises(CorruptFile, match="a metadata file that a snapshot references"):
        compact_table(with_io(table, FaultyFileIO(local_io(tmp_path), act)), environment=NO_WAIT)


def test_each_manifest_is_read_once(tmp_path: Path) -> None:
    """However often a job looks."""
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="ab"))
    io = FaultyFileIO(local_io(tmp_path))
    assert compact_table(with_io(table, io), environment=NO_WAIT).buckets
    read = [call.path for call in io.calls if call.name == "read" and call.file_name.startswith("manifest")]
    assert len(read) == len(set(read)) > 0


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_a_job_ends_while_a_writer_commits_without_pause(keyed: bool, tmp_path: Path) -> None:
    """While it writes a file, more comes than it takes: to the same bucket, and to a new partition."""
    options = {"num-sorted-run.compaction-trigger": "2", "compaction.min.file-num": "2"}
    table = new_table(tmp_path, keyed=keyed, partitioned=True, options=options)
    write(table, *commits(6, partitions="ab"))
    written = [0]

    def act(call: Call) -> Fault | None:
        if call.name == "open_output" and call.file_name.startswith("data-"):
            assert written[0] < 20, "the job goes on for ever"
            written[0] += 1
            for k in (1000, 2000):
                write(table, [(k + written[0], "late", p) for p in ("a", f"n{written[0]}")])
        return None

    io = FaultyFileIO(local_io(tmp_path), act)
    report = compact_table(with_io(table, io), threads=1, environment=NO_WAIT)
    assert {one.directory for one in report.buckets} == {"p=a", "p=b"}
    assert not report.is_cancelled
    counts = file_counts(table.context)
    assert counts["p=a", 0, 0] >= 2 * written[0], "what came later is left for the next job"
    assert {row[2] for row in content(table)} == {"a", "b", *(f"n{n + 1}" for n in range(written[0]))}


def test_faster_commits_of_other_writers_cause_no_repeated_work(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, options={"commit.max-retries": "1"})
    write(table, *commits(6))
    io = FaultyFileIO(local_io(tmp_path))
    before_commits(io, lambda: write(table, [(1000, "new", "a")]), times=5)
    report = compact_table(with_io(table, io), FULL, environment=NO_WAIT)
    assert (report.lost, len(report.buckets)) == (0, 1)
    assert orphans(table.context) == set()


@pytest.mark.parametrize("write_only", ["true", "false"])
def test_old_snapshots_expire_when_the_job_has_published(write_only: str, tmp_path: Path) -> None:
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 h"}
    table = new_table(tmp_path, options={**kept, "write-only": "true"})
    write(table, *commits(6))
    if write_only == "false":
        table = tidelake.open_catalog(str(tmp_path)).alter_table("db.t", [tidelake.SetOption("write-only", "false")])
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4, 5, 6]
    rows = content(table)
    assert compact_table(table.context).snapshot_ids == (7,)
    assert [snapshot.id for snapshot in table.snapshots()] == [6, 7]
    assert content(table) == rows


def test_an_expiry_that_fails_does_not_fail_the_compaction(tmp_path: Path) -> None:
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2"}
    table = new_table(tmp_path, options=kept)
    write(table, *commits(6))
    io = FaultyFileIO(local_io(tmp_path), lambda call: Fault.BEFORE if call.file_name == "EARLIEST" else None)
    assert compact_table(with_io(table, io)).snapshot_ids == (7,)
    assert len(table.snapshots()) == 7


def test_a_lost_file_blocks_no_other_bucket(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="abc"))
    lost = next(Path(table.location, "p=b", "bucket-0").iterdir())
    lost.unlink()
    with pytest.raises(CorruptFile, match=r"no file.*Other buckets were compacted.*tidelake table verify db.t") as e:
        compact_table(table.context, threads=1)
    assert e.value.path.endswith(lost.name)
    assert file_counts(table.context) == {("p=a", 0, 5): 1, ("p=b", 0, 0): 6, ("p=c", 0, 5): 1}
    assert [snapshot.commit_kind.value for snapshot in table.snapshots()[6:]] == ["COMPACT"]
    assert orphans(table.context) == set()


def test_a_file_that_is_missing_stops_the_job(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, *commits(5))
    next(Path(table.location, "bucket-0").iterdir()).unlink()
    with pytest.raises(CorruptFile, match="a data file that a snapshot references"):
        compact_table(table.context)
    assert orphans(table.context) == set()


def test_overlapping_levels_stop_the_job(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(2))
    broken = replace(live_files(table.context)[BucketId(EMPTY_ROW, 0)][0], level=5)
    files = tuple(replace(broken, file_name=name) for name in ("a", "b"))
    message = CommitMessage(BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=files), CommitBase(snapshot_id=2))
    TableCommit(table.context, "vandal").commit(Committable(1, [message]))
    with pytest.raises(CorruptFile, match=r"levels above 0 in which no files overlap, found files a and b overlap"):
        compact_table(table.context)


def test_overlapping_levels_block_no_other_bucket(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="abc"))
    key, (file, *_) = next(item for item in sorted(live_files(table.context).items(), key=lambda item: str(item[0])))
    files = tuple(replace(file, file_name=name, level=5) for name in ("one", "other"))
    message = CommitMessage(key, CommitIncrement(new_files=files), CommitBase(snapshot_id=6))
    TableCommit(table.context, "vandal").commit(Committable(1, [message]))
    with pytest.raises(CorruptFile, match=r"files one and other overlap.*Other buckets were compacted") as e:
        compact_table(table.context)
    counts = file_counts(table.context)
    assert sorted(counts.values()) == [1, 1, 2, 6]
    damaged = {partition for (partition, _, _), count in counts.items() if count > 1}
    assert e.value.path.endswith(f"{damaged.pop()}/bucket-0")
    assert not damaged


def test_repeated_conflicts_end_the_job_with_the_reason(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"compaction.min.file-num": "2"})
    write(table, *commits(2))
    io = FaultyFileIO(local_io(tmp_path))

    def interfere() -> None:
        compact_table(table.context)
        write(table, [(3000, "new", "a")])

    before_commits(io, interfere, times=1000)
    with pytest.raises(CommitConflict, match=r"(?s)5 times in a row; .* stop one of them.*has already removed it"):
        compact_table(with_io(table, io), environment=NO_WAIT)
    assert orphans(table.context) == set()


def test_writers_and_two_jobs_at_once_lose_no_row(tmp_path: Path) -> None:
    """Concurrent threads: a loser of a race plans again, and in the end every row exists once."""
    table = new_table(tmp_path, keyed=True, options={"bucket": "2", "num-sorted-run.compaction-trigger": "2"})
    has_ended = threading.Event()
    failures: list[BaseException] = []

    def compacts() -> None:
        while not has_ended.is_set():
            try:
                compact_table(table.context)
            except CommitConflict:
                continue
            except BaseException as e:
                failures.append(e)
                return

    jobs = [threading.Thread(target=compacts) for _ in range(2)]
    for job in jobs:
        job.start()
    try:
        with table.writer(commit_user="etl") as writer:
            for n in range(1, 26):
                writer.write(pa.table({"k": [n, n + 1, 1000], "v": [f"{n}"] * 3, "p": ["a"] * 3}))
                writer.commit(n)
    finally:
        has_ended.set()
        for job in jobs:
            job.join()
    assert failures == []
    compact_table(table.context, FULL)
    assert content(table) == [(n, f"{min(n, 25)}", "a") for n in range(1, 27)] + [(1000, "25", "a")]
    assert orphans(table.context) == set()


# ------------------------------------------------------------ cancellation


def test_a_cancelled_job_commits_the_work_in_progress(tmp_path: Path) -> None:
    table = new_table(tmp_path, partitioned=True)
    write(table, *commits(6, partitions="abc"))
    cancellation = CancellationToken()
    io = FaultyFileIO(
        local_io(tmp_path), lambda call: cancellation.cancel() if call.file_name.endswith(".parquet") else None
    )
    report = compact_table(with_io(table, io), cancellation=cancellation, threads=1)
    assert report.is_cancelled
    assert [one.directory for one in report.buckets] == ["p=a"]
    assert file_counts(table.context) == {("p=a", 0, 0): 1, ("p=b", 0, 0): 6, ("p=c", 0, 0): 6}
    assert orphans(table.context) == set()


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_a_job_cancelled_immediately_leaves_the_table_unchanged(keyed: bool, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=keyed)
    write(table, *commits(6))
    cancellation = CancellationToken()
    io = FaultyFileIO(
        local_io(tmp_path), lambda call: cancellation.cancel_now() if call.file_name.endswith(".parquet") else None
    )
    report = compact_table(with_io(table, io), FULL, cancellation=cancellation)
    assert (report.is_cancelled, report.buckets) == (True, ())
    assert len(table.snapshots()) == 6
    assert orphans(table.context) == set()


def test_a_failed_bucket_deletes_the_uncommitted_files_of_all_buckets(tmp_path: Path) -> None:
    """A full disk in one: nothing is published, nothing is left behind."""
    table = new_table(tmp_path, partitioned=True)
    write(table, *commits(6, partitions="abc"))

    def full_disk(call: Call) -> Fault | None:
        return Fault.BEFORE if call.name == "open_output" and "/p=b/" in call.path else None

    with pytest.raises(OSError, match="injected"):
        compact_table(with_io(table, FaultyFileIO(local_io(tmp_path), full_disk)))
    assert len(table.snapshots()) == 6
    assert orphans(table.context) == set()


# ---------------------------------------------------------------- sorted


def test_sorting_makes_filters_read_fewer_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tidelake.compaction.jobs.compact_job.PIECE_BYTES", 100_000
    )  # so that rows reach the files in small batches
    columns = pa.schema([("x", pa.int64()), ("y", pa.string()), ("z", pa.float64())])
    options = {
        "target-file-size": "8 kb",
        "file.block-size": "4 kb",
        "source.split.target-size": "1 b",
        "source.split.open-file-cost": "1 b",
    }
    filters = {"x": tidelake.col("x") == 500, "y": tidelake.col("y") == "name-000500", "z": tidelake.col("z") < 0.02}
    touched = {}
    for strategy in ("order", "zorder", "hilbert"):
        table = new_table(tmp_path / strategy, columns=columns, options={**options, "metadata.stats-mode": "full"})
        for n in range(10):
            with table.writer() as writer:
                writer.write(scattered(n))
                writer.commit()
        rows = content_with_nulls(table)
        assert all(files(table, one) == files(table, None) for one in filters.values()), "every file may hold any value"
        before = files(table, None)
        table.compact(order_by=["x", "y", "z"], strategy=strategy)
        assert content_with_nulls(table) == rows
        assert table.snapshots()[-1].commit_kind.value == "COMPACT"
        touched[strategy] = {name: files(table, one) / files(table, None) for name, one in filters.items()}
        assert files(table, None) > 4, before
    assert touched["order"]["x"] <= 0.3
    assert touched["order"]["z"] > 0.9, "the last column of an order helps nobody"
    for strategy in ("zorder", "hilbert"):
        assert all(share < 0.8 for share in touched[strategy].values()), touched


def scattered(seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    x = chance.integers(0, 1000, 2000)
    y = [None if n == 0 else f"name-{n:06}" for n in chance.integers(0, 1000, 2000)]
    return pa.table({"x": x, "y": y, "z": chance.random(2000)})


def files(table: tidelake.Table, condition: object) -> int:
    return sum(len(split.files) for split in table.scan(filter=condition).splits())


def test_sorting_spills_to_disk_when_memory_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.compaction.jobs.compact_job.PIECE_BYTES", 20_000)
    table = new_table(tmp_path)
    write(table, *commits(8, rows=500))
    rows = content(table)
    table.compact(order_by=["v", "k"], strategy="order")
    assert content(table) == rows
    assert [row["v"] for row in table.scan().to_arrow().to_pylist()] == sorted(row[1] for row in rows)


def test_table_compact_names_the_unsupported_feature(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(BadInput, match=r"order_by.*must be list of str, not .*; pass \["):
        table.compact(order_by="k")
    with pytest.raises(BadInput, match="name the columns to sort by"):
        table.compact(strategy="zorder")
    with pytest.raises(BadInput, match="there is no clustering strategy 'z'"):
        table.compact(order_by=["k"], strategy="z")


def test_an_expression_of_pyarrow_chooses_partitions_too(tmp_path: Path) -> None:
    table = new_table(tmp_path, partitioned=True)
    write(table, *commits(6, partitions="ab"))
    table.compact(where=pa.compute.field("p") == "b")
    assert file_counts(table.context) == {("p=a", 0, 0): 6, ("p=b", 0, 0): 1}


async def test_cancelling_waits_until_the_compaction_has_ended(tmp_path: Path) -> None:
    await asyncio.to_thread(new_table, tmp_path)
    catalog = await tidelake.aio.open_catalog(str(tmp_path))
    table = await catalog.table("db.t")
    blocking = await asyncio.to_thread(tidelake.open_catalog(str(tmp_path)).table, "db.t")
    await asyncio.to_thread(write, blocking, *commits(6))
    assert (await table.compact()).buckets
    await asyncio.to_thread(write, blocking, *commits(6))
    job = asyncio.create_task(table.compact(full=True))
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert await asyncio.to_thread(orphans, blocking.context) == set()
    assert not [t for t in threading.enumerate() if t.name.startswith("compaction")]


def test_a_job_next_to_busy_writers_waits_only_briefly_between_attempts(tmp_path: Path) -> None:
    """Writers continue: doubling waits added up to 13 s next to 20 commits a second."""
    table = new_table(tmp_path, keyed=True)
    waits: list[float] = []
    write(table, *commits(3))

    def first_the_writer(call: Call) -> None:
        if call.name == "create_if_absent" and "snapshot-" in call.path and len(waits) < 9:
            write(table, *commits(1))

    io = FaultyFileIO(table.context.io, first_the_writer)
    environment = CommitEnvironment(sleep_ms=waits.append)
    report = compact_table(with_io(table, io), CompactionRequest(full=True), environment=environment)
    assert (len(report.snapshot_ids), report.lost) == (1, 0)
    assert len(waits) == 9
    assert sum(waits) < 2_000
