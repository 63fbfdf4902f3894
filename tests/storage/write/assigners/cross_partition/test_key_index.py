"""The index of key locations, compared with a dict: in memory, in files, and with expired keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.write.assigners.cross_partition import key_index
from tidelake.storage.write.assigners.cross_partition.key_index import UNKNOWN, KeyIndex
from tidelake.storage.write.assigners.cross_partition.key_words import IndexWords, RowsByKey, index_words


def words_of(keys: list[int], num_words: int) -> IndexWords:
    """The first word of several keys is the same: they share it as hashes may."""
    numbers = np.array(keys, np.uint64)
    return (numbers,) if num_words == 1 else (numbers // np.uint64(3), numbers)


@pytest.mark.parametrize("memory_bytes", [1 << 30, 400, 0], ids=["in memory", "in both", "in files"])
@pytest.mark.parametrize("num_words", [1, 2])
@given(batches=st.lists(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=30), max_size=10))
def test_every_key_has_its_last_location(
    num_words: int, memory_bytes: int, batches: list[list[tuple[int, int]]]
) -> None:
    index, naive = KeyIndex(num_words, memory_bytes), dict[int, int]()
    for batch in batches:
        given_places = dict(batch)
        groups = RowsByKey.of(words_of(list(given_places), num_words))
        found = index.find(groups.keys)
        keys = groups.keys[-1].tolist()
        assert found.places.tolist() == [naive.get(key, UNKNOWN) for key in keys]
        places = np.array([given_places[key] for key in keys], np.int32)
        changed = np.flatnonzero(places != found.places)
        index.put(groups.keys, found, changed, places[changed])
        naive |= given_places
    groups = RowsByKey.of(words_of(list(range(61)), num_words))
    assert index.find(groups.keys).places.tolist() == [naive.get(key, UNKNOWN) for key in groups.keys[-1].tolist()]
    assert len(index) == len(naive)
    assert index.memory_bytes <= memory_bytes


@pytest.mark.parametrize("num_words", [1, 2])
def test_runs_are_merged_incrementally(num_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "PIECE_KEYS", 7)
    index = KeyIndex(num_words, 2_000)
    keys = np.random.default_rng(3).permutation(1_000)
    for part in np.array_split(keys, 30):
        groups = RowsByKey.of(words_of(part.tolist(), num_words))
        places = (groups.keys[-1] % np.uint64(17)).astype(np.int32)
        index.put(groups.keys, index.find(groups.keys), np.arange(len(part)), places)
    groups = RowsByKey.of(words_of(list(range(1_100)), num_words))
    expected = [key % 17 if key < 1_000 else UNKNOWN for key in groups.keys[-1].tolist()]
    assert index.find(groups.keys).places.tolist() == expected


def test_index_files_are_deleted_with_the_index(tmp_path: Path) -> None:
    index = KeyIndex(1, 0, spill_directory=str(tmp_path))
    groups = RowsByKey.of(words_of(list(range(100)), 1))
    index.put(groups.keys, index.find(groups.keys), np.arange(100), np.zeros(100, np.int32))
    assert list(tmp_path.glob("*/*.arrow"))
    assert index.memory_bytes == 0
    del index
    assert not list(tmp_path.glob("*"))


def test_a_key_expires_and_may_be_added_again() -> None:
    index, groups = KeyIndex(1, 1 << 20, ttl_s=10), RowsByKey.of(words_of([1, 2], 1))
    index.put(groups.keys, index.find(groups.keys, 0), np.arange(2), np.array([5, 6], np.int32), 0)
    index.put(groups.keys, index.find(groups.keys, 8), np.array([1]), np.array([7], np.int32), 8)
    assert index.find(groups.keys, 10).places.tolist() == [5, 7]
    found = index.find(groups.keys, 11)
    assert found.places.tolist() == [UNKNOWN, 7]
    index.put(groups.keys, found, np.array([0]), np.array([3], np.int32), 11)
    assert index.find(groups.keys, 12).places.tolist() == [3, 7]
    assert len(index) == 2


@pytest.mark.parametrize(
    ("columns", "num_words"),
    [
        pytest.param([pa.array([3, -1, 2**62, 0])], 1, id="a number"),
        pytest.param([pa.array([1.5, -0.0, 0.0, float("nan")])], 1, id="a float"),
        pytest.param([pa.array([1, 1, 2, 2], pa.int32()), pa.array([1, 2, 1, 2])], 2, id="two numbers"),
        pytest.param([pa.array(["1", "12", "", "2"])], 2, id="text"),
        pytest.param([pa.array(["a", "", "b", "ab"]), pa.array([b"", b"a", b"", b"b"])], 2, id="two texts"),
        pytest.param([pa.array([1, 1, 1, 2]), pa.array([1, 1, 2, 1]), pa.array([1, 2, 1, 1])], 2, id="three numbers"),
        pytest.param([pa.array(["a", "a", "b", "b"]), pa.array([1, 2, 1, 2])], 2, id="text and number"),
    ],
)
def test_different_keys_have_different_index_words_across_batches(columns: list[pa.Array], num_words: int) -> None:
    together = index_words(columns)
    assert len(together) == num_words
    assert len(set(zip(*(word.tolist() for word in together), strict=True))) == 4
    for row in range(4):
        alone = index_words([column.slice(row, 1) for column in columns])
        assert [word[0] for word in alone] == [word[row] for word in together]


def test_the_index_word_of_two_number_keys_is_selective() -> None:
    """Else all keys of a tenant would be looked through for each."""
    words = index_words([pa.array(np.zeros(10_000, np.int64)), pa.array(np.arange(10_000))])
    assert len(np.unique(words[0])) == 10_000
