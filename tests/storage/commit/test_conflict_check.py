"""Which commits of another job a commit conflicts with, as a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from tests.storage.model.snapshots.tables import added, committer, data_file, latest, make_table, partition
from tidelake.errors import CommitConflict, StaleSequenceNumbers
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit import conflict_check
from tidelake.storage.commit.commit_changes import commit_changes
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.commit_request import CommitRequest, always
from tidelake.storage.commit.concurrent_writes import OwnSnapshots
from tidelake.storage.commit.conflict_check import ConflictCheck
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.definition import FENCE, REWRITTEN
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, INT, DataField, not_null

HERE, THERE = BucketId(EMPTY_ROW, 0), BucketId(EMPTY_ROW, 1)
OLD = data_file("old", keys=(0, 0))
ABOVE = data_file("x", level=4, keys=(7, 7))


def compaction(name: str, base: CommitBase | None = None) -> CommitMessage:
    compacted = CompactResult((OLD,), (data_file(name, level=5, keys=(0, 0)),))
    return CommitMessage(HERE, CommitIncrement(compacted=compacted), base or CommitBase())


def replacement(name: str) -> CommitMessage:
    return CommitMessage(HERE, CommitIncrement(new_files=(data_file(name),), deleted_files=(OLD,)), CommitBase(1))


# Snapshot 1 has the file `old`. Then one of these is committed as snapshot 2, ...
MEANWHILE: dict[str, tuple[str, CommitMessage | None]] = {
    "nothing": ("theirs", None),
    "rows here": ("theirs", added("new", base=1)),
    "rows there": ("theirs", added("new", bucket=1, base=1)),
    "compaction": ("theirs", compaction("new")),
    "replacement": ("theirs", replacement("new")),
    "rescaled": (
        "theirs",
        CommitMessage(HERE, replacement("new").increment, CommitBase(1, total_buckets=5)),
    ),
    "our user": ("ours", added("new", base=1)),
    "ours": ("ourselves", added("new", base=1)),
}

# ... and then we commit what we computed from snapshot 1.
OURS: dict[str, tuple[CommitMessage, bool]] = {
    "rows": (added("x", base=1), True),
    "overwrite": (added("x", base=1), False),
    "replacement": (replacement("x"), True),
    "compaction": (compaction("x", CommitBase(1)), False),
    "lookups": (
        CommitMessage(HERE, CommitIncrement(compacted=CompactResult(after=(ABOVE,), relied_on=frozenset()))),
        False,
    ),
    "moving keys": (
        CommitMessage(THERE, CommitIncrement(new_files=(data_file("x"),)), CommitBase(1, key_index=1)),
        True,
    ),
}

EXPECTED = """
                 nothing   rows here   rows there   compaction   replacement   rescaled   our user   ours
rows             ok        stale       ok           ok           stale         conflict   stale      ok
overwrite        ok        ok          ok           ok           ok            ok         ok         ok
replacement      ok        stale       ok           conflict     stale         conflict   stale      ok
compaction       ok        ok          ok           conflict     conflict      conflict   ok         ok
lookups          ok        ok          ok           conflict     ok            conflict   ok         ok
moving keys      ok        conflict    conflict     ok           conflict      conflict   conflict   ok
"""

# With a sequence field, the order of commits doesn't decide between rows.
EXPECTED_WITH_SEQUENCE_FIELD = """
                 nothing   rows here   rows there   compaction   replacement   rescaled   our user   ours
rows             ok        ok          ok           ok           ok            conflict   ok         ok
overwrite        ok        ok          ok           ok           ok            ok         ok         ok
replacement      ok        ok          ok           conflict     conflict      conflict   ok         ok
compaction       ok        ok          ok           conflict     conflict      conflict   ok         ok
lookups          ok        ok          ok           conflict     ok            conflict   ok         ok
moving keys      ok        conflict    conflict     ok           conflict      conflict   conflict   ok
"""


def outcome(table: TableContext, ours: str, meanwhile: str) -> str:
    own = OwnSnapshots()
    check = ConflictCheck(table, own)
    committer(table, "theirs").commit(Committable(1, [added("old")]))
    user, theirs = MEANWHILE[meanwhile]
    if theirs is not None:
        options = {"bucket": "5"} if meanwhile == "rescaled" else {}
        committer(table.with_options(options), user).commit(Committable(2, [theirs]))
    if user == "ourselves":
        own.add(2)
    message, adds_rows = OURS[ours]
    (changes,) = commit_changes([message], 2, ignore_empty=True)
    request = CommitRequest(Committable(3, [message]), always(changes), adds_rows=adds_rows)
    try:
        assert check.check(request, latest(table), table.schema.id).changes == changes
    except StaleSequenceNumbers:
        return "stale"
    except CommitConflict:
        return "conflict"
    return "ok"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, EXPECTED, id="rows in the order of commits"),
        pytest.param({"sequence.field": "v"}, EXPECTED_WITH_SEQUENCE_FIELD, id="rows in the order of a field"),
    ],
)
def test_what_conflicts_with_what(options: dict[str, str], expected: str) -> None:
    lines = [f"{'':17}" + "   ".join(MEANWHILE)]
    for ours in OURS:
        cells = []
        for meanwhile in MEANWHILE:
            place = f"memory://conflicts-{len(options)}-{ours}-{meanwhile}/t".replace(" ", "-")
            table = make_table(MemoryFileIO(), place, primary_key=True, options=options)
            cells.append(f"{outcome(table, ours, meanwhile):{len(meanwhile)}}")
        lines.append(f"{ours:17}" + "   ".join(cells).rstrip())
    assert "\n".join(lines) == expected.strip("\n")


# ---------------------------------------------------------------- one check at a time

PLACES = itertools.count()


@dataclass
class Lake:
    """A table, the conflict check of our commits to it, and commits of others."""

    table: TableContext
    identifiers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.check = ConflictCheck(self.table, OwnSnapshots())

    def they_commit(self, *messages: CommitMessage, **options: str) -> Snapshot:
        table = self.table.with_options(options)
        committer(table, "theirs").commit(Committable(next(self.identifiers), messages))
        return latest(table)

    def outcome(
        self, *messages: CommitMessage, is_first: bool = True, adds_rows: bool = True, kind: CommitKind | None = None
    ) -> str:
        """What becomes of our commit: ok, stale, or the conflict. kind: instead of the one that the messages give."""
        (changes,) = commit_changes(messages, 2, ignore_empty=bool(messages))
        if kind is not None:
            changes = replace(changes, kind=kind)
        request = CommitRequest(Committable(3, messages), always(changes), adds_rows=adds_rows, is_first=is_first)
        schema = self.table.schemas.latest()
        try:
            self.check.check(request, self.table.snapshots.latest(), 0 if schema is None else schema.id)
        except StaleSequenceNumbers:
            return "stale"
        except CommitConflict as e:
            return str(e)
        return "ok"


def lake(options: dict[str, str] | None = None, **kwargs: bool) -> Lake:
    place = f"memory://conflict-check-{next(PLACES)}/t"
    return Lake(make_table(MemoryFileIO(), place, **{"primary_key": True, **kwargs}, options=options))


def rows(name: str, bucket: int = 0, **base: Any) -> CommitMessage:
    return CommitMessage(
        BucketId(EMPTY_ROW, bucket), CommitIncrement(new_files=(data_file(name, keys=(5, 5)),)), CommitBase(**base)
    )


BY_FIELD = {"sequence.field": "v"}
BUCKETS = "another commit has put its rows into"


def test_each_bucket_is_checked_from_its_own_base() -> None:
    """Of several messages of a bucket the oldest base counts; the buckets' order does not."""
    for theirs, buckets in product((0, 1), ("2", "-1")):
        found = lake({"bucket": buckets})
        found.they_commit(added("a"), added("b", bucket=1))
        found.they_commit(added("c", bucket=theirs, base=1))
        assert found.outcome(rows("x", 0, snapshot_id=1), rows("y", 1, snapshot_id=2)) == ("ok" if theirs else "stale")
        assert found.outcome(rows("x", 0, snapshot_id=2), rows("y", 1, snapshot_id=1)) == ("stale" if theirs else "ok")
    found = lake()
    found.they_commit(added("a"))
    found.they_commit(added("c", base=1))
    for bases in ((1, 2), (2, 1)):
        assert found.outcome(*[rows(f"x{n}", snapshot_id=n) for n in bases]) == "stale"


@pytest.mark.parametrize("is_observed", [True, False])
def test_a_commit_that_was_observed_is_remembered_although_it_expired(is_observed: bool) -> None:
    found = lake()
    found.they_commit(added("a"))
    assert found.outcome(rows("x", snapshot_id=0)) == "stale"
    second = found.they_commit(added("b", bucket=1, base=1))
    if is_observed:
        found.check.observe(second)
    found.they_commit(added("c", bucket=1, base=2))
    found.table.snapshots.delete_snapshot_file(2)
    outcome = found.outcome(rows("x", snapshot_id=1))
    assert (outcome == "ok") if is_observed else ("snapshot 2 has expired" in outcome)


@pytest.mark.parametrize(
    ("theirs", "ours", "conflict"),
    [
        pytest.param(5, 2, True, id="another number"),
        pytest.param(5, 5, False, id="the number that we know"),
        pytest.param(1, 2, True, id="a single bucket now"),
        pytest.param(5, 1, True, id="a single bucket before"),
        pytest.param(5, 0, False, id="ours have no number"),
        pytest.param(5, None, True, id="ours have the number of the table's option"),
        pytest.param(0, 2, False, id="theirs have no number"),
    ],
)
@pytest.mark.parametrize("expired", [False, True], ids=["all snapshots there", "a snapshot expired"])
def test_new_rows_are_for_the_number_of_buckets_of_their_partition(
    theirs: int, ours: int | None, conflict: bool, expired: bool
) -> None:
    """If a snapshot expired, it is unknown when the number changed: the files of now decide."""
    found = lake(BY_FIELD)
    found.they_commit()
    found.they_commit(rows("a", total_buckets=theirs))
    found.they_commit()
    if expired:
        found.table.snapshots.delete_snapshot_file(2)
    outcome = found.outcome(rows("x", snapshot_id=1, total_buckets=ours))
    assert (BUCKETS in outcome) is conflict, outcome
    assert conflict or outcome == "ok"


def test_the_number_of_buckets_may_have_changed_before_a_bucket_was_opened() -> None:
    """The buckets of a partition may be opened at different times. The first one has the partition's number."""
    for bases in ((1, 2), (2, 1)):
        found = lake(BY_FIELD)
        found.they_commit(rows("a", total_buckets=2))
        found.they_commit(rows("b", snapshot_id=1, total_buckets=5))
        messages = [rows(f"x{n}", n - 1, snapshot_id=n, total_buckets=2) for n in bases]
        assert BUCKETS in found.outcome(*messages)
        assert found.outcome(rows("x", snapshot_id=2, total_buckets=2)) == "ok"


@pytest.mark.parametrize("expired", [False, True], ids=["all snapshots there", "a snapshot expired"])
def test_buckets_without_new_rows_may_have_another_number(expired: bool) -> None:
    found = lake(BY_FIELD, partitioned=True)
    here, there = partition("here"), partition("there")
    found.they_commit(CommitMessage(BucketId(there, 0), rows("a").increment, CommitBase(1, 5)))
    found.they_commit()
    if expired:
        found.table.snapshots.delete_snapshot_file(1)
    only_index = CommitMessage(BucketId(there, 0), CommitIncrement(), CommitBase(0, 2))
    assert found.outcome(added("x", in_partition=here, base=0), only_index) == "ok"
    conflict = found.outcome(added("x", in_partition=there, base=0))
    assert "partition p=there: another commit has put its rows into 5" in conflict


def test_a_table_without_partitions_is_named_without_one() -> None:
    found = lake(BY_FIELD)
    found.they_commit(rows("a", total_buckets=5))
    assert found.outcome(rows("x")).startswith("db.t: another commit has put")


def test_postponed_rows_have_no_number_of_buckets() -> None:
    found = lake({**BY_FIELD, "bucket": "-2"})
    found.they_commit(rows("a", total_buckets=5))
    assert found.outcome(rows("x", snapshot_id=0)) == "ok"


def test_keys_move_only_if_nobody_else_wrote_since_their_index_was_read() -> None:
    found = lake(BY_FIELD)
    assert found.outcome(rows("x", key_index=0)) == "ok"
    found.they_commit(added("a"))
    found.they_commit(added("b", base=1))
    found.they_commit(added("c", bucket=1, base=2))
    conflict = "db.t: another writer has published snapshot 3 since"
    assert conflict in found.outcome(rows("x", key_index=1))
    assert conflict in found.outcome(rows("x", key_index=2))
    assert found.outcome(rows("x", key_index=3)) == "ok"
    for order in ((2, 3), (3, 2)):
        found.check = ConflictCheck(found.table, OwnSnapshots())
        assert conflict in found.outcome(*[rows(f"x{n}", key_index=n) for n in order])
    assert found.outcome(rows("x", key_index=2), is_first=False) == "ok"


def test_rows_are_placed_by_the_hash_index_of_now() -> None:
    found = lake({"bucket": "-1"})
    index = IndexFileMeta("HASH", "theirs", 10, 1)
    found.they_commit(
        CommitMessage(HERE, CommitIncrement(new_files=(data_file("a", keys=(1, 1)),), new_index_files=(index,)))
    )
    known = {name: rows("x", 1, snapshot_id=1, hash_index=frozenset([name])) for name in ("theirs", "older")}
    assert found.outcome(known["theirs"]) == "ok"
    for messages in ([known["older"]], [known["older"], rows("y", 2, snapshot_id=1)]):
        assert "another commit changed the index of its dynamic buckets" in found.outcome(*messages)
    assert found.outcome(known["older"], is_first=False) == "ok"
    compacted = CommitIncrement(compacted=CompactResult((data_file("a", keys=(1, 1)),), (data_file("c", level=5),)))
    assert found.outcome(CommitMessage(HERE, compacted, CommitBase(1, hash_index=frozenset()))) == "ok"


def test_columns_are_written_for_rows_that_did_not_change() -> None:
    found = lake({"row-tracking.enabled": "true", "data-evolution.enabled": "true", "bucket": "-1"}, primary_key=False)
    found.they_commit(added("a.parquet"))

    def column(since: int) -> CommitMessage:
        file = data_file("x.parquet", first_row_id=0, write_columns=("v",))
        return CommitMessage(HERE, CommitIncrement(new_files=(file,)), CommitBase(row_ids=since))

    assert found.outcome(column(1)) == "ok"
    found.they_commit(column(1))
    assert "snapshot 2 changed rows" in found.outcome(column(1))


@pytest.mark.parametrize(
    ("option", "files", "conflict"),
    [
        pytest.param(5, None, True, id="the table has another number"),
        pytest.param(1, None, True, id="the table has a single bucket"),
        pytest.param(2, None, False, id="the table has our number"),
        pytest.param(-2, None, False, id="the table has no number"),
        pytest.param(5, 2, False, id="the partition keeps our number"),
        pytest.param(5, 0, True, id="its files have no number"),
    ],
)
def test_a_partition_without_files_gets_the_number_of_buckets_of_now(
    option: int, files: int | None, conflict: bool
) -> None:
    found = lake(BY_FIELD)
    found.they_commit(*([] if files is None else [rows("a", total_buckets=files)]))
    rescaled(found.table, option)
    outcome = found.outcome(rows("x", snapshot_id=1, total_buckets=2))
    assert (f"db.t: the table has bucket = {option} since" in outcome) is conflict, outcome
    assert conflict or outcome == "ok"


# ---------------------------------------------------------------- overwrites of a rescaled partition


def replacing(name: str, total: int) -> CommitMessage:
    return CommitMessage(HERE, CommitIncrement((data_file(name),), (OLD,)), CommitBase(1, total))


def rescaled(table: TableContext, total: int) -> None:
    SchemaStore(table.io, table.paths).publish(
        replace(table.schema, id=1, options={**table.schema.options, "bucket": str(total)})
    )


@pytest.mark.parametrize(
    ("now", "option", "ours", "conflict"),
    [
        pytest.param(5, 5, 2, True, id="it was rescaled to the number of the table"),
        pytest.param(1, 1, 2, True, id="it was rescaled to one bucket"),
        pytest.param(5, 5, 1, True, id="it was rescaled from one bucket"),
        pytest.param(5, 2, 2, False, id="the overwrite itself rescales it"),
        pytest.param(5, 5, 5, False, id="it has our number"),
        pytest.param(5, 7, 2, False, id="the table has a third number"),
        pytest.param(5, 5, 0, False, id="ours have no number"),
        pytest.param(0, 5, 2, False, id="the files there have no number"),
    ],
)
def test_an_overwrite_from_before_a_rescale_is_refused(now: int, option: int, ours: int, conflict: bool) -> None:
    found = lake(BY_FIELD)
    found.they_commit(
        rows("numbered", 1, total_buckets=now or -1), CommitMessage(HERE, CommitIncrement((OLD,)), CommitBase(0, now))
    )
    rescaled(found.table, option)
    outcome = found.outcome(replacing("x", ours), adds_rows=False)
    assert (BUCKETS in outcome) is conflict, outcome
    assert conflict or outcome == "ok"


def test_files_without_a_number_hide_no_rescale() -> None:
    found = lake(BY_FIELD)
    found.they_commit(
        rows("numbered", 1, total_buckets=5), CommitMessage(HERE, CommitIncrement((OLD,)), CommitBase(0, 0))
    )
    rescaled(found.table, 5)
    assert BUCKETS in found.outcome(replacing("x", 2), adds_rows=False)
    assert BUCKETS in found.outcome(replacing("x", 2), rows("y", 1, total_buckets=0), adds_rows=False)


def test_only_new_files_of_an_overwrite_have_its_number_of_buckets() -> None:
    found = lake(BY_FIELD)
    found.they_commit(CommitMessage(HERE, CommitIncrement((OLD,)), CommitBase(0, 5)))
    rescaled(found.table, 5)
    deleting = CommitMessage(HERE, CommitIncrement(deleted_files=(OLD,)), CommitBase(1, 2))
    assert found.outcome(rows("x", 1, total_buckets=5), deleting, adds_rows=False) == "ok"


# ---------------------------------------------------------------- schemas that changed since our writer was opened


def with_schema(table: TableContext, number: int, **changes: Any) -> TableContext:
    """Publish the next version of the table's schema. Returns the table under it."""
    options = {**table.schema.options, **changes.pop("options", {})}
    schema = replace(table.schema, id=number, options=options, **changes)
    SchemaStore(table.io, table.paths).publish(schema)
    return table.with_schema(schema)


def deleting(file: DataFileMeta) -> CommitMessage:
    return CommitMessage(HERE, CommitIncrement(deleted_files=(file,)), CommitBase(1))


@pytest.mark.parametrize(
    ("ours", "adds_rows", "is_kept_out"),
    [
        pytest.param(rows("x", snapshot_id=1), True, True, id="new rows"),
        pytest.param(rows("x", snapshot_id=1), False, True, id="rows of an overwrite"),
        pytest.param(deleting(OLD), True, True, id="deleted rows"),
        pytest.param(compaction("x", CommitBase(1)), False, False, id="a compaction, which changes no rows"),
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["loaded before it", "loaded after it"])
def test_rows_do_not_change_while_a_rewrite_ends(
    ours: CommitMessage, adds_rows: bool, is_kept_out: bool, is_known: bool
) -> None:
    """Its copies of all rows are made, and are about to replace them."""
    found = lake()
    found.they_commit(CommitMessage(HERE, CommitIncrement(new_files=(OLD,)), CommitBase(0)))
    until_ms = epoch_ms() + 3_600_000
    fenced = with_schema(found.table, 1, options={FENCE: str(until_ms)})
    if not is_known:
        found = Lake(fenced)
    outcome = found.outcome(ours, adds_rows=adds_rows)
    until = datetime.fromtimestamp(until_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert (f"rows can change again from {until} on" in outcome) is is_kept_out
    assert (outcome == "ok") is not is_kept_out


def test_a_commit_without_changes_passes_a_rewrite_that_ends() -> None:
    """It only says how far a source was read."""
    found = lake()
    found.they_commit(added("a"))
    with_schema(found.table, 1, options={FENCE: str(epoch_ms() + 3_600_000)})
    assert found.outcome() == "ok"


def test_a_rewrite_that_should_have_ended_keeps_nobody_out() -> None:
    found = lake()
    found.they_commit(added("a"))
    with_schema(found.table, 1, options={FENCE: "1"})
    assert found.outcome(rows("x", snapshot_id=1)) == "ok"


WIDER_KEY = {"fields": (DataField(0, "k", not_null(BIGINT)), DataField(1, "v", BIGINT))}


@pytest.mark.parametrize(
    ("changes", "adds_rows", "expected"),
    [
        pytest.param({}, True, "ok", id="nothing that matters"),
        pytest.param(
            {"fields": (DataField(0, "k", not_null(INT)), DataField(1, "w", BIGINT))}, True, "ok", id="a name"
        ),
        pytest.param(WIDER_KEY, True, "another key or with other types", id="the type of the key"),
        pytest.param(WIDER_KEY, False, "ok", id="the type of the key, and we add no rows"),
        pytest.param({"options": {"snapshot.num-retained.max": "9"}}, True, "ok", id="an option that may change"),
        pytest.param(
            {"options": {"merge-engine": "first-row"}},
            True,
            "altered while it had no rows",
            id="one that may not",
        ),
        pytest.param({"options": {"merge-engine": "first-row"}}, False, "ok", id="such an option, and we add no rows"),
    ],
)
def test_rows_are_added_under_the_definition_that_they_were_written_under(
    changes: dict[str, Any], adds_rows: bool, expected: str
) -> None:
    found = lake()
    with_schema(found.table, 1, **changes)
    assert expected in found.outcome(rows("x"), adds_rows=adds_rows)


def test_each_version_since_the_writer_was_opened_is_compared_with_the_one_before_it_once() -> None:
    """An option that was changed and changed back may have had rows in between. Versions that were fine are not read
    again."""
    found = lake()
    with_schema(found.table, 1, options={"merge-engine": "first-row"})
    with_schema(found.table, 2, options={"merge-engine": "deduplicate"})
    assert "altered while it had no rows" in found.outcome(rows("x"))
    found = lake()
    for number in (1, 2):
        with_schema(found.table, number, options={"snapshot.num-retained.max": str(10 + number)})
        assert found.outcome(rows("x")) == "ok"
    asked: list[int] = []
    get = found.table.schemas.get

    def noted(_: SchemaStore, number: int) -> TableSchema:
        asked.append(number)
        return get(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchemaStore, "get", noted)
        with_schema(found.table, 3, options={"merge-engine": "first-row"})
        assert "altered while it had no rows" in found.outcome(rows("x"))
    assert 3 in asked
    assert not {1, 2} & set(asked)


@pytest.mark.parametrize(
    ("ours", "kind", "expected"),
    [
        pytest.param(rows("x", snapshot_id=1), None, "did not finish", id="new rows"),
        pytest.param(deleting(OLD), None, "ok", id="no new files"),
        pytest.param(replacement("x"), CommitKind.APPEND, "did not finish", id="old files replaced by a rewrite"),
        pytest.param(replacement("x"), CommitKind.OVERWRITE, "ok", id="all old files overwritten"),
        pytest.param(
            rows("x", snapshot_id=1),
            CommitKind.OVERWRITE,
            "did not finish",
            id="an overwrite of others",
        ),
    ],
)
def test_nothing_joins_files_of_a_rewrite_that_did_not_finish(
    ours: CommitMessage, kind: CommitKind | None, expected: str
) -> None:
    found = lake()
    found.they_commit(CommitMessage(HERE, CommitIncrement(new_files=(OLD,)), CommitBase(0)))
    unfinished = Lake(with_schema(found.table, 1, **WIDER_KEY, options={REWRITTEN: "0"}))
    for _ in range(2):  # a refusal is no proof for the next commit
        assert expected in unfinished.outcome(ours, adds_rows=False, kind=kind)


def test_a_table_without_rows_has_no_rewrite_to_finish() -> None:
    found = lake()
    assert Lake(with_schema(found.table, 1, **WIDER_KEY, options={REWRITTEN: "0"})).outcome(rows("x")) == "ok"


def searches_of(found: Lake) -> dict[str, int]:
    """Make two commits. Returns how often it was found out whether older files are possible, and how often which."""
    counts = dict.fromkeys(("may_have_older_files", "entries_of_older_definition"), 0)

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            counts[name] += 1
            return real(*given)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in counts:
            patch.setattr(conflict_check, name, counting(name, getattr(conflict_check, name)))
        for name in ("x", "y"):
            assert found.outcome(rows(name, snapshot_id=1)) == "ok"
    return counts


def test_a_finished_rewrite_is_looked_for_once() -> None:
    """It reads the live files. A table that was never rewritten is spared that."""
    found = Lake(with_schema(lake().table, 1, **WIDER_KEY, options={REWRITTEN: "0"}))
    file = replace(OLD, schema_id=1)
    found.they_commit(CommitMessage(HERE, CommitIncrement(new_files=(file,)), CommitBase(0)))
    assert searches_of(found) == {"may_have_older_files": 1, "entries_of_older_definition": 1}
    never = lake()
    never.they_commit(added("a"))
    assert searches_of(never) == {"may_have_older_files": 1, "entries_of_older_definition": 0}
