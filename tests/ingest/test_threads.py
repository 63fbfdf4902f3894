"""Work that is not to be left alone is waited for, whatever happens to the one who waits."""

from __future__ import annotations

import asyncio

import pytest

from ingest.threads import to_its_end
from tests.ingest.fakes import Gate


async def test_the_outcome_comes_through() -> None:
    assert await to_its_end(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await to_its_end(divmod, 7, 0)


@pytest.mark.parametrize("outcome", ["a result", "an error"])
async def test_a_cancelled_wait_ends_when_the_work_does(outcome: str) -> None:
    gate = Gate()

    def work() -> None:
        gate()
        if outcome == "an error":
            raise OSError("disk full")

    waiting = asyncio.create_task(to_its_end(work))
    await gate.reached()
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await waiting
