"""A search for many keys in sorted ones."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.storage.merge.normalized_keys import (
    NormalizedKey,
    align_keys,
    equal_keys,
    first_not_less,
    normalize_column,
)

Key = tuple[str, int]


@pytest.mark.parametrize("case", vectors("lookup_file_search"), ids=case_id)
def test_the_file_of_a_level_that_may_contain_a_key_is_found(case: Case) -> None:
    """The first that ends at the key or behind it; a key in a gap asks the next file."""
    check_members(case, {"level_files", "key", "expect_probed_file_index"})
    last = pa.array([last for _, last in case["level_files"]], pa.int64())
    asked = pa.array([case["key"]], pa.int64())
    words = align_keys([[normalize_column(column, nullable=False)] for column in (last, asked)])
    (found,) = first_not_less(*words).tolist()
    assert (None if found == len(last) else found) == case["expect_probed_file_index"]


KEYS = st.tuples(st.text("ab\x00é", max_size=20), st.integers(-2, 2))


def words_of(keys: list[Key]) -> list[NormalizedKey]:
    texts, numbers = pa.array([text for text, _ in keys]), pa.array([number for _, number in keys], pa.int32())
    return [normalize_column(column, nullable=False) for column in (texts, numbers)]


def as_bytes(key: Key) -> tuple[bytes, int]:
    return key[0].encode(), key[1]


@given(there=st.sets(KEYS, min_size=1), asked=st.lists(KEYS, min_size=1))
def test_keys_of_several_columns(there: set[Key], asked: list[Key]) -> None:
    ordered = sorted(there, key=as_bytes)
    of_there, of_asked = align_keys([words_of(ordered), words_of(asked)])
    places = first_not_less(of_there, of_asked)
    assert places.tolist() == [sum(as_bytes(key) < as_bytes(one) for key in ordered) for one in asked]
    assert equal_keys(of_there, places, of_asked).tolist() == [one in there for one in asked]
