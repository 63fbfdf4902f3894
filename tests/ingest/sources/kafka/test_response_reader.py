"""Our response reader gives the same result as asyncio's, in any pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.ingest.sources.kafka.client_internals import ResponseReader

_LARGE = 256 << 10


async def _read(reader: asyncio.StreamReader, sizes: Sequence[int], pieces: Sequence[bytes]) -> list[object]:
    """What reading so many bytes one after the other gives, while these pieces come in and then the connection ends."""

    async def feed() -> None:
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        reader.feed_eof()

    feeding = asyncio.ensure_future(feed())
    found: list[object] = []
    try:
        for size in sizes:
            found.append(await reader.readexactly(size))  # noqa: PERF401 - what was found before an error counts
    except asyncio.IncompleteReadError as error:
        found.append(("incomplete", error.partial, error.expected))
    await feeding
    return found


_sizes = st.lists(st.sampled_from([0, 1, 4, 1000, _LARGE - 1, _LARGE, _LARGE + 1, 3 * _LARGE]), max_size=5)


@given(
    sizes=_sizes,
    cuts=st.lists(st.sampled_from([0, 1, 3, 4, 5, 999, 65_536, _LARGE - 4, _LARGE, 2 * _LARGE]), max_size=12),
    surplus=st.integers(-_LARGE, _LARGE),
)
def test_a_response_is_read_correctly_in_any_pieces(sizes: list[int], cuts: list[int], surplus: int) -> None:
    whole = bytes(bytearray(i * 7 % 251 for i in range(1009)) * ((sum(sizes) + _LARGE) // 1009 + 1))
    whole = whole[: max(0, sum(sizes) + surplus)]
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(whole[at : at + cut])
        at += cut
    pieces.append(whole[at:])

    async def both() -> tuple[list[object], list[object]]:
        return await _read(asyncio.StreamReader(), sizes, pieces), await _read(ResponseReader(), sizes, pieces)

    expected, found = asyncio.run(both())
    assert found == expected


async def test_a_reader_with_a_pending_read_can_be_adopted() -> None:
    reader = asyncio.StreamReader()
    reading = asyncio.ensure_future(reader.readexactly(4))
    await asyncio.sleep(0)
    ResponseReader.adopt(reader)
    reader.feed_data(b"abcdef")
    assert await reading == b"abcd"
    large = asyncio.ensure_future(reader.readexactly(2 + _LARGE))
    await asyncio.sleep(0)
    reader.feed_data(bytes(_LARGE) + b"next")
    assert await large == b"ef" + bytes(_LARGE)
    assert await reader.readexactly(4) == b"next"


async def test_a_reader_of_another_class_is_unchanged() -> None:
    class Other(asyncio.StreamReader):
        pass

    reader = Other()
    ResponseReader.adopt(reader)
    assert type(reader) is Other


async def test_a_connection_error_ends_the_wait_for_a_response() -> None:
    reader = ResponseReader()
    reading = asyncio.ensure_future(reader.readexactly(_LARGE))
    await asyncio.sleep(0)
    reader.feed_data(b"some")
    reader.set_exception(ConnectionResetError("by the broker"))
    with pytest.raises(ConnectionResetError, match="by the broker"):
        await reading


async def test_bytes_received_before_a_cancellation_are_read_by_the_next_call() -> None:
    reader = ResponseReader()
    reading = asyncio.ensure_future(reader.readexactly(_LARGE))
    await asyncio.sleep(0)
    reader.feed_data(b"some")
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    reader.feed_data(bytes(_LARGE))
    assert await reader.readexactly(_LARGE + 4) == b"some" + bytes(_LARGE)
