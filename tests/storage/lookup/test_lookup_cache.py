"""Files that are kept ready for lookups: within limits, and with the same answers whatever is kept."""

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

from storage.lookup.lookup_cache import LookupCache
from storage.lookup.lookup_file import Keys
from storage.options import TableOptions
from storage.types import BIGINT, STRING, DataType
from tests.compaction.files import paper_file

SIZES: list[dict[str, str]] = [
    {},
    {"lookup.cache-max-disk-size": "0 b"},
    {"lookup.cache-max-disk-size": "3 kb"},
    {"lookup.cache-max-memory-size": "0 b"},
    {"lookup.cache.bloom.filter.enabled": "false"},
    {"lookup.cache.bloom.filter.fpp": "0.9"},
]
ONE_BLOCK = 4


class Asked:
    """Data files of one column `v` beside their key, and a cache. reads: how often a file was read."""

    def __init__(
        self, options: Mapping[str, str], directory: Path | None = None, now_s: Callable[[], float] = lambda: 0
    ) -> None:
        self.cache = LookupCache(TableOptions(options), None if directory is None else str(directory), now_s)
        self.reads = 0

    def find(
        self, name: str, there: list[Any], keys: list[Any], types: tuple[DataType, pa.DataType] = (BIGINT, pa.int64())
    ) -> dict[Any, Any]:
        """Of sorted keys. v is the place of the key in the file."""
        _, arrow_type = types

        def read() -> Iterator[pa.RecordBatch]:
            self.reads += 1
            for start in range(0, len(there), ONE_BLOCK):
                part = pa.array(there[start : start + ONE_BLOCK], arrow_type)
                numbers = pa.array(range(start, start + len(part)), pa.int64())
                yield pa.RecordBatch.from_arrays([part, numbers], names=["k", "v"])

        file = replace(paper_file(name), row_count=len(there))
        columns = pa.RecordBatch.from_arrays([pa.array(keys, arrow_type)], names=["k"])
        asked = Keys(columns, np.arange(len(keys)))
        found = {}
        for one in self.cache.find(file, name, read, asked):
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
def test_answers_are_the_same_whatever_is_kept(options: dict[str, str], drawn: st.DataObject) -> None:
    asked = Asked(options)
    kinds = [(NUMBERS, (BIGINT, pa.int64())), (TEXTS, (STRING, pa.string()))]
    strategy, types = drawn.draw(st.sampled_from(kinds))
    files = drawn.draw(st.lists(strategy, min_size=1, max_size=3))
    for keys in drawn.draw(st.lists(strategy, min_size=1, max_size=4)):
        for number, there in enumerate(files):
            expected = {key: place for place, key in enumerate(there) if key in keys}
            assert asked.find(f"file-{number}", there, keys, types) == expected


def test_a_file_is_read_once_and_kept_until_nobody_asked_it_for_as_long_as_files_are_retained(tmp_path: Path) -> None:
    times = [0.0]
    asked = Asked({"lookup.cache-file-retention": "10 s"}, tmp_path, lambda: times[0])
    for now_s, reads in [(0, 1), (9, 1), (18, 1), (29, 2)]:
        times[0] = now_s
        assert asked.find("a", [1, 2, 3], [2, 5]) == {2: 1}
        assert asked.reads == reads


def test_kept_files_stay_within_the_disk_that_they_may_take_and_the_one_asked_last_stays(tmp_path: Path) -> None:
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


def test_a_file_that_is_too_large_to_keep_is_read_each_time_and_leaves_nothing(tmp_path: Path) -> None:
    asked = Asked({"lookup.cache-max-disk-size": "1 kb"}, tmp_path)
    for reads in (2, 3):  # the first time it was tried
        assert asked.find("a", list(range(1000)), [7, 999, 1000]) == {7: 7, 999: 999}
        assert asked.reads == reads
        assert not list(tmp_path.rglob("*.arrow"))


def test_memory_beside_the_files_stays_within_its_limit() -> None:
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
def test_a_bloom_filter_takes_the_memory_that_its_options_say(less: dict[str, str], more: dict[str, str]) -> None:
    small, large = Asked(less), Asked(more)
    texts = [f"{number:09}" for number in range(0, 20_000, 2)]
    for asked in (small, large):
        assert asked.find("a", texts, ["000000001", "000000002"], (STRING, pa.string())) == {"000000002": 1}
    assert small.cache.memory_bytes < large.cache.memory_bytes


def test_keys_of_one_number_have_no_bloom_filter_as_searching_them_is_quicker() -> None:
    with_filter, without = Asked({}), Asked({"lookup.cache.bloom.filter.enabled": "false"})
    for asked in (with_filter, without):
        assert asked.find("a", list(range(0, 20_000, 2)), [1, 2]) == {2: 1}
    assert with_filter.cache.memory_bytes == without.cache.memory_bytes


def test_what_is_dropped_goes_from_disk(tmp_path: Path) -> None:
    asked = Asked({}, tmp_path)
    asked.find("a", [1], [1])
    assert list(tmp_path.rglob("*.arrow"))
    asked.cache.drop(["a", "b"])
    assert not list(tmp_path.rglob("*.arrow"))
    assert len(asked.cache) == 0


def test_a_disk_that_is_full_only_costs_time(tmp_path: Path) -> None:
    asked = Asked({}, tmp_path / "nowhere")
    for _ in range(2):
        assert asked.find("a", [1, 2], [2]) == {2: 1}
