"""Offsets of a batch compared with those of its table, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    SourcePosition,
    TopicPartition,
    position_from_text,
    position_to_text,
)
from tidelake.errors import PositionRefused
from tidelake.ingest.spark.batch_position import UNREAD_PROPERTY, Ranges, TablePosition, is_from_batch
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.verification import inspect_table


def ranges(**partitions: tuple[int, int]) -> Ranges:
    """p0=(30, 40): partition 0 of topic t, [30, 40)."""
    return {TopicPartition("t", int(name[1:])): OffsetRange(*range_) for name, range_ in partitions.items()}


@dataclass
class History:
    """Snapshots of a table, each of one batch of one query."""

    table: tidelake.Table
    snapshots: SnapshotStore
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    shared_with: tuple[str, ...] = ()

    def standing(self, query: str) -> TablePosition:
        own = [snapshot for snapshot in self.table.snapshots() if snapshot.commit_user == query]
        return TablePosition.of("shop.t", self.snapshots, own[-1] if own else None, self.reached, self.shared_with)

    def add(self, query: str, found: Ranges, *, reread: bool = False, accept_gap: bool = False) -> Mapping[str, str]:
        properties = self.standing(query).next_position(found, reread=reread, accept_gap=accept_gap).properties
        with self.table.writer(commit_user=query) as writer:
            writer.commit(identifier=len(self.table.snapshots()), properties=properties)
        return properties

    @property
    def newest(self) -> Snapshot:
        newest = self.snapshots.latest()
        assert newest is not None
        return newest


@pytest.fixture
def history(tmp_path: Path) -> History:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    context = open_catalog(str(tmp_path)).load("shop.t")
    return History(table, context.snapshots)


def held(properties: Mapping[str, str]) -> SourcePosition:
    return position_from_text(properties[POSITION_PROPERTY], "")


def test_a_query_that_starts_past_the_table_is_refused_unless_the_gap_is_accepted(history: History) -> None:
    history.add("one", ranges(p0=(0, 30)))
    with pytest.raises(PositionRefused, match=r'(?s)at offset 60.*up to 30.*startingOffsets.*"0": 30.*accept_gap'):
        history.standing("two").next_position(ranges(p0=(60, 70)), reread=True, accept_gap=False)
    accepted = held(history.add("two", ranges(p0=(60, 70)), accept_gap=True))
    assert accepted.ranges == ranges(p0=(60, 70))  # and not [30, 70), which no query read
    assert accepted.accepted is not None
    assert accepted.accepted.accepted_problems == ("gap",)
    following = held(history.add("two", ranges(p0=(70, 80))))
    assert (following.ranges, following.accepted) == (ranges(p0=(70, 80)), None)


def test_offsets_may_be_missing_between_batches_of_a_query(history: History) -> None:
    history.add("one", ranges(p0=(5, 30)))
    assert held(history.add("one", ranges(p0=(33, 40)))).ranges == ranges(p0=(30, 40))
    history.add("two", ranges(p0=(40, 41)))
    assert held(history.add("two", ranges(p0=(44, 50), p1=(7, 8)))).ranges == ranges(p0=(41, 50), p1=(7, 8))


def test_a_partition_new_to_a_query_must_start_where_the_table_ends(history: History) -> None:
    history.add("one", ranges(p0=(0, 30), p1=(0, 10), p2=(0, 5)))
    assert history.add("two", ranges(p0=(30, 31)))[UNREAD_PROPERTY] == '{"t":[1,2]}'
    history.add("other", ranges(p9=(100, 101)))  # and one that came to the table meanwhile
    for late in (ranges(p1=(11, 12)), ranges(p9=(102, 103))):
        with pytest.raises(PositionRefused, match="accept_gap"):
            history.standing("two").next_position(late, reread=False, accept_gap=False)
    standing = history.standing("two").next_position(
        ranges(p1=(10, 12), p2=(5, 6), p9=(101, 102)), reread=False, accept_gap=False
    )
    assert (standing.reads_new_partitions, UNREAD_PROPERTY in standing.properties) == (True, False)


def test_a_continuing_query_reports_no_new_partitions_without_rows(history: History) -> None:
    assert (
        not history.standing("one")
        .next_position(ranges(p0=(3, 9)), reread=False, accept_gap=False)
        .reads_new_partitions
    )
    history.add("one", ranges(p0=(3, 9)))
    assert (
        not history.standing("one")
        .next_position(ranges(p0=(9, 12)), reread=False, accept_gap=False)
        .reads_new_partitions
    )
    assert (
        history.standing("two").next_position(ranges(p0=(9, 12)), reread=False, accept_gap=False).reads_new_partitions
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(ranges(p0=(30, 40), p1=(10, 12)), True, id="the same offsets"),
        pytest.param(ranges(p0=(33, 40), p1=(10, 12)), True, id="the same, after a hole"),
        pytest.param(ranges(p0=(30, 41), p1=(10, 12)), False, id="one record more"),
        pytest.param(ranges(p0=(30, 39), p1=(10, 12)), False, id="one record less"),
        pytest.param(ranges(p0=(29, 40), p1=(10, 12)), False, id="an earlier start"),
        pytest.param(ranges(p0=(40, 50), p1=(10, 12)), False, id="the next records"),
        pytest.param(ranges(p0=(30, 40)), False, id="without a partition"),
        pytest.param(ranges(p0=(30, 40), p1=(10, 12), p2=(0, 1)), False, id="with another partition"),
        pytest.param(ranges(p0=(30, 40), p1=(10, 12), p3=(6, 7)), False, id="with a partition that was at rest"),
        pytest.param({}, False, id="no records"),
    ],
)
def test_only_a_batch_with_equal_offsets_is_a_replay_of_a_snapshot(
    history: History, found: Ranges, expected: bool
) -> None:
    history.add("one", ranges(p0=(0, 30), p1=(0, 10), p3=(0, 6)))
    history.add("one", ranges(p0=(30, 40), p1=(10, 12)))
    assert is_from_batch(history.newest, found, reread=False) is expected


def test_a_reread_batch_is_recognised_too(history: History) -> None:
    history.add("one", ranges(p0=(0, 30)))
    history.add("two", ranges(p0=(20, 40)), reread=True)
    assert is_from_batch(history.newest, ranges(p0=(20, 40)), reread=True)
    assert not is_from_batch(history.newest, ranges(p0=(20, 41)), reread=True)
    assert not is_from_batch(history.newest, ranges(p0=(20, 40)), reread=False)


def test_alternating_queries_on_a_table_are_not_reported(history: History) -> None:
    """Each snapshot has the position of the whole table. The other query's partitions have advanced in between."""
    history.add("one", ranges(p0=(0, 10)))
    history.add("two", ranges(p1=(0, 5)))
    for turn in range(1, 12):
        history.add("one", ranges(p0=(10 * turn, 10 * turn + 10)))
        history.add("two", ranges(p1=(5 * turn, 5 * turn + 5)))
    assert inspect_table(history.table).findings == ()


def test_a_gap_between_alternating_queries_is_reported(history: History) -> None:
    history.add("one", ranges(p0=(0, 10)))
    history.add("two", ranges(p1=(0, 5)))
    jumped = SourcePosition(ranges=ranges(p0=(17, 20), p1=(5, 5)))
    with history.table.writer(commit_user="one") as writer:
        writer.commit(identifier=9, properties={POSITION_PROPERTY: position_to_text(jumped)})
    assert [finding.check for finding in inspect_table(history.table).problems] == ["position-chain"]


def test_a_query_begins_where_a_pipeline_has_read_without_rows_for_the_table(history: History) -> None:
    history.add("one", ranges(p0=(0, 10)))
    with pytest.raises(PositionRefused, match=r"begins to read t-0 at offset 30, but the table has only .* up to 10"):
        history.add("two", ranges(p0=(30, 40)))
    history.reached = {TopicPartition("t", 0): 30, TopicPartition("t", 1): 5}
    assert held(history.add("two", ranges(p0=(30, 40)))).ends == {
        TopicPartition("t", 0): 40,
        TopicPartition("t", 1): 5,
    }
    with pytest.raises(PositionRefused, match="already has the records up to 5"):
        history.add("two", ranges(p1=(0, 7)))


def test_positions_of_commit_users_with_other_records_of_the_topics_do_not_count(history: History) -> None:
    history.add("other", ranges(p0=(0, 50)))
    with pytest.raises(PositionRefused, match="up to 50"):
        history.add("mine", ranges(p0=(0, 10)))
    history.shared_with = ("other",)
    history.add("mine", ranges(p0=(0, 10)))
    assert held(history.add("mine", ranges(p0=(10, 20)))).ends == {TopicPartition("t", 0): 20}
