"""Which snapshots have changes, in which files, and how a follower moves from one to the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import Case, case_id, check_members, unpack_golden, vectors
from tidelake.errors import SnapshotExpired
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.options import ChangelogProducer, TableOptions
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.read.changes.change_reader import change_source, files_of_changes
from tidelake.storage.read.follow import Follower
from tidelake.storage.read.state_files import is_read_first

CASES = vectors("stream_read_rules")
MEMBERS = {"changelog_producer", "snapshot", "expect"}
FOLLOW_UPS = [case for case in CASES if not case.get("snapshot", {}).get("initial")]
FIRST_PLANS = [case for case in CASES if case.get("snapshot", {}).get("initial")]


@pytest.mark.parametrize("case", FOLLOW_UPS, ids=case_id)
def test_stream_read_rules(case: Case) -> None:
    check_members(case, MEMBERS)
    snapshot = case["snapshot"]
    check_members(snapshot, {"initial", "kind", "changelog"})
    source = change_source(
        files_of_changes(ChangelogProducer(case["changelog_producer"])),
        CommitKind(snapshot["kind"]),
        has_changelog=snapshot.get("changelog", False),
    )
    assert source == case["expect"]


FIRST_LEVELS = {"all levels merged": [True, True, True], "only level > 0": [False, True, True]}


@pytest.mark.parametrize("case", FIRST_PLANS, ids=case_id)
def test_the_changelog_producer_decides_the_levels_of_the_first_read(case: Case) -> None:
    check_members(case, MEMBERS)
    options = TableOptions({"changelog-producer": case["changelog_producer"], "num-levels": "3"})
    assert [is_read_first(level, options) for level in range(3)] == FIRST_LEVELS[case["expect"]]


def test_with_full_compaction_a_stream_starts_with_the_highest_level() -> None:
    options = TableOptions({"changelog-producer": "full-compaction", "num-levels": "3"})
    assert [is_read_first(level, options) for level in range(3)] == [False, False, True]


def test_rows_above_the_highest_level_are_not_lost_when_the_number_of_levels_was_lowered(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    options = {"bucket": "2", "changelog-producer": "full-compaction", "num-sorted-run.compaction-trigger": "5"}
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    table = catalog.create_table("d.t", columns, primary_key=["id"], options=options)
    table.upsert(pa.table({"id": range(9), "v": range(9)}, columns))
    table.compact(full=True)
    table = catalog.alter_table("d.t", [tidelake.SetOption("num-sorted-run.compaction-trigger", "2")])
    first = table.follower(start="latest-full").step()
    assert first is not None
    assert sorted(row["id"] for batch in first for row in batch.rows.to_pylist()) == list(range(9))
    catalog.rescale_table("d.t", 3)  # it would be refused if rows seemed to wait for a compaction
    assert catalog.table("d.t").scan().count() == 9


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_a_stream_starts_with_the_rows_of_these_levels(producer: str, tmp_path: Path) -> None:
    """A table with files on two levels, the highest among them."""
    warehouse = unpack_golden("java/pk_dedup_parquet", tmp_path)
    table = tidelake.open_catalog(str(warehouse)).table("golden.pk_dedup_parquet")
    files = [file for split in table.scan().splits() for file in split.files]
    assert {file.level for file in files} == {0, 3}
    dynamic = {"changelog-producer": producer, "num-levels": "4"}
    rows = table.context.with_options(dynamic)
    batches = list(Follower(rows, "latest-full").step() or ())
    kept = sum(batch.rows.num_rows for batch in batches)
    if producer in ("none", "input"):
        assert kept == table.scan().to_arrow().num_rows
    else:
        assert kept == sum(file.row_count for file in files if file.level == 3)


# ---------------------------------------------------------------- following

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
Commit = Callable[[int, str], None]


class Clock:
    """Replaces the event that ends a follow: counts waits, and ends after a given number."""

    def __init__(self, waits: int) -> None:
        self._waits = waits
        self.waited_s: list[float] = []

    def is_set(self) -> bool:
        return len(self.waited_s) >= self._waits

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited_s.append(timeout)
        return self.is_set()


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    return catalog.create_table("shop.t", SCHEMA, primary_key=["id"])


@pytest.fixture
def commit(table: tidelake.Table) -> Commit:
    def do(row_id: int, name: str) -> None:
        with table.writer() as writer:
            writer.write(pa.table({"id": [row_id], "name": [name]}))
            writer.commit()

    return do


def seen(batches: list[tidelake.ChangeBatch]) -> list[tuple[int, str]]:
    return [(batch.snapshot_id, name) for batch in batches for name in batch.rows["name"].to_pylist()]


def follow(table: tidelake.Table, clock: Clock, **arguments: object) -> list[tidelake.ChangeBatch]:
    return list(table.follow(stop=clock, **arguments))  # type: ignore[arg-type]


def test_follow_gives_each_snapshot_once_and_then_waits(table: tidelake.Table, commit: Commit) -> None:
    commit(1, "a")
    commit(2, "b")
    clock = Clock(waits=1)
    assert seen(follow(table, clock, start="earliest")) == [(1, "a"), (2, "b")]
    assert len(clock.waited_s) == 1


def test_latest_skips_existing_rows(table: tidelake.Table, commit: Commit) -> None:
    commit(1, "a")
    changes = table.follow(start="latest")
    commit(2, "b")
    assert seen([next(changes)]) == [(2, "b")]


def test_latest_on_an_empty_table_returns_the_first_snapshot(table: tidelake.Table, commit: Commit) -> None:
    changes = table.follow(start="latest")
    commit(1, "a")
    assert seen([next(changes)]) == [(1, "a")]


def test_waits_grow_without_new_snapshots_up_to_the_discovery_interval(table: tidelake.Table) -> None:
    clock = Clock(waits=15)
    follow(table, clock)
    assert clock.waited_s == sorted(clock.waited_s)
    assert clock.waited_s[0] < 0.1
    assert clock.waited_s[-1] == 10.0  # continuous.discovery-interval


def test_a_consumer_continues_at_its_position(table: tidelake.Table, commit: Commit) -> None:
    commit(1, "a")
    commit(2, "b")
    assert seen(follow(table, Clock(1), start=1, consumer="c1")) == [(1, "a"), (2, "b")]
    commit(3, "c")
    assert seen(follow(table, Clock(1), start="earliest", consumer="c1")) == [(3, "c")]
    kept = Path(table.location) / "consumer" / "consumer-c1"
    after = table.snapshots()[-1].delta_manifest_list
    assert json.loads(kept.read_text()) == {"nextSnapshot": 4, "after": after}


def test_a_partly_read_snapshot_is_returned_again(table: tidelake.Table, commit: Commit) -> None:
    commit(1, "a")
    changes = table.follow(start=1, consumer="c1")
    assert seen([next(changes)]) == [(1, "a")]
    del changes  # the reader dies before it asks for the next one
    assert seen(follow(table, Clock(1), start=1, consumer="c1")) == [(1, "a")]


def test_a_position_beyond_the_latest_snapshot_raises_instead_of_waiting(table: tidelake.Table, commit: Commit) -> None:
    commit(1, "a")
    with pytest.raises(tidelake.BadInput, match=r"snapshot 7 should be read next, but the latest is 1.*rolled back"):
        follow(table, Clock(1), start=7)


def test_an_expired_position_raises_instead_of_skipping(table: tidelake.Table, commit: Commit) -> None:
    for number in (1, 2, 3):
        commit(number, "x")
    snapshots = Path(table.location) / "snapshot"
    (snapshots / "snapshot-1").unlink()
    (snapshots / "EARLIEST").write_text("2")
    with pytest.raises(tidelake.SnapshotExpired, match=r"snapshot 1 no longer exists.*its snapshots are 2 to 3 now"):
        follow(table, Clock(1), start=1)
    with pytest.raises(tidelake.SnapshotExpired, match=r"snapshot 1 no longer exists.*its snapshots are 2 to 3 now"):
        list(table.changes(start=1))


@pytest.mark.parametrize(
    ("start", "end"), [pytest.param(0, None, id="below the first"), pytest.param(2, 1, id="end before start")]
)
def test_an_invalid_range_is_refused(table: tidelake.Table, start: int, end: int | None) -> None:
    with pytest.raises(tidelake.BadInput, match="snapshot ids start at 1"):
        table.changes(start=start, end=end)


def test_an_overwrite_is_marked_as_a_break(table: tidelake.Table, commit: Commit, tmp_path: Path) -> None:
    warehouse = unpack_golden("java/pk_partition_overwrite", tmp_path / "java")
    changes = list(tidelake.open_catalog(str(warehouse)).table("golden.pk_partition_overwrite").changes(start=1))
    assert [batch.snapshot_id for batch in changes if batch.is_break]
    assert all(batch.rows.num_rows == 0 for batch in changes if batch.is_break)


# ---------------------------------------------------------------- changelogs that outlive their snapshots

# of snapshots the newest two stay, of changelogs the newest five
OUTLIVING = {
    "snapshot.num-retained.min": "2",
    "snapshot.num-retained.max": "2",
    "changelog.num-retained.min": "5",
    "changelog.num-retained.max": "5",
    "write-only": "true",
}


@pytest.fixture(params=["none", "input"])
def outliving(tmp_path: Path, request: pytest.FixtureRequest) -> tidelake.Table:
    """Eight commits: snapshots 7 and 8 are there, changelogs 4 to 6."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    options = {"changelog-producer": request.param, **OUTLIVING}
    table = catalog.create_table("shop.long", SCHEMA, primary_key=["id"], options=options)
    for number in range(1, 9):
        with table.writer() as writer:
            writer.write(pa.table({"id": [number % 2], "name": [str(number)]}))
            writer.commit()
    table.expire(retain_ms=0)
    assert [snapshot.id for snapshot in table.snapshots()] == [7, 8]
    return table


def reported(first: int) -> list[tuple[int, str]]:
    return [(number, str(number)) for number in range(first, 9)]


def test_changes_of_a_snapshot_that_expired_are_read_from_its_changelog(outliving: tidelake.Table) -> None:
    assert seen(list(outliving.changes(start=4))) == reported(4)
    assert seen(list(outliving.changes(start=5, end=6))) == [(5, "5"), (6, "6")]


def test_a_follow_may_start_at_the_earliest_or_any_existing_changelog(outliving: tidelake.Table) -> None:
    assert seen(follow(outliving, Clock(waits=1), start="earliest")) == reported(4)
    assert seen(follow(outliving, Clock(waits=1), start=6)) == reported(6)
    tidelake_consumer = Consumer(outliving.context.io, outliving.context.paths, "late")
    tidelake_consumer.write(5)
    assert seen(follow(outliving, Clock(waits=1), consumer="late")) == reported(5)


def test_below_the_earliest_changelog_changes_have_expired(outliving: tidelake.Table) -> None:
    with pytest.raises(SnapshotExpired, match="4 to 8"):
        list(outliving.changes(start=3))
    with pytest.raises(SnapshotExpired, match="4 to 8"):
        follow(outliving, Clock(waits=1), start=3)


def test_changelogs_stay_readable_after_their_retention_options_are_removed(outliving: tidelake.Table) -> None:
    """And they expire by the options as they are then, all of them."""
    schema = Path(outliving.context.paths.schema(0))
    members = json.loads(schema.read_text())
    members["options"] = {k: v for k, v in members["options"].items() if not k.startswith("changelog.")}
    schema.write_text(json.dumps(members))
    table = tidelake.open_catalog(str(schema.parents[3])).table("shop.long")
    assert seen(list(table.changes(start=4))) == reported(4)
    assert table.expire(retain_ms=0).changelogs == 3
    assert verify(table.context) == []
    with pytest.raises(SnapshotExpired, match="7 to 8"):
        list(table.changes(start=6))
    with table.writer() as writer:
        writer.write(pa.table({"id": [9], "name": ["9"]}))
        writer.commit()
    assert table.expire(retain_ms=0).snapshots == 1
    assert not any(Path(table.context.paths.changelog_directory).glob("changelog-*"))
