"""The consumer file of a reader: during the read, after a restart, and with several readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.model.snapshots.consumers import Consumer, min_next_snapshot

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"changelog-producer": "input"})
    for number in range(1, 5):
        add(table, number)
    return catalog


def add(table: tidelake.Table, number: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number]}, SCHEMA))
        writer.commit()


def kept(table: tidelake.Table, name: str) -> dict[str, Any] | None:
    path = Path(table.location) / "consumer" / f"consumer-{name}"
    return json.loads(path.read_text()) if path.exists() else None


def ids(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch.rows["id"].to_pylist()]


def test_a_consumer_that_starts_at_latest_protects_new_snapshots_from_its_first_moment(
    catalog: tidelake.Catalog,
) -> None:
    table = catalog.table("shop.t")
    follower = table.follower(start="latest", consumer="c")
    assert min_next_snapshot(table.context.io, table.context.paths) == 5
    add(table, 5)
    del follower  # its process dies before it read a thing
    assert ids(table.follow(start="latest", consumer="c", end=5)) == [5]


def test_a_batch_counts_as_read_when_the_next_one_is_requested(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    reader = table.follow(start=1, consumer="c")
    next(reader)
    next(reader)
    assert (kept(table, "c") or {})["nextSnapshot"] == 2
    reader.close()
    assert (kept(table, "c") or {})["nextSnapshot"] == 2
    assert ids(table.follow(consumer="c", end=4)) == [2, 3, 4]


def test_at_least_once_writes_positions_less_often_and_at_the_end(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t", {"consumer.mode": "at-least-once"})
    reader = table.follow(start=1, consumer="c")
    assert ids(next(reader) for _ in range(4)) == [1, 2, 3, 4]
    assert (kept(table, "c") or {})["nextSnapshot"] == 2  # the first move is written, the next a second later
    reader.close()
    assert (kept(table, "c") or {})["nextSnapshot"] == 4


def test_a_given_position_wins_over_the_consumer_file(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    batches = list(table.follow(start=1, consumer="c", end=4))
    assert batches[1].position is not None
    assert ids(table.follow(start=batches[1].position, consumer="c", end=4)) == [3, 4]


def test_during_the_full_read_another_consumer_protects_the_snapshot(
    catalog: tidelake.Catalog,
) -> None:
    """From the consumer's own file Java would continue with only the changes of the snapshot."""
    table = catalog.table("shop.t")
    reader = table.follow(start="from-snapshot-full:2", consumer="c", end=4)
    assert ids([next(reader)]) == [1]
    assert kept(table, "c") is None
    assert min_next_snapshot(table.context.io, table.context.paths) == 2
    reader.close()
    reader = table.follow(start="latest", consumer="c", end=4)  # another process: it continues the full read
    assert ids(reader) == [1, 2, 3, 4]
    assert kept(table, "c.full") is None
    assert (kept(table, "c") or {})["nextSnapshot"] == 5


def test_a_consumer_file_of_java_is_continued(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    Consumer(table.context.io, table.context.paths, "c").write(3)
    assert ids(table.follow(consumer="c", end=4)) == [3, 4]


def test_a_consumer_file_without_a_position_is_corrupt(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    Consumer(table.context.io, table.context.paths, "c").write(3, {"rows": "many"})
    with pytest.raises(tidelake.CorruptFile, match="consumer-c"):
        table.follow(consumer="c")


def test_a_reader_behind_expiry_gets_an_error_even_if_its_consumer_is_gone(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    reader = table.follow(start=1, consumer="c")
    next(reader)
    next(reader)
    (Path(table.location) / "consumer" / "consumer-c").unlink()
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    with pytest.raises(tidelake.SnapshotExpired, match="snapshot 3 no longer exists"):
        next(reader)


# ---------------------------------------------------------------- several readers


def test_several_readers_have_separate_positions_and_the_slowest_is_protected(
    catalog: tidelake.Catalog,
) -> None:
    table = catalog.table("shop.t")
    list(table.follow(start=1, consumer="c", end=4, share=(0, 2)))
    list(table.follow(start=1, consumer="c", end=2, share=(1, 2)))
    assert [(kept(table, f"c-{n}-of-2") or {})["nextSnapshot"] for n in (1, 2)] == [5, 3]
    assert min_next_snapshot(table.context.io, table.context.paths) == 3


def test_another_number_of_readers_continues_where_all_were(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    for index in range(2):
        list(table.follow(start=1, consumer="c", end=3, share=(index, 2)))
    assert table.follower(consumer="c").next_snapshot_id == 4
    assert table.follower(consumer="c", share=(2, 3)).next_snapshot_id == 4


def test_another_number_of_readers_is_refused_if_changes_would_repeat(catalog: tidelake.Catalog) -> None:
    table = catalog.table("shop.t")
    for index in range(2):
        list(table.follow(start=1, consumer="c", end=3 - index, share=(index, 2)))
    with pytest.raises(tidelake.BadInput, match=r"stopped at different positions \(c-1-of-2, c-2-of-2\)"):
        table.follower(consumer="c", share=(0, 3))
    lazy = catalog.table("shop.t", {"consumer.mode": "at-least-once"})
    assert lazy.follower(consumer="c", share=(0, 3)).next_snapshot_id == 3
