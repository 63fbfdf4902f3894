"""The compaction of a commit: published with the deletes that are still needed, or lost without a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from tests.storage.model.snapshots.tables import added, committer, data_file, latest, live_names, make_table, snapshots
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.commit.tombstones import Tombstones
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, COMPACTION_REASON_PROPERTY, CommitKind
from tidelake.storage.model.table import TableContext

IO = FaultyFileIO(MemoryFileIO())


def files(names: str, level: int = 0) -> tuple[DataFileMeta, ...]:
    return tuple(data_file(name, level=level, keys=(ord(name[0]), ord(name[0]))) for name in names.split())


def compaction(
    before: str,
    after: str,
    *,
    new: str = "",
    deletes: str = "",
    known: str = "",
    bucket: int = 0,
    reason: str = "",
    base: CommitBase | None = None,
) -> CommitMessage:
    """A compaction of level 0 into level 5. `deletes`: tombstones; `known`: what the compaction knew of its bucket."""
    done = CompactResult(
        files(before), files(after, 5), reason=reason, tombstones=files(deletes), known_files=frozenset(known.split())
    )
    return CommitMessage(BucketId(EMPTY_ROW, bucket), CommitIncrement(files(new), compacted=done), base or CommitBase())


@dataclass
class Lake:
    """A table whose snapshot 1 has the file `old` in both buckets, and the commits of one user to it.

    lost: the calls of `on_lost_compaction`.
    """

    table: TableContext
    lost: list[list[CommitMessage]] = field(default_factory=list)

    def commit_as(self, user: str = "ours") -> TableCommit:
        return TableCommit(self.table, user, on_lost_compaction=lambda messages: self.lost.append(list(messages)))

    def store(self, messages: Iterable[CommitMessage]) -> None:
        """Make the files of the messages: commits don't open them."""
        for message in messages:
            for file in message.increment.written_files:
                IO.write(f"{self.directory(message.bucket.bucket)}/{file.file_name}", b"x")

    def stored(self, bucket: int = 0) -> list[str]:
        return sorted(file.name for file in IO.list_directory(self.directory(bucket)))

    def directory(self, bucket: int) -> str:
        return self.table.paths.bucket_directory("", bucket)


@pytest.fixture
def lake() -> Iterable[Lake]:
    options = {"commit.max-retries": "2", "sequence.field": "v"}
    table = make_table(IO, f"memory://{uuid4().hex}/t", primary_key=True, options=options)
    committer(table, "before").commit(Committable(1, [added("old"), added("old", bucket=1)]))
    yield Lake(table)
    IO.fault = lambda _: None


# ---------------------------------------------------------------- deletes that a compaction dropped


@dataclass(frozen=True)
class Case:
    """needed: the messages, by number, whose deletes are committed."""

    id: str
    messages: Sequence[CommitMessage]
    meanwhile: Sequence[CommitMessage] = ()
    needed: tuple[int, ...] = ()


WITH_DELETE = compaction("old", "c", deletes="t", known="old")
CASES = [
    Case("nobody else wrote", [WITH_DELETE]),
    Case("another added a file", [WITH_DELETE], [added("theirs")], (0,)),
    Case("another added a file to another bucket", [WITH_DELETE], [added("theirs", bucket=1)]),
    Case("it knew the file of another", [compaction("old", "c", deletes="t", known="old theirs")], [added("theirs")]),
    Case("rows are committed with it", [compaction("old", "c", new="n", deletes="t", known="old")]),
    Case("rows of both", [compaction("old", "c", new="n", deletes="t", known="old")], [added("theirs")], (0,)),
    Case("several deletes", [compaction("old", "c", deletes="t u", known="old")], [added("theirs")], (0,)),
    Case("several deletes, none needed", [compaction("old", "c", deletes="t u", known="old")]),
    Case(
        "one bucket of two",
        [WITH_DELETE, compaction("old", "d", deletes="u", known="old", bucket=1)],
        [added("theirs", bucket=1)],
        (1,),
    ),
    Case("another bucket dropped none", [WITH_DELETE, compaction("old", "d", bucket=1)], [added("theirs", bucket=1)]),
    Case(
        "two compactions of a bucket know each other's files",
        [WITH_DELETE, compaction("n", "d", new="n", deletes="u", known="c")],
    ),
]


def compacted_later(message: CommitMessage) -> CommitMessage:
    """The compaction, as if it had started after its rows were committed: then it knows their files."""
    increment = message.increment
    known = replace(increment.compacted, known_files=increment.known_files)
    return replace(message, increment=CommitIncrement(compacted=known))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("when", ["with its rows", "after its rows", "alone"])
def test_dropped_deletes_are_committed_where_a_file_was_not_known(case: Case, when: str, lake: Lake) -> None:
    """Otherwise an older row, which another writer committed meanwhile, would reappear. They are on level 0, so a
    bucket that got them must be restored before its next compaction.
    """
    lake.store(case.messages)
    commit = lake.commit_as()
    if case.meanwhile:
        committer(lake.table, "theirs").commit(Committable(1, case.meanwhile))
    rows = [replace(m, increment=m.increment.without_compaction()) for m in case.messages]
    left = [[compacted_later(m) for m in case.messages], []]
    if when == "with its rows":
        published = commit.commit(Committable(2, case.messages))
    else:
        commit.commit(Committable(2, rows))
        if when == "alone":
            published = commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, left[0]))
        else:
            published = commit.compact_level_0(Committable(2), lambda: left.pop(0))
    assert published == latest(lake.table).id
    assert latest(lake.table).commit_kind is CommitKind.COMPACT
    dropping = [m for m in case.messages if m.increment.compacted.tombstones]
    needed = [case.messages[number] for number in case.needed]
    tombstones = {m: {file.file_name for file in m.increment.compacted.tombstones} for m in dropping}
    live = live_names(lake.table)
    for message in dropping:
        assert (tombstones[message] <= set(live)) is (message in needed)
        assert (tombstones[message] <= set(lake.stored(message.bucket.bucket))) is (message in needed)
        assert tombstones[message].isdisjoint(live) is (message not in needed)
    assert {"c"} <= set(live), "the compaction itself is committed in any case"
    assert [m.bucket for m in [m for call in lake.lost for m in call]] == [m.bucket for m in needed]


def test_dropped_deletes_whose_file_was_published_are_never_deleted() -> None:
    message = compaction("old", "c", deletes="t u")
    assert Tombstones([message]).split({"t"}) == ([message], [])
    needed, unneeded = Tombstones([message]).split({"c"})
    assert needed == []
    assert [file.file_name for one in unneeded for file in one.increment.written_files] == ["t", "u"]


def test_a_compaction_that_dropped_no_deletes_reads_nothing_for_them() -> None:
    assert not Tombstones([compaction("old", "c")])
    assert Tombstones([WITH_DELETE]).partitions == {EMPTY_ROW}


def test_deletes_of_a_commit_that_was_done_before_are_kept(lake: Lake) -> None:
    """The first attempt may have committed these very files."""
    lake.store([WITH_DELETE])
    lake.commit_as().commit(Committable(2, [WITH_DELETE]))
    lake.store([WITH_DELETE])
    assert lake.commit_as().commit(Committable(2, [WITH_DELETE])) is None
    assert lake.stored() == ["c", "t"]


def test_a_commit_succeeds_although_unneeded_deletes_can_not_be_removed(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.store([WITH_DELETE])
    IO.fault = lambda call: Fault.BEFORE if call.name == "delete" else None
    assert lake.commit_as().commit(Committable(2, [WITH_DELETE])) == 3
    assert live_names(lake.table) == ["c", "old"]
    assert "files of deletes stay, for the orphan cleaner" in caplog.text


# ---------------------------------------------------------------- a compaction that is lost

LOST = compaction("gone", "c", new="n", deletes="t", known="gone")


def test_all_files_of_a_lost_compaction_are_deleted_and_its_bucket_is_reported_once(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.store([LOST])
    assert lake.commit_as().commit(Committable(2, [LOST])) == 2
    assert (live_names(lake.table), lake.stored()) == (["n", "old", "old"], ["n"])
    assert lake.lost == [[LOST]]
    assert "compaction discarded" in caplog.text


def test_files_of_a_lost_compaction_that_can_not_be_deleted_are_left(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.store([LOST])
    IO.fault = lambda call: Fault.BEFORE if call.name == "delete" else None
    assert lake.commit_as().commit(Committable(2, [LOST])) == 2
    assert "its files stay, for the orphan cleaner" in caplog.text


# ---------------------------------------------------------------- compactions after their commit


def one_by_one(*rounds: Sequence[CommitMessage]) -> tuple[Callable[[], Sequence[CommitMessage]], list[int]]:
    """What a writer returns for each call of `compact_level_0`, then nothing; and the number of calls."""
    calls = [0]

    def compact() -> Sequence[CommitMessage]:
        calls[0] += 1
        return rounds[calls[0] - 1] if calls[0] <= len(rounds) else []

    return compact, calls


def test_compactions_after_a_commit_have_its_identifier_and_properties(lake: Lake) -> None:
    commit = lake.commit_as()
    done = Committable(7, [added("n", base=1)], properties={"position": "9"})
    commit.commit(done)
    first = compaction("n", "c", reason="size ratio")
    other = compaction("old", "d", bucket=1)
    compact, calls = one_by_one([first, other], [compaction("old", "e")])
    assert commit.compact_level_0(done, compact) == 4
    assert calls == [3]
    assert [(s.commit_identifier, s.commit_kind, s.properties) for s in snapshots(lake.table)[2:]] == [
        (7, CommitKind.COMPACT, {COMPACTION_REASON_PROPERTY: "size ratio", "position": "9"}),
        (7, CommitKind.COMPACT, {"position": "9"}),
    ]
    assert live_names(lake.table) == ["c", "d", "e"]


def test_nothing_to_compact_publishes_nothing(lake: Lake) -> None:
    compact, calls = one_by_one()
    assert lake.commit_as().compact_level_0(Committable(2), compact) is None
    assert (calls, len(snapshots(lake.table))) == ([1], 1)


def test_a_compaction_that_loses_every_race_is_given_up_after_the_configured_retries(lake: Lake) -> None:
    compact, calls = one_by_one(*[[compaction("gone", "c")] for _ in range(9)])
    assert lake.commit_as().compact_level_0(Committable(2), compact) is None
    assert calls == [3]
    assert len(lake.lost) == 3


def test_a_compaction_that_was_published_counts_although_the_next_one_is_lost(lake: Lake) -> None:
    lost = compaction("gone", "d")
    lake.store([lost])
    compact, _ = one_by_one([compaction("old", "c")], [lost])
    assert lake.commit_as().compact_level_0(Committable(2), compact) == 2
    assert lake.lost == [[lost]]
    assert lake.stored() == []


def test_a_compaction_after_its_commit_is_not_checked_as_the_commit_was(lake: Lake) -> None:
    """The key index that placed its rows was checked when they were committed."""
    committer(lake.table, "theirs").commit(Committable(1, [added("theirs", bucket=1)]))
    message = compaction("old", "c", base=CommitBase(1, key_index=1))
    compact, _ = one_by_one([message])
    assert lake.commit_as().compact_level_0(Committable(2), compact) == 3


def test_an_error_leaves_the_compaction_to_the_next_commit(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    def compact() -> Sequence[CommitMessage]:
        raise OSError("no space left")

    assert lake.commit_as().compact_level_0(Committable(2), compact) is None
    assert "compaction is left to the next commit" in caplog.text
