"""The start of a read without an argument: the options of the table decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.maintenance.verify.changelog_check import check_changelog
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.read.follow import Follower

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture
def catalog() -> Iterator[tidelake.Catalog]:
    """shop.t: snapshot n added the row n, its watermark is n * 100; tag `two` is snapshot 2; 3 was compacted to 4."""
    catalog = tidelake.open_catalog("memory://reading-options/lake")
    catalog.create_database("shop")
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "50"}
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options=options)
    for number in (1, 2, 3):
        add(table, number)
    table.compact(full=True)
    add(table, 5)
    tags = TagStore(table.context.io, table.context.paths)
    tags.create("two", table.snapshots()[1], now=datetime(2026, 1, 1))
    tags.create("three", table.snapshots()[2], now=datetime(2026, 1, 1))
    tags.create("2026-01-01", table.snapshots()[0], now=datetime(2026, 1, 2))
    tags.create("2026-01-03", table.snapshots()[1], now=datetime(2026, 1, 4))
    yield catalog
    catalog.drop_database("shop", cascade=True)


def add(table: tidelake.Table, number: int) -> None:
    with table.writer(commit_user="w") as writer:
        writer.write(pa.table({"id": [number]}, SCHEMA))
        writer.commit(number, watermark=number * 100)


def scanned(table: tidelake.Table, **place: Any) -> list[int]:
    return sorted(table.scan(**place).to_arrow()["id"].to_pylist())


def time_of(table: tidelake.Table, snapshot_id: int) -> int:
    return table.snapshots()[snapshot_id - 1].time_ms


SCANS = [
    pytest.param({"scan.snapshot-id": "1"}, [1], id="a snapshot"),
    pytest.param({"scan.tag-name": "two"}, [1, 2], id="a tag"),
    pytest.param({"scan.watermark": "150"}, [1, 2], id="the first snapshot at a watermark or later"),
    pytest.param({"scan.version": "two"}, [1, 2], id="a version that is a tag"),
    pytest.param({"scan.version": "3"}, [1, 2, 3], id="a version that is a snapshot"),
    pytest.param({"scan.version": "watermark-100"}, [1], id="a version that is a watermark"),
    pytest.param({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}, [1, 2], id="a snapshot in full"),
    pytest.param({"scan.mode": "compacted-full"}, [1, 2, 3], id="the newest compaction"),
    pytest.param({"scan.mode": "latest-full"}, [1, 2, 3, 5], id="the latest in full"),
    pytest.param({"scan.mode": "latest"}, [1, 2, 3, 5], id="the latest"),
    pytest.param({"scan.mode": "default"}, [1, 2, 3, 5], id="by default"),
    pytest.param({"incremental-between": "1,3"}, [2, 3], id="rows that came between two snapshots"),
    pytest.param({"incremental-between": "two,three"}, [3], id="rows that came between two tags"),
    pytest.param({"incremental-between": "1,5", "incremental-between-scan-mode": "diff"}, [2, 3, 5], id="a difference"),
    pytest.param({"incremental-between": "0,5", "incremental-between-scan-mode": "changelog"}, [], id="no changelog"),
    pytest.param({"incremental-between-timestamp": "1,9999999999999"}, [1, 2, 3, 5], id="rows that came meanwhile"),
    pytest.param({"incremental-between-timestamp": "1,2"}, [], id="rows that came before the table"),
    pytest.param({"scan.mode": "latest-delta"}, [5], id="the rows of the latest snapshot"),
    pytest.param({"incremental-to-auto-tag": "2026-01-03"}, [2], id="rows since the last automatic tag"),
    pytest.param({"incremental-to-auto-tag": "2026-01-01"}, [], id="rows since no automatic tag"),
    pytest.param({"incremental-to-auto-tag": "2026-01-09"}, [], id="rows to an automatic tag that is not there"),
]


@pytest.mark.parametrize(("options", "rows"), SCANS)
def test_scan_options_select_the_snapshot(
    catalog: tidelake.Catalog, options: Mapping[str, str], rows: list[int]
) -> None:
    assert scanned(catalog.table("shop.t", options)) == rows


def test_scan_options_select_the_time(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    at_2 = time_of(table, 2)
    rows = scanned(table, as_of=at_2)
    assert 5 not in rows or time_of(table, 5) == at_2
    assert scanned(catalog.table("shop.t", {"scan.timestamp-millis": str(at_2)})) == rows
    local = datetime.fromtimestamp(at_2 / 1000).isoformat(" ", "milliseconds")
    assert scanned(catalog.table("shop.t", {"scan.timestamp": local})) == rows


def test_an_argument_overrides_a_stored_scan_option(catalog: tidelake.Catalog) -> None:
    table = catalog.alter_table("shop.t", [tidelake.SetOption("scan.snapshot-id", "1")])
    assert scanned(table) == [1]
    assert scanned(table, snapshot=2) == [1, 2]
    assert scanned(table, tag="three") == [1, 2, 3]


REFUSED = [
    pytest.param(
        {"scan.snapshot-id": "99"}, "no snapshot 99: its snapshots are 1 to 5", id="a snapshot that is not there"
    ),
    pytest.param({"scan.tag-name": "four"}, "no tag 'four'", id="a tag that is not there"),
    pytest.param({"scan.watermark": "999"}, "no snapshot with a watermark of 999", id="a watermark to come"),
    pytest.param({"scan.version": "four"}, "no such tag, and it is not a snapshot id", id="a version of no kind"),
    pytest.param(
        {"scan.timestamp-millis": "1"}, "no snapshot that was committed at 1 or earlier", id="before the first snapshot"
    ),
    pytest.param({"scan.timestamp": "soon"}, "scan.timestamp = 'soon': expected a time", id="no time"),
    pytest.param(
        {"scan.snapshot-id": "1", "scan.tag-name": "two"}, "each choose where reading begins", id="two places at once"
    ),
    pytest.param({"scan.mode": "from-snapshot"}, "needs scan.snapshot-id or", id="a mode without its place"),
    pytest.param(
        {"scan.mode": "latest", "scan.snapshot-id": "1"},
        "can't be combined with scan.mode = latest",
        id="a wrong place",
    ),
    pytest.param({"scan.mode": "late"}, "expected one of", id="a mode that is none"),
    pytest.param({"incremental-to-auto-tag": "two"}, "is named like 2026-01-31", id="a tag that is not automatic"),
    pytest.param({"incremental-between-timestamp": "5"}, "expected two times", id="one time"),
    pytest.param({"incremental-between-timestamp": "5,4"}, "swap them", id="times backwards"),
    pytest.param(
        {"incremental-between": "1,99", "incremental-between-scan-mode": "diff"},
        "no snapshot 99: its snapshots are 1 to 5",
        id="a difference to a snapshot that is not there",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_an_invalid_scan_start_is_refused(catalog: tidelake.Catalog, options: Mapping[str, str], message: str) -> None:
    with pytest.raises(tidelake.TidelakeError, match=message):
        scanned(catalog.table("shop.t", options))


# ---------------------------------------------------------------- changes


def test_options_select_the_range_of_changes(catalog: tidelake.Catalog) -> None:
    by_ids = catalog.table("shop.t", {"incremental-between": "1,3"})
    assert [change.snapshot_id for change in by_ids.changes()] == [2, 3]
    same = catalog.table("shop.t", {"incremental-between": "3,3"})
    assert list(same.changes()) == []
    context, newest = by_ids.context, by_ids.snapshots()[-1]
    TagStore(context.io, context.paths).create("five", newest, now=datetime(2026, 1, 1))
    tags = {"incremental-between": "two,five"}
    as_snapshots = {**tags, "incremental-between-tag-to-snapshot": "true"}
    assert {change.snapshot_id for change in catalog.table("shop.t", tags).changes()} == {5}, "what differs at the end"
    assert [change.snapshot_id for change in catalog.table("shop.t", as_snapshots).changes()] == [3, 5]


AS_ARGUMENTS = [
    pytest.param({"between": (1, 3)}, [2, 3], id="snapshots"),
    pytest.param({"between": ("two", "three")}, [3], id="tags"),
    pytest.param({"between": ("two", "three"), "between_mode": "delta"}, [3], id="the snapshots between tags"),
    pytest.param({"between": (0, 5), "between_mode": "delta"}, [1, 2, 3, 5], id="files that came"),
    pytest.param({"between": (1, 5), "between_mode": "diff"}, [2, 3, 5], id="a difference"),
    pytest.param({"between": (datetime(2020, 1, 1), datetime(2199, 1, 1))}, [1, 2, 3, 5], id="times"),
    pytest.param({"auto_tag": "2026-01-03"}, [2], id="an automatic tag"),
]


@pytest.mark.parametrize(("arguments", "rows"), AS_ARGUMENTS)
def test_arguments_select_the_range_of_changes(
    catalog: tidelake.Catalog, arguments: Mapping[str, Any], rows: list[int]
) -> None:
    table = catalog.table("shop.t")
    assert scanned(table, **arguments) == rows
    assert sorted(row for change in table.changes(**arguments) for row in change.rows["id"].to_pylist()) == rows


def test_a_range_of_changes_is_filtered_and_projected(catalog: tidelake.Catalog) -> None:
    scan = catalog.table("shop.t").scan(between=(0, 5), filter=tidelake.col("id") > 2, columns=["id"])
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [3, 5]
    with pytest.raises(tidelake.UnsupportedFeature, match="without splits"):
        scan.splits()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"between": (1,)}, "expected two", id="one end"),
        pytest.param({"between": (1, datetime(2026, 1, 1))}, "expected two", id="ends of two kinds"),
        pytest.param({"between": (1, 2), "between_mode": "all"}, "expected one of auto", id="no mode"),
        pytest.param({"between_mode": "diff"}, "needs between=", id="a mode without a range"),
        pytest.param({"between": (3, 1)}, "swap them", id="backwards"),
    ],
)
def test_an_invalid_range_of_arguments_is_refused(
    catalog: tidelake.Catalog, arguments: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(tidelake.BadInput, match=message):
        catalog.table("shop.t").scan(**arguments)
    with pytest.raises(tidelake.BadInput, match=message):
        catalog.table("shop.t").changes(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"incremental-between": "3,1"}, "swap them", id="backwards"),
        pytest.param({"incremental-between": "1,2,3"}, "expected two snapshot ids", id="three ids"),
        pytest.param({"incremental-between": "1,three"}, "expected two snapshot ids", id="an id and a tag"),
        pytest.param({"incremental-between": "1,99"}, "no snapshot 99", id="snapshots to come"),
        pytest.param({}, r"changes\(\) needs start=", id="no range at all"),
    ],
)
def test_an_unsupported_range_is_refused(catalog: tidelake.Catalog, options: Mapping[str, str], message: str) -> None:
    with pytest.raises(tidelake.TidelakeError, match=message):
        list(catalog.table("shop.t", options).changes())


def test_a_range_given_twice_is_refused(catalog: tidelake.Catalog) -> None:
    with pytest.raises(tidelake.BadInput, match="leave start and end out, or unset the option"):
        catalog.table("shop.t", {"incremental-between": "1,3"}).changes(start=1)


# ---------------------------------------------------------------- following

FOLLOWS = [
    pytest.param({}, 6, id="by default, what comes"),
    pytest.param({"scan.mode": "latest"}, 6, id="what comes"),
    pytest.param({"scan.snapshot-id": "2"}, 2, id="from a snapshot"),
    pytest.param({"scan.mode": "from-snapshot", "scan.snapshot-id": "0"}, 1, id="from before the earliest"),
    pytest.param({"scan.timestamp-millis": "1"}, 1, id="from a time before all"),
    pytest.param({"scan.timestamp-millis": "9999999999999"}, 6, id="from a time after all"),
]


@pytest.mark.parametrize(("options", "first"), FOLLOWS)
def test_options_select_the_start_of_a_follow(
    catalog: tidelake.Catalog, options: Mapping[str, str], first: int
) -> None:
    table = catalog.table("shop.t", options)
    assert table.follower().next_snapshot_id == first
    assert table.follower(start="earliest").next_snapshot_id == 1


def test_following_from_a_time_starts_with_the_first_snapshot_since(catalog: tidelake.Catalog) -> None:
    times = [snapshot.time_ms for snapshot in catalog.table("shop.t").snapshots()]
    table = catalog.table("shop.t", {"scan.timestamp-millis": str(times[2])})
    assert table.follower().next_snapshot_id == 1 + sum(time_ms < times[2] for time_ms in times)


FULL = [
    pytest.param({"scan.mode": "latest-full"}, 5, [1, 2, 3, 5], id="all rows"),
    pytest.param({"scan.mode": "compacted-full"}, 4, [1, 2, 3], id="compacted rows"),
    pytest.param({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}, 2, [1, 2], id="rows of a snapshot"),
    pytest.param({"scan.file-creation-time-millis": "1"}, 5, [1, 2, 3, 5], id="files made since long"),
    pytest.param({"scan.file-creation-time-millis": "9999999999999"}, 5, [], id="files to come"),
    pytest.param({"scan.creation-time-millis": "9999999999999"}, 5, [], id="a time without snapshots, by its files"),
]


@pytest.mark.parametrize(("options", "snapshot_id", "rows"), FULL)
def test_options_select_the_first_rows_of_a_follow(
    catalog: tidelake.Catalog, options: Mapping[str, str], snapshot_id: int, rows: list[int]
) -> None:
    follower = catalog.table("shop.t", options).follower()
    batches = list(follower.step() or ())
    assert sorted(row for batch in batches for row in batch.rows["id"].to_pylist()) == rows
    assert {batch.snapshot_id for batch in batches} <= {snapshot_id}
    assert follower.next_snapshot_id == snapshot_id + 1


def test_following_from_a_time_between_snapshots_starts_with_changes(catalog: tidelake.Catalog) -> None:
    times = [snapshot.time_ms for snapshot in catalog.table("shop.t").snapshots()]
    follower = catalog.table("shop.t", {"scan.creation-time-millis": str(times[-1])}).follower()
    first = 1 + sum(time_ms < times[-1] for time_ms in times)
    assert follower.next_snapshot_id == (first if first > 1 else 5)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"scan.tag-name": "two"}, id="a tag"),
        pytest.param({"scan.watermark": "100"}, id="a watermark"),
        pytest.param({"scan.mode": "latest-delta"}, id="the latest changes only"),
        pytest.param({"incremental-between": "1,2"}, id="a range"),
    ],
)
def test_an_invalid_stream_start_is_refused(catalog: tidelake.Catalog, options: Mapping[str, str]) -> None:
    table = catalog.table("shop.t", options)
    with pytest.raises(tidelake.BadInput, match="a stream of changes can't begin like this"):
        table.follower()
    assert table.follower(start=3).next_snapshot_id == 3


def test_a_follow_ends_before_the_first_snapshot_beyond_the_watermark(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t", {"scan.bounded.watermark": "200"})
    assert [change.snapshot_id for change in table.follow(start=1)] == [1, 2]
    whole = catalog.table("shop.t", {"scan.bounded.watermark": "200", "scan.mode": "latest-full"})
    assert {change.snapshot_id for change in whole.follow()} == {5}  # beyond already: its rows, and no more


def test_a_scan_can_be_limited_to_files_created_since_a_time(catalog: tidelake.Catalog) -> None:
    assert scanned(catalog.table("shop.t", {"scan.file-creation-time-millis": "1"})) == [1, 2, 3, 5]
    assert scanned(catalog.table("shop.t", {"scan.file-creation-time-millis": "9999999999999"})) == []


def test_a_consumer_named_by_options_continues_at_its_position(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t", {"consumer-id": "c", "scan.snapshot-id": "1"})
    Consumer(table.context.io, table.context.paths, "c").write(3)
    assert table.follower().next_snapshot_id == 3
    again = catalog.table("shop.t", {"consumer-id": "c", "scan.snapshot-id": "1", "consumer.ignore-progress": "true"})
    assert again.follower().next_snapshot_id == 1
    follower = again.follower(start=4)
    list(follower.step() or ())
    follower.step()  # until then the caller may store its own position first
    assert table.follower().next_snapshot_id == 5  # it wrote down how far it came


def test_a_snapshot_is_returned_after_the_delay(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t", {"streaming.read.snapshot.delay": "1 min"})
    assert table.follower(start=1).step() is None
    now_ms = time_of(table, 1) + 59_999
    follower = Follower(table.context, 1, now_ms=lambda: now_ms)
    assert follower.step() is None
    now_ms += 1
    assert [change.snapshot_id for change in follower.step() or ()] == [1]


def test_a_follower_waits_at_most_the_discovery_interval(catalog: tidelake.Catalog) -> None:
    follower = catalog.table("shop.t", {"continuous.discovery-interval": "50 ms"}).follower()
    for _ in range(10):
        assert follower.step() is None
    assert follower.wait_ms == 50


# ---------------------------------------------------------------- one bucket


@pytest.fixture
def buckets(catalog: tidelake.Catalog) -> tidelake.Table:
    """shop.b: snapshot 1 added 0 to 29, 2 (an overwrite) replaced them by 10 to 39, all in three buckets."""
    options = {"bucket": "3", "changelog-producer": "input", "streaming-read-overwrite": "true"}
    table = catalog.create_table("shop.b", SCHEMA, primary_key=["id"], options=options)
    for number, overwrite in ((1, None), (2, True)):
        with table.writer(overwrite=overwrite) as writer:
            writer.write(pa.table({"id": range(10 * number - 10, 10 * number + 20)}, SCHEMA))
            writer.commit(number)
    return table


READS_OF_BUCKETS: Mapping[str, Callable[[tidelake.Catalog, Mapping[str, str]], Iterator[pa.RecordBatch]]] = {
    "scan": lambda catalog, options: catalog.table("shop.b", options).scan().to_batches(),
    "changes": lambda catalog, options: (c.rows for c in catalog.table("shop.b", options).changes(start=1)),
    "follow": lambda catalog, options: (
        c.rows for c in catalog.table("shop.b", options).follow(start="earliest", end=2)
    ),
    "follow from the rows that are there": lambda catalog, options: (
        c.rows for c in catalog.table("shop.b", options).follow(start="from-snapshot-full:1", end=2)
    ),
    "difference": lambda catalog, options: (
        c.rows for c in catalog.table("shop.b", options).changes(between=(1, 2), between_mode="diff")
    ),
    "rows that came": lambda catalog, options: (
        catalog.table("shop.b", options).scan(between=(1, 2), between_mode="diff").to_batches()
    ),
    "audit_log": lambda catalog, options: catalog.table("shop.b$audit_log", options).scan().to_batches(),
    "audit_log of changes": lambda catalog, options: (
        catalog.table("shop.b$audit_log", options).scan(between=(0, 2)).to_batches()
    ),
    "ro": lambda catalog, options: catalog.table("shop.b$ro", options).scan().to_batches(),
}


@pytest.mark.parametrize("read", [pytest.param(read, id=name) for name, read in READS_OF_BUCKETS.items()])
def test_options_limit_each_read_to_one_bucket(
    catalog: tidelake.Catalog,
    buckets: tidelake.Table,
    read: Callable[[tidelake.Catalog, Mapping[str, str]], Iterator[pa.RecordBatch]],
) -> None:
    buckets.compact(full=True)

    def rows(options: Mapping[str, str]) -> list[str]:
        return [str(row) for batch in read(catalog, options) for row in batch.to_pylist()]

    parts = [rows({"scan.bucket": str(bucket)}) for bucket in range(3)]
    assert all(parts)
    assert sorted(chain.from_iterable(parts)) == sorted(rows({}))
    assert rows({"scan.bucket": "3"}) == []  # as in Java: it may be there again after a rescale


def test_writes_ignore_the_bucket_option_of_readers(catalog: tidelake.Catalog, buckets: tidelake.Table) -> None:
    catalog.alter_table("shop.b", [tidelake.SetOption("scan.bucket", "1")])
    table = catalog.table("shop.b")
    assert 0 < len(scanned(table)) < 30
    table.delete(tidelake.col("id") >= 20)
    parts = [scanned(catalog.table("shop.b", {"scan.bucket": str(bucket)})) for bucket in range(3)]
    assert sorted(chain.from_iterable(parts)) == list(range(10, 20))
    assert check_changelog(table.context).is_sound


def test_an_invalid_bucket_is_refused(catalog: tidelake.Catalog, buckets: tidelake.Table) -> None:
    with pytest.raises(tidelake.BadInput, match=r"option scan\.bucket = -1: bucket numbers start at 0"):
        catalog.table("shop.b", {"scan.bucket": "-1"}).scan().to_arrow()


# ---------------------------------------------------------------- branches


def test_a_dynamic_option_opens_a_branch(catalog: tidelake.Catalog) -> None:
    with pytest.raises(tidelake.BadInput, match=r"no branch 'dev'"):
        catalog.table("shop.t", {"branch": "dev"})
    context = catalog.table("shop.t").context
    branch = context.paths.schema(0).replace("/schema/", "/branch/branch-dev/schema/")
    context.io.write(branch, context.io.read(context.paths.schema(0)))
    add(catalog.table("shop.t", {"branch": "dev"}), 7)
    assert scanned(catalog.table("shop.t", {"branch": "dev"})) == [7]
    assert scanned(catalog.table("shop.t$branch_dev")) == [7]
    assert scanned(catalog.table("shop.t")) == [1, 2, 3, 5]
    with pytest.raises(tidelake.BadInput, match="name only one of them"):
        catalog.table("shop.t$branch_dev", {"branch": "test"})


def test_a_stored_branch_option_is_refused_where_it_would_be_ignored(catalog: tidelake.Catalog) -> None:
    with pytest.raises(tidelake.UnsupportedFeature, match=r"option branch = dev: cannot alter: .*branch_dev"):
        catalog.alter_table("shop.t", [tidelake.SetOption("branch", "dev")])
