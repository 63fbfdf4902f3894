"""The largest owners flush until all fit, and no owner holds more than one flush can write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.write import memory_budget
from tidelake.storage.write.memory_budget import MemoryBudget


class Owner:
    def __init__(self, name: str, held_bytes: int, order: list[str], large_row_bytes: int = 0) -> None:
        self.name = name
        self.held_bytes = held_bytes
        self.large_row_bytes = large_row_bytes
        self._order = order

    def flush_memory(self) -> None:
        self._order.append(self.name)
        self.held_bytes = self.large_row_bytes = 0


@pytest.mark.parametrize(
    ("held", "gives_back"),
    [
        pytest.param({}, [], id="nobody holds anything"),
        pytest.param({"a": 60, "b": 40}, [], id="all fit"),
        pytest.param({"a": 60, "b": 41}, ["a"], id="the largest is enough"),
        pytest.param({"a": 60, "b": 90, "c": 50}, ["b", "a"], id="largest first, until all fit"),
        pytest.param({"a": 81, "b": 1}, ["a"], id="too much for one, though all fit"),
    ],
)
def test_buffers_are_flushed_to_free_memory(
    held: Mapping[str, int], gives_back: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "OWNER_BYTES_MAX", 80)
    budget, order = MemoryBudget(100), list[str]()
    for name, held_bytes in held.items():
        budget.register(Owner(name, held_bytes, order))
    assert budget.is_exceeded is bool(gives_back)
    budget.rebalance()
    assert order == gives_back
    assert not budget.is_exceeded


@pytest.mark.parametrize(
    ("large_row_bytes", "gives_back"),
    [
        pytest.param(40, [], id="another one fits"),
        pytest.param(41, ["a"], id="another one would not"),
    ],
)
def test_the_budget_reserves_memory_for_one_large_row(large_row_bytes: int, gives_back: Sequence[str]) -> None:
    budget, order = MemoryBudget(100), list[str]()
    budget.register(Owner("a", 60, order, large_row_bytes))
    budget.rebalance()
    assert order == gives_back


class CountedOwner(Owner):
    """Counts how often it is asked."""

    asked = 0

    @property
    def held_bytes(self) -> int:
        CountedOwner.asked += 1
        return self._held

    @held_bytes.setter
    def held_bytes(self, held_bytes: int) -> None:
        self._held = held_bytes


def test_a_write_asks_only_the_owner_that_grew_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedOwner, "asked", 0)
    budget = MemoryBudget(1 << 30)
    owners = [CountedOwner(str(number), 0, []) for number in range(500)]
    for owner in owners:
        budget.register(owner)
        owner.held_bytes = 10
        budget.grew(owner)
        budget.rebalance()
    assert CountedOwner.asked == 2 * len(owners)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["grow", "grow large", "commit", "close"]), st.integers(1, 50)),
        max_size=30,
    )
)
def test_after_any_history_the_buffers_fit_and_nothing_is_flushed_that_fits(
    history: list[tuple[int, str, int]],
) -> None:
    budget, order = MemoryBudget(100), list[str]()
    owners = [Owner(str(number), 0, order) for number in range(5)]
    for owner in owners:
        budget.register(owner)
    for number, step, nbytes in history:
        owner = owners[number]
        if step.startswith("grow"):
            budget.register(owner)
            owner.held_bytes += nbytes
            owner.large_row_bytes = max(owner.large_row_bytes, nbytes if step == "grow large" else 0)
            budget.grew(owner)
        else:  # a commit releases the memory, without telling
            owner.held_bytes = owner.large_row_bytes = 0
            if step == "close":
                budget.unregister(owner)
        fits = sum(o.held_bytes for o in owners) + max(o.large_row_bytes for o in owners) <= 100
        order.clear()
        budget.rebalance()
        assert bool(order) is not fits
        assert budget.held_bytes == sum(o.held_bytes for o in owners) <= 100
