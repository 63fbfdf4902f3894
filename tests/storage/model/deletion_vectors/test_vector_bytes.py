"""Deletion vectors and their index files equal Java's byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.errors import CorruptFile
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.deletion_vectors.vector_bytes import metadata_length, vector_from_bytes, vector_to_bytes
from tidelake.storage.model.deletion_vectors.vector_file import (
    DeletionFile,
    DeletionVectorMeta,
    IndexFileBuilder,
    StoredVector,
    read_vector,
)

CASES = vectors("deletion_vector_bytes")
VECTORS = [case for case in CASES if case["format"] != "index-file"]
INDEX_FILES = [case for case in CASES if case["format"] == "index-file"]


def positions_of(member: Any) -> NDArray[np.int64]:
    """A list, or a range with both ends."""
    if isinstance(member, dict):
        check_members(member, {"range"})
        first, last = member["range"]
        return np.arange(first, last + 1)
    return np.array(member, np.int64)


def is_64(format_name: str) -> bool:
    return {"bitmap32": False, "bitmap64": True}[format_name]


@pytest.mark.parametrize("case", VECTORS, ids=case_id)
def test_a_vector_is_written_and_read_as_in_java(case: Case) -> None:
    check_members(case, {"format", "positions", "hex", "meta_length", "total_bytes"})
    positions, bitmap64 = positions_of(case["positions"]), is_64(case["format"])
    data = vector_to_bytes(positions, bitmap64=bitmap64)
    assert (data.hex(), len(data)) == (case["hex"], case["total_bytes"])
    assert metadata_length(len(data), bitmap64=bitmap64) == case["meta_length"]
    assert vector_from_bytes(data, case["meta_length"], "f", 0).tolist() == positions.tolist()


@pytest.mark.parametrize("case", INDEX_FILES, ids=case_id)
def test_an_index_file_is_read_vector_by_vector(case: Case) -> None:
    check_members(case, {"format", "vectors", "hex", "expect_metas", "file_size", "row_count"})
    data = bytes.fromhex(case["hex"])
    assert (len(data), len(case["vectors"])) == (case["file_size"], case["row_count"])
    io, path = MemoryFileIO(), "memory://index/file"
    io.write(path, data)
    for vector, member in zip(case["vectors"], case["expect_metas"], strict=True):
        deletion = DeletionFile(path, DeletionVectorMeta(**member))
        assert read_vector(io, deletion).tolist() == positions_of(vector["positions"]).tolist()


@pytest.mark.parametrize("case", INDEX_FILES, ids=case_id)
def test_an_index_file_is_written_as_in_java(case: Case) -> None:
    file = IndexFileBuilder()
    for vector in case["vectors"]:
        bitmap64 = is_64(vector.get("format", "bitmap32"))
        file.add(vector["data_file"], StoredVector.of(positions_of(vector["positions"]), bitmap64=bitmap64))
    data, metas = file.finish()
    assert data.hex() == case["hex"]
    assert list(metas) == [DeletionVectorMeta(**member) for member in case["expect_metas"]]


@given(st.sets(st.integers(0, 2**31 - 1)), st.booleans())
def test_written_vectors_are_read_back(positions: set[int], bitmap64: bool) -> None:
    check_round_trip(sorted(positions), bitmap64=bitmap64)


@given(st.sets(st.one_of(st.integers(0, 70_000), st.integers(2**32, 2**32 + 70_000), st.integers(2**34, 2**34 + 9))))
def test_positions_beyond_32_bits_are_read(positions: set[int]) -> None:
    check_round_trip(sorted(positions), bitmap64=True)


@pytest.mark.parametrize("bitmap64", [False, True])
@pytest.mark.parametrize(
    "positions",
    [range(5_000), range(0, 10_000, 2), range(0, 2**20, 7), [*range(100), *range(0, 400_000, 3)]],
    ids=["a run", "a bitset", "many containers", "runs and others"],
)
def test_every_kind_of_container_is_read(positions: Sequence[int], bitmap64: bool) -> None:
    check_round_trip(sorted(set(positions)), bitmap64=bitmap64)


def check_round_trip(positions: Sequence[int], *, bitmap64: bool) -> None:
    data = vector_to_bytes(np.array(positions, np.int64), bitmap64=bitmap64)
    length = metadata_length(len(data), bitmap64=bitmap64)
    assert vector_from_bytes(data + b"what follows", length, "f", 0).tolist() == list(positions)


@pytest.mark.parametrize("bitmap64", [False, True])
def test_a_flipped_bit_is_detected(bitmap64: bool) -> None:
    whole = vector_to_bytes(np.array([1, 3, 70_000]), bitmap64=bitmap64)
    length = metadata_length(len(whole), bitmap64=bitmap64)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        with pytest.raises(CorruptFile, match="f"):
            vector_from_bytes(bytes(damaged), length, "f", 0)
    for end in range(len(whole)):
        with pytest.raises(CorruptFile):
            vector_from_bytes(whole[:end], length, "f", 0)


def test_a_position_beyond_32_bits_needs_the_larger_form() -> None:
    with pytest.raises(ValueError, match="2147483648"):
        vector_to_bytes(np.array([2**31]), bitmap64=False)


@pytest.mark.parametrize(
    ("data", "cardinality", "found"),
    [
        pytest.param(b"\x02" + vector_to_bytes(np.array([1]), bitmap64=False), 1, "version 1", id="another version"),
        pytest.param(b"", 1, "an empty file", id="an empty file"),
        pytest.param(b"\x01" + vector_to_bytes(np.array([1]), bitmap64=False), 2, "2 deleted rows", id="another count"),
    ],
)
def test_an_index_file_with_wrong_content_is_named(data: bytes, cardinality: int, found: str) -> None:
    io, path = MemoryFileIO(), "memory://index/damaged"
    io.write(path, data)
    with pytest.raises(CorruptFile, match=found) as error:
        read_vector(io, DeletionFile(path, DeletionVectorMeta("data-1.parquet", 1, 22, cardinality)))
    assert path in str(error.value)


def test_a_missing_index_file_is_named() -> None:
    with pytest.raises(CorruptFile, match="memory://index/gone"):
        read_vector(MemoryFileIO(), DeletionFile("memory://index/gone", DeletionVectorMeta("data-1.parquet", 1, 22)))
