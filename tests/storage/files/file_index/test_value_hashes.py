"""Vectorized hashes of strings equal those of xxHash for each string."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.files.file_index.bloom_filter import BloomFilterIndex, BloomFilterWriter
from tidelake.storage.files.file_index.value_hashes import hash_texts
from tidelake.storage.model.types import BYTES


def expected(values: list[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(value) for value in values]


MANY: Final = 2_500  # of one length, so that they are hashed in columns


def test_strings_of_every_length_have_the_hash_of_the_library() -> None:
    random = np.random.default_rng(1)
    for length in range(260):
        some_bytes = random.bytes(MANY * length)
        values = [some_bytes[row * length : (row + 1) * length] for row in range(MANY)]
        assert hash_texts(pa.array(values, pa.binary())).view(np.uint64).tolist() == expected(values), length


def test_strings_of_mixed_lengths_have_the_hash_of_the_library() -> None:
    random = np.random.default_rng(1)
    values = [random.bytes(length) for length in [*range(300), 1_000, 70_000]]
    values += [random.bytes(length) for length in (0, 3, 8, 31, 32, 100) for _ in range(MANY)]
    mixed = [values[i] for i in random.permutation(len(values))]
    whole = pa.array([b"before", *mixed, b"behind"], pa.binary())
    for column in (pa.array(mixed, pa.binary()), pa.array(mixed, pa.large_binary()), whole.slice(1, len(mixed))):
        assert hash_texts(column).view(np.uint64).tolist() == expected(mixed)


@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(0, 3), st.integers(0, 2**64 - 1))
def test_random_strings_have_the_hash_of_the_library(values: list[bytes | None], start: int, seed: int) -> None:
    values *= 250  # of which some lengths are frequent, others rare
    hashes = hash_texts(pa.array(values, pa.binary()).slice(start), seed).view(np.uint64)
    for value, found in zip(values[start:], hashes.tolist(), strict=True):
        assert value is None or found == xxhash.xxh64_intdigest(value, seed)


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=100))
def test_a_bloom_filter_has_no_false_negatives(values: list[bytes]) -> None:
    writer = BloomFilterWriter(BYTES, items=len(values), false_positives=0.01)
    writer.add(pa.array([*values, None], pa.binary()))
    index = BloomFilterIndex(writer.finish(), BYTES)
    assert all(index.any_of(pa.array([value], pa.binary())) is None for value in values)
    assert index.any_of(pa.array(values * 10, pa.binary())) is None
