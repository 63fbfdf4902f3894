"""Which commits of another job a commit conflicts with, as a table."""

from __future__ import annotations

import pytest

from tests.storage.model.snapshots.tables import added, committer, data_file, latest, make_table
from tidelake.errors import CommitConflict, StaleSequenceNumbers
from tidelake.storage.commit.commit_changes import commit_changes
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.commit_request import CommitRequest, always
from tidelake.storage.commit.concurrent_writes import OwnSnapshots
from tidelake.storage.commit.conflict_check import ConflictCheck
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext

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
