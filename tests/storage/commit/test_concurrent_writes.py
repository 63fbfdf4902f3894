"""What others wrote since a snapshot is found completely, and each snapshot is read once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.model.snapshots.tables import data_file
from tidelake.errors import CorruptFile, HistoryExpired
from tidelake.storage.commit.concurrent_writes import ConcurrentWrites, OwnSnapshots
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore


@dataclass(frozen=True)
class Written:
    """One snapshot. entries: (kind, partition, bucket, number of buckets)."""

    kind: CommitKind = CommitKind.APPEND
    is_ours: bool = False
    entries: Sequence[tuple[FileKind, bytes, int, int]] = ((FileKind.ADD, b"p", 0, 2),)


class History:
    """Snapshots 1, 2, …; it notes which of them are read."""

    def __init__(self, snapshots: Iterable[Written]) -> None:
        self.written = list(snapshots)
        self.expired: set[int] = set()
        self.expiring: set[int] = set()  # the snapshot file is still there, its metadata is not
        self.earliest: int | None = None
        self.found: list[int] = []
        self.entries_read: list[int] = []
        self.own = OwnSnapshots()
        for number, one in enumerate(self.written, 1):
            if one.is_ours:
                self.own.add(number)
        store = cast(SnapshotStore, self)
        self.writes = ConcurrentWrites(store, self.delta_entries, self.own, "db.t")

    def snapshot(self, number: int) -> Snapshot:
        kind = self.written[number - 1].kind
        return Snapshot(number, 0, "", "", "u", number, kind, 0, 0, 0)

    def find(self, number: int) -> Snapshot | None:
        self.found.append(number)
        return None if number in self.expired else self.snapshot(number)

    def exists(self, number: int) -> bool:
        return number not in self.expired

    def earliest_hint(self) -> int | None:
        return self.earliest

    def delta_entries(self, snapshot: Snapshot) -> Iterable[ManifestEntry]:
        if snapshot.id in self.expiring:
            raise CorruptFile("manifest-list", "a metadata file that a snapshot references", "no file")
        self.entries_read.append(snapshot.id)
        entries = self.written[snapshot.id - 1].entries
        return [
            ManifestEntry(kind, partition, bucket, total, data_file("f")) for kind, partition, bucket, total in entries
        ]

    def others(self, base: int, latest: int) -> list[tuple[int, Written]]:
        found = enumerate(self.written[:latest], 1)
        return [(n, one) for n, one in found if n > base and not one.is_ours and one.kind is not CommitKind.COMPACT]

    def check_after(self, base: int, latest: int) -> None:
        found = self.writes.after(base, self.snapshot(latest) if latest else None)
        newest: dict[BucketId, int] = {}
        counts: dict[bytes, tuple[int, int]] = {}
        for number, one in self.others(base, latest):
            for kind, partition, bucket, total in one.entries:
                newest[BucketId(partition, bucket)] = number
                if kind is FileKind.ADD and total > 0:
                    at, count = counts.get(partition, (0, 0))
                    counts[partition] = number, max(total, count) if at == number else total
        assert {key: number for key, number in found.newest.items() if number > base} == newest
        assert {key: count for key, count in found.bucket_counts.items() if count[0] > base} == counts


written = st.builds(
    Written,
    st.sampled_from([CommitKind.APPEND, CommitKind.OVERWRITE, CommitKind.COMPACT]),
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(FileKind), st.sampled_from([b"p", b"q"]), st.integers(0, 1), st.integers(-1, 3)),
        max_size=3,
    ),
)


@given(st.lists(written, min_size=1, max_size=8), st.data())
def test_what_others_wrote_is_found_after_any_history(snapshots: list[Written], data: st.DataObject) -> None:
    history, latest = History(snapshots), 0
    for _ in range(data.draw(st.integers(1, 6), label="steps")):
        before, latest = latest, data.draw(st.integers(latest, len(snapshots)), label="latest")
        if data.draw(st.booleans(), label="observed"):
            for number in range(before + 1, latest + 1):
                history.writes.observe(history.snapshot(number))
        history.check_after(data.draw(st.integers(0, latest), label="base"), latest)


def test_a_snapshot_that_was_observed_is_not_read_again() -> None:
    history = History([Written() for _ in range(6)])
    history.check_after(2, 3)
    for number in (4, 5):
        history.writes.observe(history.snapshot(number))
    history.expired = {4, 5}
    history.check_after(2, 5)
    history.check_after(3, 6)
    history.check_after(1, 6)
    assert history.found == [3, 6, 2]
    assert sorted(history.entries_read) == [2, 3, 4, 5, 6]


def test_a_snapshot_that_does_not_follow_is_read_when_it_is_needed() -> None:
    history = History([Written() for _ in range(5)])
    history.check_after(0, 2)
    history.writes.observe(history.snapshot(4))
    assert 4 not in history.entries_read
    history.check_after(0, 5)


def test_snapshots_up_to_the_base_are_never_read() -> None:
    history = History([Written() for _ in range(6)])
    history.check_after(0, 2)
    history.expired = {1, 2, 3}
    history.check_after(3, 6)
    history.check_after(6, 6)
    assert history.found == [1, 2, 4, 5, 6]


@pytest.mark.parametrize("known", [0, 4])
def test_an_expired_snapshot_leaves_it_unknown_who_wrote(known: int) -> None:
    history = History([Written() for _ in range(6)])
    history.expired = {3}
    if known:
        history.check_after(known, 6)
    with pytest.raises(HistoryExpired, match=r"db\.t: .*those of snapshot 1, but snapshot 3 has expired"):
        history.writes.after(1, history.snapshot(6))


@given(st.lists(st.integers(1, 4), max_size=10))
def test_own_snapshots_are_those_that_were_added(steps: list[int]) -> None:
    own, added, number = OwnSnapshots(), set[int](), 0
    for step in steps:
        number += step
        own.add(number)
        own.add(number)
        added.add(number)
        assert {n for n in range(number + 3) if n in own} == added


def test_the_only_writer_of_a_table_remembers_one_range() -> None:
    own = OwnSnapshots()
    for number in range(3, 1000):
        own.add(number)
    assert cast(Any, own)._starts == [3]


@pytest.mark.parametrize(("total", "counts"), [(-1, {}), (0, {}), (1, {b"p": (1, 1)}), (2, {b"p": (1, 2)})])
def test_only_a_fixed_number_of_buckets_counts(total: int, counts: dict[bytes, tuple[int, int]]) -> None:
    history = History([Written(entries=[(FileKind.ADD, b"p", 0, total), (FileKind.DELETE, b"p", 0, 7)])])
    assert history.writes.after(0, history.snapshot(1)).bucket_counts == counts


def test_a_snapshot_that_is_being_expired_while_it_is_observed_matters_only_to_those_who_build_before_it() -> None:
    history = History([Written() for _ in range(6)])
    history.expiring, history.earliest = {1, 2}, 3
    for number in range(1, 6):
        history.writes.observe(history.snapshot(number))
    history.check_after(2, 6)
    assert history.entries_read == [3, 4, 5, 6]
    with pytest.raises(HistoryExpired, match="those of snapshot 1, but snapshot 2 has expired"):
        history.writes.after(1, history.snapshot(6))


def test_missing_metadata_of_a_snapshot_that_is_kept_is_damage() -> None:
    history = History([Written() for _ in range(3)])
    history.expiring, history.earliest = {2}, 2
    history.writes.observe(history.snapshot(1))
    for ask in (history.writes.observe, lambda latest: history.writes.after(0, latest)):
        with pytest.raises(CorruptFile):
            ask(history.snapshot(2))
