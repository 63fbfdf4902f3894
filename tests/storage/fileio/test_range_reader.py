"""Random access through range requests: the same bytes as a plain file, in few requests."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.fileio.range_reader import (
    MAX_READAHEAD_BYTES,
    MIN_REQUEST_BYTES,
    RangedFile,
    joined,
    pieces_of,
    plan_request,
)

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


# ---------------------------------------------------------------- parts that are fetched ahead


@dataclass(frozen=True)
class Pieces:
    id: str
    row_groups: list[list[range]]
    bytes_max: int
    pieces: list[list[range]]


PIECES = [
    Pieces(
        "what fits the memory is one piece",
        [[range(10), range(10, 20)], [range(20, 90)]],
        90,
        [[range(10), range(10, 20), range(20, 90)]],
    ),
    Pieces(
        "a row group of a third of the memory is one piece",
        [[range(5), range(5, 10)], [range(10, 20)], [range(20, 30)], [range(30, 40)]],
        30,
        [[range(5), range(5, 10)], [range(10, 20)], [range(20, 30)], [range(30, 40)]],
    ),
    Pieces(
        "a large one is cut in proportion to its columns",
        [[range(20), range(20, 60)]],
        45,
        [
            [range(5), range(20, 30)],
            [range(5, 10), range(30, 40)],
            [range(10, 15), range(40, 50)],
            [range(15, 20), range(50, 60)],
        ],
    ),
    Pieces("an empty column takes no part", [[range(4, 4), range(4, 9)]], 90, [[range(4, 9)]]),
    Pieces("a file without row groups has none", [], 90, [[]]),
]


@pytest.mark.parametrize("case", PIECES, ids=lambda case: case.id)
def test_column_chunks_are_divided_into_pieces(case: Pieces) -> None:
    assert list(pieces_of(case.row_groups, case.bytes_max)) == case.pieces


@given(
    ends=st.lists(st.lists(st.integers(0, 5_000), min_size=1, max_size=5), max_size=4),
    bytes_max=st.integers(30, 20_000),
)
def test_pieces_are_the_chunks_and_three_of_them_fit_the_memory(ends: list[list[int]], bytes_max: int) -> None:
    start, row_groups = 0, []
    for sizes in ends:
        chunks = []
        for size in sizes:
            chunks.append(range(start, start + size))
            start += size
        row_groups.append(chunks)
    pieces = list(pieces_of(row_groups, bytes_max))
    assert sorted(byte for piece in pieces for part in piece for byte in part) == list(range(start))
    if len(pieces) > 1:
        assert all(sum(map(len, piece)) <= bytes_max / 3 + len(piece) for piece in pieces)
    assert len(pieces) > 1 or start <= bytes_max


def test_neighbours_are_one_request() -> None:
    assert joined([range(50, 60), range(10), range(12, 20)], gap_bytes=5) == [range(20), range(50, 60)]


@given(data=st.data())
def test_it_reads_the_same_bytes_whatever_was_planned(data: st.DataObject) -> None:
    size = 100_000
    place = st.tuples(st.integers(0, size), st.integers(0, 30_000)).map(lambda p: range(p[0], min(size, p[0] + p[1])))
    remote = Remote(DATA[:size], data.draw(st.sampled_from([0, 1_000])))
    reader, plain = remote.open(), io.BytesIO(DATA[:size])
    reader.read_ahead(iter(data.draw(st.lists(st.lists(place, max_size=3), max_size=5))))
    for start, length in data.draw(st.lists(st.tuples(st.integers(0, size), st.integers(0, 40_000)), max_size=8)):
        reader.seek(start)
        plain.seek(start)
        assert reader.read(length) == plain.read(length)
    reader.close()


def test_columns_that_are_read_together_are_fetched_once_and_ahead() -> None:
    remote = Remote(os.urandom(MIB), tail_bytes=0)
    reader = remote.open()
    columns = [range(600 * KIB), range(600 * KIB, 900 * KIB)]
    reader.read_ahead(pieces_of([columns], 600 * KIB))
    for step in range(30):
        for column in columns:
            share = len(column) // 30
            reader.seek(column.start + step * share)
            assert reader.read(share) == remote.data[column.start + step * share :][:share]
    reader.close()
    assert sorted(remote.requests) == sorted(
        (part.start, part.stop) for piece in pieces_of([columns], 600 * KIB) for part in joined(piece, 256 * KIB)
    )


def test_an_error_of_the_store_reaches_the_reader() -> None:
    def refuse(start: int, end: int) -> bytes:
        raise OSError(5, f"no bytes {start} to {end}")

    reader = RangedFile(refuse, 100, b"")
    reader.read_ahead(iter([[range(10)]]))
    with pytest.raises(OSError, match="no bytes 0 to 10"):
        reader.read(5)
