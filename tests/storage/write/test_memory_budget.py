"""The largest owners flush until all fit, and no owner holds more than one flush can write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

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
