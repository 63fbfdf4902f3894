"""The cache of lookup files: it stays within its limits, and does not change the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.files import paper_file
from tidelake.storage.files.stats_collection import ColumnBounds
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types import BIGINT, STRING, DataType
from tidelake.storage.write.lookup import file_parts
from tidelake.storage.write.lookup.file_parts import FileParts, LookupFilePart
from tidelake.storage.write.lookup.lookup_cache import LookupCache
from tidelake.storage.write.lookup.lookup_file import Keys

SIZES: list[dict[str, str]] = [
    {},
    {"lookup.cache-max-disk-size": "0 b"},
    {"lookup.cache-max-disk-size": "3 kb"},
    {"lookup.cache-max-memory-size": "0 b"},
    {"lookup.cache.bloom.filter.enabled": "false"},
    {"lookup.cache.bloom.filter.fpp": "0.9"},
]
ONE_BLOCK = 4
SMALL_PART = 3


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_parts, "PART_ROWS", SMALL_PART)
        yield


class Asked:
    """Data files with a key and one column `v`, and a cache.

    chunk_rows: of a row group; 0: the file has none.
    reads: how often a file or a part of one was read.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        directory: Path | None = None,
        now_s: Callable[[], float] = lambda: 0,
        chunk_rows: int = 0,
    ) -> None:
        self.cache = LookupCache(TableOptions(options), None if directory is None else str(directory), now_s)
        self.chunk_rows = chunk_rows
        self.reads = self.rows_read = 0

    def find(
        self, name: str, there: list[Any], keys: list[Any], types: tuple[DataType, pa.DataType] = (BIGINT, pa.int64())
    ) -> dict[Any, Any]:
        """Of sorted keys. v is the place of the key in the file."""
        _, arrow_type = types

        def parts() -> FileParts:
            if not self.chunk_rows:
                return FileParts.of(len(there), None)
            chunks = [there[start : start + self.chunk_rows] for start in range(0, len(there), self.chunk_rows)]
            minimum, maximum = (pa.array([chunk[end] for chunk in chunks], arrow_type) for end in (0, -1))
            rows = pa.array(map(len, chunks), pa.int64())
            return FileParts.of(len(there), ColumnBounds(minimum, maximum, pa.nulls(len(chunks), pa.int64()), rows))

        def read(part: LookupFilePart) -> Iterator[pa.RecordBatch]:
            self.reads += 1
            self.rows_read += part.row_count
            end = part.first_row + part.row_count
            for start in range(part.first_row, end, ONE_BLOCK):
                block = pa.array(there[start : min(end, start + ONE_BLOCK)], arrow_type)
                numbers = pa.array(range(start, start + len(block)), pa.int64())
                yield pa.RecordBatch.from_arrays([block, numbers], names=["k", "v"])

        file = replace(paper_file(name), row_count=len(there))
        columns = pa.RecordBatch.from_arrays([pa.array(keys, arrow_type)], names=["k"])
        asked = Keys(columns, np.arange(len(keys)))
        found = {}
        for one in self.cache.find(file, name, parts, read, asked):
            rows = one.rows.rows.to_pylist()
            assert one.positions.tolist() == [row["v"] for row in rows]
            for place, row in zip(one.rows.keys.tolist(), rows, strict=True):
                assert keys[place] == row["k"]
                found[row["k"]] = row["v"]
        return found


NUMBERS = st.sets(st.integers(-(2**40), 2**40) | st.integers(0, 30), min_size=1).map(sorted)
TEXTS = st.sets(st.text("ab\x00é", max_size=30), min_size=1).map(lambda texts: sorted(texts, key=str.encode))


@pytest.mark.parametrize("options", SIZES, ids=str)
@given(drawn=st.data())
def test_lookups_do_not_depend_on_the_cache(options: dict[str, str], drawn: st.DataObject) -> None:
    asked = Asked(options, chunk_rows=drawn.draw(st.sampled_from([0, 1, 2, 5])))
    kinds = [(NUMBERS, (BIGINT, pa.int64())), (TEXTS, (STRING, pa.string()))]
    strategy, types = drawn.draw(st.sampled_from(kinds))
    files = drawn.draw(st.lists(strategy, min_size=1, max_size=3))
    for keys in drawn.draw(st.lists(strategy, min_size=1, max_size=4)):
        for number, there in enumerate(files):
            expected = {key: place for place, key in enumerate(there) if key in keys}
            assert asked.find(f"file-{number}", there, keys, types) == expected


def test_a_file_is_read_once_and_kept_until_it_is_unused_for_the_retention_time(tmp_path: Path) -> None:
    times = [0.0]
    asked = Asked({"lookup.cache-file-retention": "10 s"}, tmp_path, lambda: times[0])
    for now_s, reads in [(0, 1), (9, 1), (18, 1), (29, 2)]:
        times[0] = now_s
        assert asked.find("a", [1, 2, 3], [2, 5]) == {2: 1}
        assert asked.reads == reads


def test_cached_files_stay_within_the_disk_limit_and_the_last_used_is_kept(tmp_path: Path) -> None:
    asked = Asked({"lookup.cache-max-disk-size": "20 kb"}, tmp_path)
    for number in range(10):
        assert asked.find(f"file-{number}", list(range(100)), [3, 200]) == {3: 3}
        assert asked.cache.disk_bytes <= 20 << 10
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.arrow")) == asked.cache.disk_bytes
    reads = asked.reads
    asked.find("file-9", list(range(100)), [3])
    assert asked.reads == reads
    asked.find("file-0", list(range(100)), [3])
    assert asked.reads == reads + 1


def test_a_file_too_large_for_the_cache_is_read_each_time_and_leaves_no_files(tmp_path: Path) -> None:
    asked = Asked({"lookup.cache-max-disk-size": "1 kb"}, tmp_path)
    for reads in (2, 3):  # the first time it was tried
        assert asked.find("a", list(range(1000)), [7, 999, 1000]) == {7: 7, 999: 999}
        assert asked.reads == reads
        assert not list(tmp_path.rglob("*.arrow"))


def test_memory_of_the_cache_stays_within_its_limit() -> None:
    wide, narrow = (
        Asked({}),
        Asked({"lookup.cache-max-memory-size": "1 kb", "lookup.cache.bloom.filter.enabled": "false"}),
    )
    texts = sorted(f"{number:040}" for number in range(200))
    for asked in (wide, narrow):
        for number in range(3):
            assert len(asked.find(f"file-{number}", texts, texts[::10], (STRING, pa.string()))) == 20
    assert narrow.cache.memory_bytes <= 1 << 10 < wide.cache.memory_bytes


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"lookup.cache.bloom.filter.enabled": "false"}, {"lookup.cache.bloom.filter.enabled": "true"}),
        ({"lookup.cache.bloom.filter.fpp": "0.5"}, {"lookup.cache.bloom.filter.fpp": "0.001"}),
    ],
)
def test_bloom_filter_options_decide_its_memory(less: dict[str, str], more: dict[str, str]) -> None:
    small, large = Asked(less), Asked(more)
    texts = [f"{number:09}" for number in range(0, 20_000, 2)]
    for asked in (small, large):
        assert asked.find("a", texts, ["000000001", "000000002"], (STRING, pa.string())) == {"000000002": 1}
    assert small.cache.memory_bytes < large.cache.memory_bytes


def test_keys_of_one_number_have_no_bloom_filter() -> None:
    with_filter, without = Asked({}), Asked({"lookup.cache.bloom.filter.enabled": "false"})
    for asked in (with_filter, without):
        assert asked.find("a", list(range(0, 20_000, 2)), [1, 2]) == {2: 1}
    assert with_filter.cache.memory_bytes == without.cache.memory_bytes


def test_only_row_groups_that_may_contain_the_keys_are_read() -> None:
    asked = Asked({}, chunk_rows=10)
    there = list(range(0, 2000, 2))  # row groups of 0 to 18, 20 to 38, ...
    for keys, reads, rows_read, kept in [
        ([40], 1, 10, 1),
        ([44, 58], 1, 10, 1),  # is there
        ([19, 39, 59], 1, 10, 1),  # between two row groups
        ([60, 82, 101], 2, 40, 2),  # the next three
        ([61, 400, 1000, 1010, 3000], 4, 60, 4),
        ([0, 1, 21], 5, 80, 5),
    ]:
        expected = {key: key // 2 for key in keys if key in there}
        assert asked.find("a", there, keys) == expected
        assert (asked.reads, asked.rows_read, len(asked.cache)) == (reads, rows_read, kept)
    asked.cache.drop(["a"])
    assert len(asked.cache) == asked.cache.disk_bytes == 0


def test_a_file_with_scattered_lookups_is_eventually_cached_completely() -> None:
    asked = Asked({}, chunk_rows=10)
    there = list(range(1000))
    for at, kept in enumerate([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1], 1):
        assert asked.find("a", there, [90 * at - 85]) == {90 * at - 85: 90 * at - 85}
        assert len(asked.cache) == kept
    assert asked.rows_read == 9 * 10 + 1000


def test_a_file_of_large_row_groups_is_cached_as_far_as_the_disk_allows() -> None:
    asked = Asked({"lookup.cache-max-disk-size": "20 kb"}, chunk_rows=100)
    there = list(range(10_000))
    for key in range(50, 10_000, 200):
        assert asked.find("a", there, [key]) == {key: key}
        assert 0 < asked.cache.disk_bytes <= 20 << 10
    assert asked.rows_read == 50 * 100


BOUNDS: list[tuple[str, list[Any], list[Any], pa.DataType, int]] = [
    ("one after the other", [1, 5, 9], [4, 8, 9], pa.int64(), 3),
    ("one key in two, as of several columns", [1, 4, 4], [4, 4, 9], pa.int64(), 3),
    ("unknown", [1, None, 9], [4, 8, 9], pa.int64(), 1),
    ("not in order", [5, 1, 9], [8, 4, 9], pa.int64(), 1),
    ("floating, where NaN is above all and in no bounds", [1.0, 5.0, 9.0], [4.0, 8.0, 9.0], pa.float64(), 1),
    ("not told", [None] * 3, [None] * 3, pa.null(), 1),
    ("texts", ["a", "b", "é"], ["aa", "b", "ü"], pa.string(), 3),
]


@pytest.mark.parametrize(
    ("minimum", "maximum", "kind", "parts"), [c[1:] for c in BOUNDS], ids=[about for about, *_ in BOUNDS]
)
def test_a_file_is_split_into_parts_if_its_row_group_bounds_are_disjoint(
    minimum: list[Any], maximum: list[Any], kind: pa.DataType, parts: int
) -> None:
    rows = pa.array([SMALL_PART] * 3, pa.int64())
    bounds = ColumnBounds(pa.array(minimum, kind), pa.array(maximum, kind), pa.nulls(3, pa.int64()), rows)
    assert len(FileParts.of(3 * SMALL_PART, bounds).parts) == parts


def test_evicted_files_are_deleted_from_disk(tmp_path: Path) -> None:
    asked = Asked({}, tmp_path)
    asked.find("a", [1], [1])
    assert list(tmp_path.rglob("*.arrow"))
    asked.cache.drop(["a", "b"])
    assert not list(tmp_path.rglob("*.arrow"))
    assert len(asked.cache) == 0


def test_a_full_disk_only_slows_lookups_down(tmp_path: Path) -> None:
    asked = Asked({}, tmp_path / "nowhere")
    for _ in range(2):
        assert asked.find("a", [1, 2], [2]) == {2: 1}
