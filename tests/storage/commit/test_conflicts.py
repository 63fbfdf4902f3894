"""Conflict rules as tables: the existing files, the wanted changes, the raised conflict."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.storage.model.snapshots.tables import KEY_TYPES, data_file, partition
from tidelake.errors import CommitConflict
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.conflicts import (
    check_base_is_current,
    check_bucket_counts,
    check_buckets_unchanged,
    check_no_conflict,
    check_relied_on,
)
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind

COMPACT, OVERWRITE = CommitKind.COMPACT, CommitKind.OVERWRITE


def entries(text: str) -> list[ManifestEntry]:
    """`+a@5:1-9` adds file a, keys 1 to 9, to level 5; after it `/7`: 7 buckets, `#1` bucket 1, `!x` partition x."""
    return [entry(word) for word in text.split()]


def entry(word: str) -> ManifestEntry:
    word, _, in_partition = word.partition("!")
    word, _, bucket = word.partition("#")
    word, _, total = word.partition("/")
    word, _, keys = word.partition(":")
    name, _, level = word[1:].partition("@")
    low, _, high = keys.partition("-")
    return ManifestEntry(
        FileKind.ADD if word[0] == "+" else FileKind.DELETE,
        partition(in_partition) if in_partition else EMPTY_ROW,
        int(bucket or 0),
        int(total or 2),
        data_file(name, level=int(level or 0), keys=(int(low or 1), int(high or low or 1))),
    )


@dataclass(frozen=True)
class Case:
    id: str
    kind: CommitKind
    base: str
    delta: str
    conflict: str | None = None


CASES = [
    Case("a compaction of files that are there", COMPACT, "+a +b", "-a -b +c@5"),
    Case("a file that moves to another level", COMPACT, "+a", "-a +a@5"),
    Case("the file was compacted by another", COMPACT, "+b", "-a -b +c@5", "file a .*has already removed it"),
    Case(
        "it moved to another level meanwhile", COMPACT, "+a@4", "-a +c@5", "file a .* level 0.*has already removed it"
    ),
    Case("it is there in another bucket", COMPACT, "+a#1", "-a +c@5", "has already removed it"),
    Case("it is there in another partition", COMPACT, "+a!x", "-a!y +c@5!y", "has already removed it"),
    Case("nothing is there", COMPACT, "", "-a +c@5", "has already removed it"),
    Case("the same file again", COMPACT, "+a +c@5:1-3", "-a +c@5:1-3", "is added, which already exists"),
    Case("a file is added twice", COMPACT, "", "+c@5 +c@5", "lists a file twice.*already exists"),
    Case("a file is deleted, then added", OVERWRITE, "+a", "-a +a", "lists a file twice.*was deleted"),
    Case("levels next to each other", COMPACT, "+a +x@5:1-4 +y@5:9-12", "-a +c@5:5-8"),
    Case("level 0 may overlap", OVERWRITE, "+a:1-9 +x:1-9", "-a:1-9 +c:2-3"),
    Case("ranges that share their last key", COMPACT, "+a +x@5:1-4", "-a +c@5:4-8", "level 5: files x and c overlap"),
    Case("a range inside another", COMPACT, "+a +x@5:1-9", "-a +c@5:3-4", "overlap"),
    Case("overlap of two other levels", COMPACT, "+a +x@4:1-9", "-a +c@5:3-4"),
    Case("overlap in another bucket", COMPACT, "+a +x@5:1-9#1", "-a +c@5:3-4"),
    Case("keys are ordered as numbers", COMPACT, "+a +x@5:9-10", "-a +c@5:100-100"),
    Case("the number of buckets changed", COMPACT, "+a/2 +b/2", "-a/2 +c@5/4", "2 buckets, but this commit has 4"),
    Case(
        "the number changed in another bucket's file", COMPACT, "+b/4#1", "+c@5/2", "4 buckets, but this commit has 2"
    ),
    Case("another partition may have other buckets", COMPACT, "+a/2!x +b/4!y", "-a/2!x +c@5/2!x"),
    Case("an overwrite may change the number", OVERWRITE, "+a/2", "-a/2 +c/4"),
    Case("dynamic buckets have no number", COMPACT, "+a/-1", "-a/-1 +c@5/2"),
    Case("a number of 0 is none", COMPACT, "+a/0", "-a/0 +c@5/2"),
    Case("one bucket is a number", COMPACT, "+a/1", "-a/1 +c@5/2", "1 buckets, but this commit has 2"),
    Case("a file without a number hides none", COMPACT, "+z/-1 +a/2", "-a/2 +c@5/4", "2 buckets, but this commit has"),
    Case("level 1 must not overlap", COMPACT, "+a +x@1:1-9", "-a +c@1:3-4", "level 1: files x and c overlap"),
    Case("a level of one file hides none", COMPACT, "+a +u@3:1-9 +x@5:1-9", "-a +c@5:3-4", "x and c overlap"),
    Case("an overwrite of what is gone", OVERWRITE, "+b", "-a +c", "has already removed it"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_conflict_vectors_hold(case: Case) -> None:
    def check() -> None:
        check_no_conflict(case.kind, entries(case.base), entries(case.delta), KEY_TYPES, bytes.hex)

    if case.conflict is None:
        check()
    else:
        with pytest.raises(CommitConflict, match=case.conflict):
            check()


def test_the_live_files_of_the_changed_buckets_are_returned() -> None:
    base, delta = entries("+a +b +d#1 +e#2 +f!x"), entries("-a +c@5")
    live = check_no_conflict(COMPACT, base, delta, KEY_TYPES, bytes.hex, also=[BucketId(EMPTY_ROW, 2)])
    assert [one.file.file_name for one in live] == ["b", "e", "c"]


def test_append_tables_have_no_levels_to_compare() -> None:
    check_no_conflict(COMPACT, entries("+a +x@5:1-9"), entries("-a +c@5:3-4"), (), bytes.hex)


def test_the_files_of_a_first_commit_agree_on_buckets() -> None:
    check_bucket_counts(entries("+a/2!x +b/2!x +c/4!y"), bytes.hex)
    with pytest.raises(CommitConflict, match="2 buckets, but this commit has 4"):
        check_bucket_counts(entries("+a/2!x +b/4!x"), bytes.hex)


B0, B1 = BucketId(b"p", 0), BucketId(b"p", 1)


@pytest.mark.parametrize(
    ("bases", "foreign", "conflict"),
    [
        pytest.param({B0: 5}, {}, False, id="nobody else wrote"),
        pytest.param({B0: 5}, {B0: 5}, False, id="up to the base"),
        pytest.param({B0: 5}, {B0: 6}, True, id="after the base"),
        pytest.param({B0: 5}, {B1: 6}, False, id="to another bucket"),
        pytest.param({B0: 0}, {B0: 1}, True, id="to a table that was empty"),
        pytest.param({B0: 0}, {B1: 1}, False, id="to another bucket of a table that was empty"),
        pytest.param({B0: 9, B1: 3}, {B0: 6, B1: 4}, True, id="each bucket has its own base"),
    ],
)
def test_sequence_numbers_continue_what_is_there(
    bases: dict[BucketId, int], foreign: dict[BucketId, int], conflict: bool
) -> None:
    if conflict:
        with pytest.raises(CommitConflict, match=r"rows could win in the wrong order.*set sequence.field"):
            check_base_is_current(bases, foreign, bytes.hex)
    else:
        check_base_is_current(bases, foreign, bytes.hex)


# ---------------------------------------------------------------- what compactions looked up


@dataclass(frozen=True)
class LookupCase:
    """live: the table's files. compactions: for each, its bucket, `?` files above level 0 that it relied on (`?-`: it
    looked nothing up), `-` files that it read, `+` files that it made.
    """

    id: str
    live: str
    compactions: tuple[str, ...]
    conflict: str | None = None


def compaction(text: str) -> CommitMessage:
    bucket, *words = text.split()
    relied_on = {entry(word).file.place for word in words if word[0] == "?" and word != "?-"}
    files = {sign: tuple(entry(w).file for w in words if w[0] == sign) for sign in "-+"}
    compacted = CompactResult(files["-"], files["+"], relied_on=None if "?-" in words else frozenset(relied_on))
    return CommitMessage(BucketId(EMPTY_ROW, int(bucket)), CommitIncrement(compacted=compacted))


LOOKUP_CASES = [
    LookupCase("the files are those that it looked into", "+new +x@5 +y@1", ("0 ?x@5 ?y@1 -new +c@4",)),
    LookupCase("there was none, and there is none", "+new", ("0 -new +c@5",)),
    LookupCase("others added to level 0", "+new +newer +x@5", ("0 ?x@5 -new +c@4",)),
    LookupCase(
        "a file on level 1 is new", "+new +x@5 +y@1", ("0 ?x@5 -new +c@4",), ", bucket 0: another commit changed"
    ),
    LookupCase("a file is gone", "+new", ("0 ?x@5 -new +c@4",), "another commit changed"),
    LookupCase("a file moved to another level", "+new +x@4", ("0 ?x@5 -new +c@3",), "another commit changed"),
    LookupCase("the first file above level 0 is new", "+new +x@5", ("0 -new +c@4",), "another commit changed"),
    LookupCase("another bucket changed", "+new +x@5 +y@5#1", ("0 ?x@5 -new +c@4",)),
    LookupCase("another partition changed", "+new +x@5 +y@5!p", ("0 ?x@5 -new +c@4",)),
    LookupCase("it looked nothing up", "+new +x@5", ("0 ?- -new +c@4",)),
    LookupCase("no compaction", "+x@5", ()),
    LookupCase("one of two looked nothing up", "+a +b#1 +x@5 +y@5#1", ("0 ?- -a +c@4", "1 ?y@5 -b +d@4")),
    LookupCase(
        "only the one that looked up conflicts",
        "+a +b#1 +x@5 +y@5#1",
        ("0 ?- -a +c@4", "1 ?x@5 -b +d@4"),
        ", bucket 1: another commit changed",
    ),
    LookupCase("the second builds on the first", "+a +b +x@5", ("0 ?x@5 -a -x@5 +c@5", "0 ?c@5 -b +d@4")),
    LookupCase("the second builds on what the first upgraded", "+a +b", ("0 -a +a@5", "0 ?a@5 -b +d@4")),
    LookupCase("the second builds on one that looked nothing up", "+a +b", ("0 ?- -a +c@5", "0 ?c@5 -b +d@4")),
    LookupCase("level 1 counts for the second", "+a +b", ("0 -a +c@1", "0 ?c@1 -b +d@4")),
    LookupCase("level 0 does not count for the second", "+a +b", ("0 -a +c@0", "0 -b +d@4")),
    LookupCase("the second does not know the first", "+a +b", ("0 -a +c@5", "0 -b +d@4"), "another commit changed"),
    LookupCase(
        "the second relies on what the first replaced",
        "+a +b +x@5",
        ("0 ?x@5 -a -x@5 +c@5", "0 ?x@5 ?c@5 -b +d@4"),
        "another commit changed",
    ),
]


@pytest.mark.parametrize("case", LOOKUP_CASES, ids=lambda case: case.id)
def test_a_compaction_relies_on_the_files_that_it_looked_into(case: LookupCase) -> None:
    messages = [compaction(text) for text in case.compactions]
    if case.conflict is None:
        check_relied_on(messages, entries(case.live), bytes.hex)
    else:
        with pytest.raises(CommitConflict, match=case.conflict):
            check_relied_on(messages, entries(case.live), bytes.hex)


# ---------------------------------------------------------------- the number of buckets


@pytest.mark.parametrize(
    ("found", "conflict"),
    [
        pytest.param({}, False, id="nobody wrote"),
        pytest.param({b"p": 2}, False, id="the same number"),
        pytest.param({b"p": 4}, True, id="another number"),
        pytest.param({b"r": 4}, False, id="another number of another partition"),
        pytest.param({b"q": 2, b"p": 4}, True, id="another number of one of two partitions"),
    ],
)
def test_a_partition_keeps_its_number_of_buckets_while_it_is_written(found: dict[bytes, int], conflict: bool) -> None:
    totals = {b"q": 2, b"p": 2}
    if conflict:
        with pytest.raises(CommitConflict, match=r"70: another commit has put its rows into 4 buckets.*for 2 buckets"):
            check_buckets_unchanged(totals, found, bytes.hex)
    else:
        check_buckets_unchanged(totals, found, bytes.hex)
