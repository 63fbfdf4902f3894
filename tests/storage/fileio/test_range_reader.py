"""Random access through range requests: the same bytes as a plain file, in few requests."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.fileio.range_reader import MAX_READAHEAD_BYTES, MIN_REQUEST_BYTES, RangedFile, plan_request

KIB = 1 << 10
MIB = 1 << 20


@dataclass
class Remote:
    """An object, and the ranges that were asked of it."""

    data: bytes
    tail_bytes: int = 64 * KIB

    def __post_init__(self) -> None:
        self.requests: list[tuple[int, int]] = []

    def fetch(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(self.data)
        self.requests.append((start, end))
        return self.data[start:end]

    def open(self) -> RangedFile:
        return RangedFile(self.fetch, len(self.data), self.data[max(len(self.data) - self.tail_bytes, 0) :])


@dataclass(frozen=True)
class Case:
    id: str
    position: int
    wanted: int
    run: int
    size: int
    planned: range


PLANS = [
    Case("a large read is fetched as it is", 4, 10 * MIB, 0, 100 * MIB, range(4, 10 * MIB + 4)),
    Case("a small read after a jump brings a little more", 7, 10, 0, MIB, range(7, 7 + 64 * KIB)),
    Case("reading on brings as much as was read", MIB, 10, MIB, 9 * MIB, range(MIB, 2 * MIB)),
    Case("a large read is no larger for reading on", MIB, 2 * MIB, MIB, 9 * MIB, range(MIB, 3 * MIB)),
    Case("reading on for long brings 4 MiB", 50 * MIB, 10, 50 * MIB, 90 * MIB, range(50 * MIB, 54 * MIB)),
    Case("nothing comes from past the end", MIB - 20, 10, 0, MIB, range(MIB - 20, MIB)),
]


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case.id)
def test_requests_are_planned(case: Case) -> None:
    assert plan_request(case.position, case.wanted, case.run, case.size) == case.planned


def test_request_bounds_match_the_cases() -> None:
    assert (MIN_REQUEST_BYTES, MAX_READAHEAD_BYTES) == (64 * KIB, 4 * MIB)


SEEK = st.tuples(st.just("seek"), st.integers(0, 400_000), st.just(0))
READ = st.tuples(st.just("read"), st.integers(-1, 200_000), st.just(0))
FROM_END = st.tuples(st.just("seek"), st.integers(-100_000, 0), st.just(os.SEEK_END))
SKIP = st.tuples(st.just("seek"), st.integers(0, 100_000), st.just(os.SEEK_CUR))

DATA = os.urandom(300_000)


@given(
    size=st.integers(100_000, len(DATA)),
    tail=st.sampled_from([0, 1, 64 * KIB]),
    steps=st.lists(SEEK | READ | FROM_END | SKIP, max_size=20),
)
def test_it_reads_like_an_in_memory_file(size: int, tail: int, steps: list[tuple[str, int, int]]) -> None:
    remote = Remote(DATA[:size], tail)
    reader, plain = remote.open(), io.BytesIO(DATA[:size])
    for call, number, whence in steps:
        if call == "seek":
            assert reader.seek(number, whence) == plain.seek(number, whence)
        else:
            assert reader.read(number) == plain.read(number)
        assert reader.tell() == plain.tell()


def test_the_tail_is_not_fetched_again() -> None:
    remote = Remote(os.urandom(MIB))
    reader = remote.open()
    reader.seek(-8, os.SEEK_END)
    assert reader.read() == remote.data[-8:]
    reader.seek(-64 * KIB, os.SEEK_END)
    assert reader.read(64 * KIB) == remote.data[-64 * KIB :]
    assert remote.requests == []


def test_reading_a_file_in_small_pieces_takes_few_requests() -> None:
    remote = Remote(os.urandom(16 * MIB))
    reader = remote.open()
    pieces = bytearray()
    while piece := reader.read(10_000):
        pieces += piece
    assert pieces == remote.data
    assert len(remote.requests) < 16
    assert sum(end - start for start, end in remote.requests) < 16.5 * MIB


def test_an_empty_object_is_read_without_a_request() -> None:
    remote = Remote(b"")
    assert len(remote.open().read()) == 0
    assert len(remote.open().read(5)) == 0
    assert remote.requests == []


def test_seeking_before_the_beginning_is_refused() -> None:
    reader = Remote(b"abc").open()
    with pytest.raises(ValueError, match="before the beginning"):
        reader.seek(-4, os.SEEK_END)
    assert reader.tell() == 0
