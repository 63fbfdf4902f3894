"""Values sent between Spark's driver and its tasks are equal after pickling, with little overhead."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pytest

from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileSource
from tidelake.storage.write.compactor import RestoredBucket

STATS = SimpleStats(b"least", b"most", (0, None, 3))
FILE = DataFileMeta("a.parquet", 10, 2, b"k1", b"k2", STATS, EMPTY_STATS, 5, 6, 0, 3, file_source=FileSource.COMPACT)


@pytest.mark.parametrize(
    "value",
    [
        STATS,
        FILE,
        BucketId(EMPTY_ROW, 3),
        RestoredBucket([FILE]),
        CompactResult((FILE,), (FILE, FILE), reason="size ratio", known_files=frozenset({"a.parquet"})),
        CommitIncrement(new_files=(FILE,), compacted=CompactResult((FILE,))),
        CommitBase(7, 4, hash_index=frozenset({"index-1"})),
        CommitMessage(BucketId(EMPTY_ROW, 3), CommitIncrement(new_files=(FILE,)), CommitBase(7)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pickled_or_copied_values_are_equal(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value


def test_pickled_values_that_differ_in_one_field_are_different() -> None:
    @dataclass(frozen=True, slots=True)
    class Plain:
        first: int
        second: int = 2

    reduced = pickles_as_values(Plain)(1, second=7).__reduce__()
    assert reduced == (Plain, (1, 7))
