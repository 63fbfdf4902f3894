"""Hashes of many texts at once are xxHash's of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from storage.file_index.bloom_filter import BloomFilterIndex, BloomFilterWriter
from storage.file_index.hashing import hash_texts
from storage.types import BYTES


def expected(values: list[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(value) for value in values]


def test_texts_of_every_length_have_the_hash_of_the_library() -> None:
    random = np.random.default_rng(1)
    values = [random.bytes(length) for length in range(300) for _ in range(70)]
    values += [random.bytes(length) for length in (0, 1_000, 70_000)]
    order = random.permutation(len(values))
    mixed = [values[i] for i in order]
    whole = pa.array([b"before", *mixed, b"behind"], pa.binary())
    for column in (pa.array(mixed, pa.binary()), pa.array(mixed, pa.large_binary()), whole.slice(1, len(mixed))):
        assert hash_texts(column).view(np.uint64).tolist() == expected(mixed)


@given(st.lists(st.binary(max_size=40), max_size=200), st.integers(0, 3))
def test_any_texts_have_the_hash_of_the_library(values: list[bytes], start: int) -> None:
    column = pa.array(values * 3, pa.binary()).slice(start)
    assert hash_texts(column).view(np.uint64).tolist() == expected((values * 3)[start:])


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=100))
def test_a_bloom_filter_forgets_no_value(values: list[bytes]) -> None:
    writer = BloomFilterWriter(BYTES, items=len(values), false_positives=0.01)
    writer.add(pa.array([*values, None], pa.binary()))
    index = BloomFilterIndex(writer.finish(), BYTES)
    assert all(index.any_of(pa.array([value], pa.binary())) is None for value in values)
    assert index.any_of(pa.array(values * 10, pa.binary())) is None
