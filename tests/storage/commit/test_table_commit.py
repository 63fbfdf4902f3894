"""Commits, overwrites and removals without concurrent writers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.storage.model.snapshots.tables import (
    FakeTime,
    added,
    committer,
    data_file,
    latest,
    live_names,
    make_table,
    partition,
    snapshots,
    with_increment,
)
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.errors import BadInput, CommitConflict, CommitOutcomeUnknown, WriterFenced
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries, delta_list, live_entries
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


@pytest.fixture
def io() -> FileIO:
    return MemoryFileIO()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"memory://commit-{abs(hash(request.node.nodeid))}/t"


@pytest.fixture
def table(io: FileIO, place: str) -> TableContext:
    return make_table(io, place)


@pytest.fixture
def parted(io: FileIO, place: str) -> TableContext:
    return make_table(io, place, partitioned=True)


@pytest.fixture
def keyed(io: FileIO, place: str) -> TableContext:
    return make_table(io, place, primary_key=True)


# ---------------------------------------------------------------- plain commits


def test_the_first_snapshot_equals_javas(table: TableContext) -> None:
    files = (data_file("a", rows=3), data_file("b", rows=4))
    message = CommitMessage(
        BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=files, changelog_files=(data_file("c", rows=5),))
    )
    assert committer(table).commit(Committable(7, [message], watermark=99, properties={"k": "v"})) == 1
    snapshot = latest(table)
    assert snapshot == replace(
        snapshot,
        id=1,
        schema_id=0,
        commit_user="etl",
        commit_identifier=7,
        commit_kind=CommitKind.APPEND,
        time_ms=FakeTime().now_ms,
        total_record_count=7,
        delta_record_count=7,
        changelog_record_count=5,
        watermark=99,
        properties={"k": "v"},
        next_row_id=0,
        index_manifest=None,
        statistics=None,
        operation=None,
    )
    for name, size in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
    ):
        assert name is not None
        assert table.io.size_bytes(table.paths.manifest(name)) == size
    assert table.io.read(table.paths.latest_hint) == b"1"
    assert not table.io.exists(table.paths.earliest_hint)


def test_counts_and_watermark_continue_from_the_last_snapshot(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a", "b")], watermark=50))
    commit.commit(Committable(2, [added("c")], watermark=20))
    commit.commit(
        Committable(3, [CommitMessage(BucketId(EMPTY_ROW, 0), CommitIncrement(deleted_files=(data_file("a"),)))])
    )
    counts = [
        (s.total_record_count, s.delta_record_count, s.changelog_record_count, s.watermark) for s in snapshots(table)
    ]
    assert counts == [(2, 2, None, 50), (3, 1, None, 50), (2, -1, None, 50)]
    assert latest(table).properties == {}


def test_append_then_compact_are_two_snapshots_of_one_identifier(keyed: TableContext) -> None:
    commit = committer(keyed)
    commit.commit(Committable(1, [added("old")]))
    message = CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            new_files=(data_file("new", keys=(2, 2)),),
            compacted=CompactResult(
                before=(data_file("old", keys=(0, 0)), data_file("new", keys=(2, 2))),
                after=(data_file("merged", keys=(0, 2), level=5, rows=2),),
                changelog=(data_file("changes"),),
            ),
        ),
        CommitBase(snapshot_id=1),
    )
    assert commit.commit(Committable(2, [message], properties={"position": "9"})) == 3
    _, append, compact = snapshots(keyed)
    assert (append.commit_kind, compact.commit_kind) == (CommitKind.APPEND, CommitKind.COMPACT)
    assert append.commit_identifier == compact.commit_identifier == 2
    assert append.properties == compact.properties == {"position": "9"}
    assert live_names(keyed, append) == ["new", "old"]
    assert live_names(keyed, compact) == ["merged"]
    assert changelog_entries(keyed, append) == []
    assert [entry.file.file_name for entry in changelog_entries(keyed, compact)] == ["changes"]
    assert commit.commit(Committable(2, [message])) is None


def test_an_identifier_without_files_makes_an_empty_snapshot(table: TableContext) -> None:
    assert committer(table).commit(Committable(1, properties={"position": "5"})) == 1
    assert latest(table).properties == {"position": "5"}
    assert live_entries(table, latest(table)) == []


def test_a_batch_commit_without_files_makes_no_snapshot(io: FileIO, place: str) -> None:
    table = make_table(io, place)
    assert committer(table).commit(Committable(BATCH_COMMIT_IDENTIFIER)) is None
    assert snapshots(table) == []
    forced = table.with_options({"commit.force-create-snapshot": "true"})
    assert committer(forced).commit(Committable(BATCH_COMMIT_IDENTIFIER)) == 1


def test_an_already_committed_identifier_publishes_nothing(table: TableContext) -> None:
    assert committer(table).commit(Committable(4, [added("a")])) == 1
    assert committer(table).commit(Committable(4, [added("a-again")])) is None
    assert committer(table, user="other").commit(Committable(4, [added("b")])) == 2
    again = committer(table)
    assert again.commit(Committable(4, [added("a-again")])) is None
    assert again.commit(Committable(5, [added("c")])) == 3
    assert live_names(table) == ["a", "b", "c"]


@pytest.mark.parametrize("expired", [False, True], ids=["both snapshots are there", "that of the rows has expired"])
def test_files_of_a_replay_are_deleted_only_if_certainly_unreferenced(table: TableContext, expired: bool) -> None:
    committer(table).commit(Committable(3, [added("a")]))
    compacted = CompactResult((data_file("a", keys=(0, 0)),), (data_file("c"),))
    first = with_increment(added("b"), compacted=compacted)
    committer(table).commit(Committable(4, [first]))
    again = with_increment(added("b", "d"), compacted=replace(compacted, after=(data_file("c"), data_file("e"))))
    for name in "abcde":
        table.io.write(f"{table.location}/bucket-0/{name}", b"")
    if expired:
        for snapshot_id in (1, 2):
            table.io.delete(table.paths.snapshot(snapshot_id))
    commit = committer(table)
    assert commit.commit(Committable(4, [again])) is None
    commit.discard_already_committed(Committable(4, [again]))
    left = sorted(entry.name for entry in table.io.list_directory(f"{table.location}/bucket-0"))
    assert left == (["a", "b", "c", "d", "e"] if expired else ["a", "b", "c"])


def test_a_smaller_identifier_is_refused(table: TableContext) -> None:
    committer(table).commit(Committable(4, [added("a")]))
    with pytest.raises(BadInput, match="identifier 3 is below 4, the newest one that 'etl' committed"):
        committer(table).commit(Committable(3, [added("b")]))
    assert live_names(table) == ["a"]


def test_batch_commits_are_never_treated_as_replays(table: TableContext) -> None:
    commit = committer(table)
    assert [commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, [added(n)])) for n in "abc"] == [1, 2, 3]


def test_a_batch_commit_between_numbered_ones_of_its_user_hides_none(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(4, [added("a")]))
    commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, [added("b")]))
    assert committer(table).commit(Committable(4, [added("c")])) is None
    assert committer(table).commit(Committable(5, [added("d")])) == 3


def test_the_newest_own_snapshot_is_the_newest_numbered_one_of_its_user(table: TableContext) -> None:
    for user, identifier in (("etl", 4), ("etl", 5), ("other", 6), ("etl", BATCH_COMMIT_IDENTIFIER)):
        committer(table, user).commit(Committable(identifier, [added(f"{user}-{identifier}")]))
    newest = committer(table).latest_of_user()
    assert newest is not None
    assert newest.id == 2
    assert committer(table, "nobody").latest_of_user() is None


def test_a_batch_commit_does_not_search_the_history(table: TableContext) -> None:
    commit = committer(table)
    for number in range(20):
        commit.commit(Committable(number, [added(f"a{number}")]))
    counted = FaultyFileIO(table.io)
    batch = committer(TableContext.open(counted, table.location, table.name), user="fresh")
    batch.commit(Committable(BATCH_COMMIT_IDENTIFIER, [added("b")]))
    assert {c.file_name for c in counted.calls if c.name == "read" and c.file_name.startswith("snapshot-")} == {
        "snapshot-20"
    }


def test_the_schema_id_is_the_tables_newest(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    for schema_id in (1, 2):
        table.schemas.publish(replace(table.schema, id=schema_id))
    commit.commit(Committable(2, [added("b")]))
    assert [s.schema_id for s in snapshots(table)] == [0, 2]


def test_statistics_are_carried_over_while_the_schema_is_unchanged(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    analyzed = replace(
        latest(table), id=2, commit_kind=CommitKind.ANALYZE, statistics="stat-1", commit_user="java", uuid="j"
    )
    table.io.write(table.paths.statistics("stat-1"), b'{"snapshotId": 1, "schemaId": 0}')
    assert table.snapshots.publish(analyzed)
    commit.commit(Committable(2, [added("b")]))
    assert latest(table).statistics == "stat-1"
    table.schemas.publish(replace(table.schema, id=1))
    commit.commit(Committable(3, [added("c")]))
    assert latest(table).statistics is None


def test_unknown_properties_of_other_engines_are_carried_over(table: TableContext) -> None:
    commit = committer(table)
    commit.commit(Committable(1, [added("a")]))
    theirs = replace(
        latest(table), id=2, index_manifest="index-manifest-1", next_row_id=77, commit_user="java", uuid="j"
    )
    assert table.snapshots.publish(theirs)
    commit.commit(Committable(2, [added("b")]))
    assert (latest(table).index_manifest, latest(table).next_row_id) == ("index-manifest-1", 77)


def test_duplicate_files_are_dropped_if_the_option_is_set(io: FileIO, place: str) -> None:
    table = make_table(io, place, options={"commit.discard-duplicate-files": "true"})
    committer(table).commit(Committable(1, [added("a")]))
    committer(table, user="the same files elsewhere").commit(Committable(1, [added("a", "b")]))
    assert live_names(table) == ["a", "b"]


def test_commits_to_a_branch_do_not_change_the_table(table: TableContext) -> None:
    committer(table).commit(Committable(1, [added("a")]))
    table.io.write(table.paths.for_branch("dev").schema(0), table.schema.to_json().encode())
    dev = TableContext.open(table.io, table.location, "db.t", branch="dev")
    assert committer(dev).commit(Committable(1, [added("b")])) == 1
    assert (live_names(table), live_names(dev)) == (["a"], ["b"])


def test_a_commit_message_is_small_when_pickled() -> None:
    message = CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(new_files=(data_file("data-558cf2ff-8452-4868-a29e-d890247edb24-0.parquet"),)),
    )
    pickled = pickle.dumps(message)
    assert pickle.loads(pickled) == message
    assert len(pickled) < 1_000


# ---------------------------------------------------------------- conflicts, as the table sees them


def compaction(before: str, after: str, level: int = 5) -> CommitMessage:
    return CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            compacted=CompactResult(
                before=(data_file(before, keys=(0, 0)),), after=(data_file(after, keys=(0, 0), level=level),)
            )
        ),
    )


def test_the_first_commit_must_agree_on_the_number_of_buckets(keyed: TableContext) -> None:
    messages = [
        CommitMessage(
            BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=(data_file(f"a{n}"),)), CommitBase(total_buckets=n)
        )
        for n in (2, 4)
    ]
    with pytest.raises(CommitConflict, match="2 buckets, but this commit has 4"):
        committer(keyed).commit(Committable(1, messages))
    assert snapshots(keyed) == []


def test_two_compactions_of_one_file_conflict(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a")]))
    committer(keyed, "one").commit(Committable(BATCH_COMMIT_IDENTIFIER, [compaction("a", "x")]))
    with pytest.raises(CommitConflict, match=r"file a .*has already removed it"):
        committer(keyed, "two").commit(Committable(BATCH_COMMIT_IDENTIFIER, [compaction("a", "y")]))
    assert live_names(keyed) == ["x"]


def test_a_refused_commit_leaves_no_metadata_behind(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a")]))
    before = {f.name for f in keyed.io.list_directory(keyed.paths.manifest_directory)}
    with pytest.raises(CommitConflict):
        committer(keyed, "two").commit(Committable(BATCH_COMMIT_IDENTIFIER, [compaction("gone", "y")]))
    assert {f.name for f in keyed.io.list_directory(keyed.paths.manifest_directory)} == before


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda _: None, id="in peace"),
        pytest.param(lambda call: Fault.BEFORE if call.name == "delete" else None, id="its files can't be deleted"),
    ],
)
def test_a_conflicting_compaction_is_discarded_and_the_rows_are_kept(
    place: str, fault: Callable[[Call], Fault | None]
) -> None:
    io = FaultyFileIO(MemoryFileIO(), fault)
    keyed = make_table(io, place, primary_key=True)
    directory = keyed.paths.bucket_directory("", 0)
    for name in ("new", "y"):
        keyed.io.write(f"{directory}/{name}", b"x")
    lost: list[CommitMessage] = []
    commit = TableCommit(keyed, "etl", on_lost_compaction=lost.extend)
    message = with_increment(compaction("gone", "y"), new_files=(data_file("new", keys=(9, 9)),))
    assert commit.commit(Committable(1, [message])) == 1
    assert live_names(keyed) == ["new"]
    assert lost == [message]
    deleted = {"y"} if fault(Call("delete", "")) is None else set()
    assert {file.name for file in keyed.io.list_directory(directory)} == {"new", "y"} - deleted
    assert commit.commit(Committable(1, [message])) is None


def test_a_full_disk_during_the_compaction_commit_does_not_hide_the_published_rows(place: str) -> None:
    """A caller that treated it as a failed commit would delete files of the table, or write the rows twice."""
    io = FaultyFileIO(MemoryFileIO())
    keyed = make_table(io, place, primary_key=True)
    commit = committer(keyed)
    commit.commit(Committable(1, [added("old")]))
    message = with_increment(compaction("old", "y"), new_files=(data_file("new", keys=(9, 9)),))

    def outputs() -> int:
        return sum(call.name == "open_output" for call in list(io.calls))

    of_the_rows = outputs() + 3  # a manifest and two lists; the others are of the compaction
    io.fault = lambda call: Fault.BEFORE if call.name == "open_output" and outputs() > of_the_rows else None
    with pytest.raises(
        CommitOutcomeUnknown, match=r"identifier 2, are in the table, in snapshot 2, but the compaction .* is not"
    ):
        commit.commit(Committable(2, [message]))
    io.fault = lambda _: None
    assert live_names(keyed) == ["new", "old"]
    assert commit.commit(Committable(2, [message])) is None


def test_a_fence_between_the_two_snapshots_of_a_commit_raises(place: str) -> None:
    """The second snapshot is created without a look at the table: the fence has its id."""

    def take_over(call: Call) -> None:
        if call.name == "create_if_absent" and call.file_name == "snapshot-2":
            faulty.fault = lambda _: None
            committer(replace(table, io=faulty.inner), "newer").commit(Committable(1, [added("theirs", base=1)]))

    def guard(new: Sequence[Snapshot]) -> None:
        if any(snapshot.commit_user == "newer" for snapshot in new):
            raise WriterFenced("another took over")

    faulty = FaultyFileIO(MemoryFileIO(), take_over)
    table = make_table(faulty, place, primary_key=True)
    message = with_increment(compaction("new", "y"), new_files=(data_file("new"),))
    with pytest.raises(WriterFenced):
        committer(table, guard=guard).commit(Committable(1, [message]))
    assert live_names(table) == ["new", "theirs"]


def test_another_writers_rows_in_our_bucket_are_a_conflict(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a")]))
    committer(keyed, "other").commit(Committable(1, [added("b", base=1)]))
    with pytest.raises(CommitConflict, match="bucket 0: another writer published snapshot 2 after snapshot 1"):
        committer(keyed).commit(Committable(2, [added("c", base=1)]))
    assert committer(keyed).commit(Committable(2, [added("c", base=2)])) == 3


def test_rows_in_another_bucket_are_no_conflict(keyed: TableContext) -> None:
    committer(keyed, "other").commit(Committable(1, [added("b", bucket=1)]))
    assert committer(keyed).commit(Committable(1, [added("c", bucket=0)])) == 2


def test_compactions_of_others_are_no_conflict(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a")]))
    committer(keyed, "compactor").commit(Committable(BATCH_COMMIT_IDENTIFIER, [compaction("a", "x")]))
    assert committer(keyed).commit(Committable(2, [added("c", base=1)])) == 3


def test_overwrites_of_others_are_a_conflict(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a")]))
    committer(keyed, "other").truncate()
    with pytest.raises(CommitConflict, match="another writer published snapshot 2"):
        committer(keyed).commit(Committable(2, [added("c", base=1)]))


def test_with_a_sequence_field_concurrent_rows_are_no_conflict(io: FileIO, place: str) -> None:
    keyed = make_table(io, place, primary_key=True, options={"sequence.field": "v"})
    committer(keyed, "other").commit(Committable(1, [added("b")]))
    assert committer(keyed).commit(Committable(1, [added("c")])) == 2


def test_concurrent_rows_without_a_key_are_no_conflict(table: TableContext) -> None:
    committer(table, "other").commit(Committable(1, [added("b")]))
    assert committer(table).commit(Committable(1, [added("c")])) == 2


def test_a_bucket_is_checked_from_its_own_base(keyed: TableContext) -> None:
    ours = committer(keyed)
    ours.commit(Committable(1, [added("a", bucket=0)]))
    committer(keyed, "other").commit(Committable(1, [added("b", bucket=1)]))
    assert ours.commit(Committable(2, [added("c", bucket=0, base=1)])) == 3
    with pytest.raises(CommitConflict, match="bucket 1: another writer published snapshot 2"):
        ours.commit(Committable(3, [added("d", bucket=1, base=1)]))


def test_a_bucket_opened_first_is_checked_back_to_its_base(keyed: TableContext) -> None:
    for number in range(2):
        committer(keyed, "other").commit(Committable(number, [added(f"b{number}", bucket=1, base=number)]))
    ours = committer(keyed)
    ours.commit(Committable(1, [added("a", bucket=0, base=2)]))
    with pytest.raises(CommitConflict, match="bucket 1: another writer published snapshot 2 after snapshot 1"):
        ours.commit(Committable(2, [added("c", bucket=1, base=1)]))
    assert ours.commit(Committable(2, [added("c", bucket=1, base=2)])) == 4


def test_expired_unseen_snapshots_are_a_conflict(keyed: TableContext) -> None:
    for number in range(3):
        committer(keyed, "other").commit(Committable(number, [added(f"b{number}", bucket=1, base=number)]))
    keyed.snapshots.delete_snapshot_file(1)
    with pytest.raises(CommitConflict, match="continue those of snapshot 0, but snapshot 1 has expired"):
        committer(keyed).commit(Committable(1, [added("c", bucket=0)]))
    assert committer(keyed).commit(Committable(1, [added("c", bucket=0, base=1)])) == 4


# ---------------------------------------------------------------- overwriting


def in_partition(name: str | None, *names: str) -> CommitMessage:
    return added(*names, in_partition=partition(name))


@pytest.fixture
def xyz(parted: TableContext) -> TableContext:
    """Files x1, x2, y1, and n1 in the null partition."""
    messages = [in_partition("x", "x1", "x2"), in_partition("y", "y1"), in_partition(None, "n1")]
    committer(parted).commit(Committable(1, messages))
    return parted


def overwritten(table: TableContext) -> Snapshot:
    snapshot = latest(table)
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    return snapshot


def test_a_dynamic_overwrite_replaces_the_partitions_it_wrote_to(xyz: TableContext) -> None:
    message = with_increment(in_partition("x", "x3"), changelog_files=(data_file("c"),))
    assert committer(xyz).overwrite(Committable(2, [message])) == 2
    assert live_names(xyz) == ["n1", "x3", "y1"]
    snapshot = overwritten(xyz)
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (3, -1)
    assert snapshot.changelog_manifest_list is None


def test_a_dynamic_overwrite_without_files_replaces_nothing(xyz: TableContext) -> None:
    assert committer(xyz).overwrite(Committable(2)) is None
    assert len(snapshots(xyz)) == 1


def test_a_static_overwrite_without_rows_empties_its_partition(xyz: TableContext) -> None:
    assert committer(xyz).overwrite(Committable(2), {"p": "x"}) == 2
    assert live_names(xyz) == ["n1", "y1"]


@pytest.mark.parametrize("null", [None, "__DEFAULT_PARTITION__"])
def test_the_null_partition_can_be_overwritten(xyz: TableContext, null: str | None) -> None:
    committer(xyz).overwrite(Committable(2, [in_partition(None, "n2")]), {"p": null})
    assert live_names(xyz) == ["n2", "x1", "x2", "y1"]


def test_a_whole_table_is_overwritten_on_request(xyz: TableContext) -> None:
    committer(xyz).overwrite(Committable(2, [in_partition("z", "z1")]), dynamic=False)
    assert live_names(xyz) == ["z1"]


def test_an_unpartitioned_table_is_overwritten_completely(table: TableContext) -> None:
    committer(table).commit(Committable(1, [added("a")]))
    committer(table).overwrite(Committable(2, [added("b")]))
    assert live_names(table) == ["b"]


def test_files_outside_of_the_partition_are_refused(xyz: TableContext) -> None:
    with pytest.raises(BadInput, match="outside of the partition to overwrite"):
        committer(xyz).overwrite(Committable(2, [in_partition("y", "y2")]), {"p": "x"})
    assert len(snapshots(xyz)) == 1


@pytest.mark.parametrize(
    ("partition_spec", "message"),
    [({"q": 1}, "is partitioned by p; 'q' can't select"), ({"p": 5}, "5 is not a valid value of partition column p")],
)
def test_an_invalid_partition_is_refused(xyz: TableContext, partition_spec: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        committer(xyz).overwrite(Committable(2), partition_spec)


def test_an_already_committed_overwrite_replaces_nothing(xyz: TableContext) -> None:
    committer(xyz).overwrite(Committable(2, [in_partition("x", "x3")]))
    committer(xyz, "other").commit(Committable(1, [in_partition("x", "x4")]))
    assert committer(xyz).overwrite(Committable(2, [in_partition("x", "x3")])) is None
    assert live_names(xyz) == ["n1", "x3", "x4", "y1"]


@pytest.mark.parametrize(
    ("ranges", "levels"),
    [
        pytest.param([(1, 3), (4, 9)], {5}, id="disjoint files go to the top"),
        pytest.param([(1, 4), (4, 9)], {0}, id="overlapping ones stay on level 0"),
    ],
)
def test_files_that_overwrite_a_bucket_go_to_the_top_level(
    keyed: TableContext, ranges: list[tuple[int, int]], levels: set[int]
) -> None:
    files = tuple(data_file(f"a{i}", keys=keys) for i, keys in enumerate(ranges))
    committer(keyed).overwrite(
        Committable(1, [CommitMessage(BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=files))])
    )
    assert {entry.file.level for entry in live_entries(keyed, latest(keyed))} == levels


def test_overwrite_upgrade_can_be_disabled(io: FileIO, place: str) -> None:
    keyed = make_table(io, place, primary_key=True, options={"overwrite-upgrade": "false"})
    committer(keyed).overwrite(Committable(1, [added("a")]))
    assert {entry.file.level for entry in live_entries(keyed, latest(keyed))} == {0}


def test_a_compaction_in_an_overwrite_is_a_second_snapshot(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("old")]))
    message = with_increment(compaction("new", "merged"), new_files=(data_file("new", keys=(0, 0)),))
    assert committer(keyed).overwrite(Committable(2, [message])) == 3
    assert [s.commit_kind for s in snapshots(keyed)][1:] == [CommitKind.OVERWRITE, CommitKind.COMPACT]
    assert live_names(keyed) == ["merged"]


def test_an_overwrite_has_no_changelog(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("old")]))
    message = compaction("new", "merged")
    compacted = replace(message.increment.compacted, changelog=(data_file("c"),))
    message = with_increment(message, new_files=(data_file("new", keys=(0, 0)),), compacted=compacted)
    committer(keyed).overwrite(Committable(2, [message]))
    assert [s.changelog_manifest_list for s in snapshots(keyed)] == [None, None, None]


def test_postponed_files_are_not_overwritten(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a"), added("waiting", bucket=-2)]))
    committer(keyed).truncate()
    assert live_names(keyed) == ["waiting"]


def test_an_overwrite_may_change_the_number_of_buckets(keyed: TableContext) -> None:
    committer(keyed).commit(Committable(1, [added("a")]))
    message = CommitMessage(
        BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=(data_file("b", keys=(0, 0)),)), CommitBase(total_buckets=8)
    )
    with pytest.raises(CommitConflict, match="into 2 buckets, but the rows of this commit are for 8"):
        committer(keyed).overwrite(Committable(2, [message]))  # the table has 2
    keyed = keyed.with_options({"bucket": "8"})
    committer(keyed).overwrite(Committable(2, [message]))
    assert [entry.total_buckets for entry in live_entries(keyed, latest(keyed))] == [8]


def test_truncating_removes_all_rows_and_is_recorded(xyz: TableContext) -> None:
    assert committer(xyz).truncate() == 2
    snapshot = overwritten(xyz)
    assert (snapshot.operation, snapshot.total_record_count, snapshot.delta_record_count) == ("TRUNCATE", 0, -4)
    assert live_names(xyz) == []


@pytest.mark.parametrize(
    ("specs", "left"),
    [
        pytest.param([{"p": "x"}], ["n1", "y1"], id="one"),
        pytest.param([{"p": "x"}, {"p": None}], ["y1"], id="several"),
        pytest.param([{"p": "nobody"}], ["n1", "x1", "x2", "y1"], id="one that is not there"),
    ],
)
def test_partitions_are_dropped(xyz: TableContext, specs: list[dict[str, object]], left: list[str]) -> None:
    assert committer(xyz).drop_partitions(specs) == 2
    assert live_names(xyz) == left


@pytest.mark.parametrize("specs", [[], [{}], [{"p": "x"}, {}]])
def test_dropping_without_a_partition_is_refused(xyz: TableContext, specs: list[dict[str, object]]) -> None:
    with pytest.raises(BadInput, match="names no partition"):
        committer(xyz).drop_partitions(specs)


@pytest.mark.parametrize("drops", [False, True])
def test_delete_entries_keep_statistics_unless_disabled(drops: bool, io: FileIO, place: str) -> None:
    table = make_table(io, place, options={"manifest.delete-file-drop-stats": str(drops).lower()})
    file = data_file("a", value_stats_columns=None)
    committer(table).commit(Committable(1, [CommitMessage(BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=(file,)))]))
    committer(table).truncate()
    assert live_names(table) == []
    manifests = ManifestStore(table)
    (delete,) = [e for meta in manifests.read_list(delta_list(latest(table))) for e in manifests.read(meta)]
    assert delete.kind is FileKind.DELETE
    assert delete.file.value_stats_columns == (() if drops else None)


# ---------------------------------------------------------------- giving up


def test_aborting_deletes_new_files_and_keeps_upgraded_ones(keyed: TableContext) -> None:
    directory = keyed.paths.bucket_directory("", 0)
    for name in ("new", "new.index", "changes", "moved", "merged"):
        keyed.io.write(f"{directory}/{name}", b"x")
    message = CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            new_files=(data_file("new", extra_files=("new.index",)),),
            changelog_files=(data_file("changes"),),
            compacted=CompactResult(
                before=(data_file("moved"),), after=(data_file("moved", level=5), data_file("merged", level=5))
            ),
        ),
    )
    TableCommit(keyed, "etl").abort([message])
    assert {file.name for file in keyed.io.list_directory(directory)} == {"moved"}
