"""A channel holds bounded bytes, ends once, and a cancelled wait has no effect."""

from __future__ import annotations

import asyncio

import pytest

from tidelake.ingest.channel import Channel, ChannelClosed


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_items_are_received_in_send_order() -> None:
    channel = Channel[int](100)
    with channel:
        for item in range(5):
            await channel.send(item, 10)
    assert [item async for item in channel] == [0, 1, 2, 3, 4]


async def test_sending_waits_for_room_counted_in_bytes() -> None:
    channel = Channel[str](100)
    await channel.send("a", 60)
    waiting = asyncio.create_task(channel.send("b", 50))
    await settle()
    assert not waiting.done()
    assert channel.held_bytes == 60
    assert await channel.receive() == "a"
    await waiting
    assert (channel.held_bytes, len(channel)) == (50, 1)


async def test_an_item_larger_than_the_channel_passes_alone() -> None:
    channel = Channel[str](100)
    await channel.send("huge", 1_000)
    waiting = asyncio.create_task(channel.send("next", 1))
    await settle()
    assert not waiting.done()
    assert await channel.receive() == "huge"
    await waiting
    assert await channel.receive() == "next"


async def test_items_without_bytes_wait_for_room_like_others() -> None:
    channel = Channel[str](100)
    await channel.send("full", 100)
    await asyncio.wait_for(channel.send("empty", 0), 1)
    assert len(channel) == 2


async def test_receiving_waits_for_an_item() -> None:
    channel = Channel[str](100)
    waiting = asyncio.create_task(channel.receive())
    await settle()
    assert not waiting.done()
    await channel.send("a", 1)
    assert await waiting == "a"


async def test_remaining_items_of_a_closed_channel_can_be_received() -> None:
    channel = Channel[str](100)
    await channel.send("a", 1)
    channel.close()
    channel.close()
    assert await channel.receive() == "a"
    with pytest.raises(ChannelClosed):
        await channel.receive()


async def test_closing_wakes_waiting_receivers() -> None:
    channel = Channel[str](100)
    waiting = [asyncio.create_task(channel.receive()) for _ in range(3)]
    await settle()
    channel.close()
    for task in waiting:
        with pytest.raises(ChannelClosed):
            await task


async def test_closing_wakes_waiting_senders() -> None:
    channel = Channel[str](100)
    await channel.send("a", 100)
    waiting = asyncio.create_task(channel.send("b", 1))
    await settle()
    channel.close()
    with pytest.raises(ChannelClosed):
        await waiting
    assert [item async for item in channel] == ["a"]


async def test_nothing_can_be_sent_into_a_closed_channel() -> None:
    channel = Channel[str](100)
    channel.close()
    with pytest.raises(ChannelClosed):
        await channel.send("a", 1)


async def test_a_cancelled_receive_leaves_the_item_for_the_next() -> None:
    channel = Channel[str](100)
    waiting = asyncio.create_task(channel.receive())
    await settle()
    await channel.send("a", 1)  # wakes the task, which is then cancelled before it runs
    await cancel(waiting)
    assert (len(channel), await channel.receive()) == (1, "a")


async def test_a_cancelled_send_has_not_sent() -> None:
    channel = Channel[str](100)
    await channel.send("a", 100)
    waiting = asyncio.create_task(channel.send("b", 1))
    await settle()
    assert await channel.receive() == "a"  # makes room, and wakes the task, which is then cancelled before it runs
    await cancel(waiting)
    assert (len(channel), channel.held_bytes) == (0, 0)


async def test_a_wake_up_of_a_cancelled_task_is_passed_to_another() -> None:
    channel = Channel[str](100)
    first, second = asyncio.create_task(channel.receive()), asyncio.create_task(channel.receive())
    await settle()
    await channel.send("a", 1)
    await cancel(first)
    assert await second == "a"


async def test_many_producers_and_consumers_lose_and_duplicate_no_item() -> None:
    channel = Channel[int](7)
    received: list[int] = []

    async def consume() -> None:
        async for item in channel:
            received.append(item)
            await asyncio.sleep(0)

    async def produce(first: int) -> None:
        for item in range(first, first + 50):
            await channel.send(item, item % 9)

    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    await asyncio.gather(*(produce(first) for first in (0, 50, 100)))
    channel.close()
    await asyncio.gather(*consumers)
    assert sorted(received) == list(range(150))


def test_a_channel_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="limit_bytes=0"):
        Channel[int](0)
