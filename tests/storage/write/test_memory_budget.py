"""The largest owners flush until all fit, and no owner holds more than one flush can write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.write import memory_budget
from tidelake.storage.write.buffered_rows import BufferedRows
from tidelake.storage.write.memory_budget import MemoryBudget


class Owner:
    """done: gets `name` for each time the owner's memory is freed, and `name flush` for each flush to a file."""

    def __init__(self, name: str, held_bytes: int, done: list[str], large_row_bytes: int = 0) -> None:
        self.name = name
        self._buffered = BufferedRows()
        self._done = done
        self.hold(held_bytes, large_row_bytes)

    @property
    def buffered(self) -> BufferedRows:
        return self._buffered

    def hold(self, nbytes: int, large_row_bytes: int = 0) -> None:
        self._buffered.nbytes += nbytes
        self._buffered.large_row_bytes = max(self._buffered.large_row_bytes, large_row_bytes)

    def flush(self) -> None:
        self._done.append(f"{self.name} flush")
        self._buffered.clear()

    def flush_memory(self) -> None:
        self._done.append(self.name)
        self._buffered.clear()


@pytest.mark.parametrize(
    ("held", "gives_back"),
    [
        pytest.param({}, [], id="nobody holds anything"),
        pytest.param({"a": 60, "b": 40}, [], id="all fit"),
        pytest.param({"a": 60, "b": 41}, ["a"], id="the largest is enough"),
        pytest.param({"a": 60, "b": 70, "c": 50}, ["b", "a"], id="largest first, until all fit"),
        pytest.param({"a": 80, "b": 1}, [], id="one is as full as it may be"),
        pytest.param({"a": 81, "b": 1}, ["a flush"], id="too much for one, though all fit"),
        pytest.param({"a": 60, "b": 90, "c": 50}, ["b flush", "a"], id="too much for one, then for all"),
    ],
)
def test_buffers_are_flushed_to_free_memory(
    held: Mapping[str, int], gives_back: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "OWNER_BYTES_MAX", 80)
    budget, done = MemoryBudget(100), list[str]()
    for name, held_bytes in held.items():
        budget.register(Owner(name, held_bytes, done))
    assert budget.needs_rebalance is bool(gives_back)
    budget.rebalance()
    assert done == gives_back
    assert not budget.needs_rebalance


def test_a_full_owner_that_was_flushed_or_closed_since_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "OWNER_BYTES_MAX", 80)
    budget, done = MemoryBudget(200), list[str]()
    flushed, closed = Owner("a", 81, done), Owner("b", 81, done)
    budget.register(flushed)
    budget.register(closed)
    flushed.flush()
    budget.unregister(closed)
    done.clear()
    budget.rebalance()
    assert done == []


@pytest.mark.parametrize(
    ("large_row_bytes", "gives_back"),
    [
        pytest.param(40, [], id="another one fits"),
        pytest.param(41, ["a"], id="another one would not"),
    ],
)
def test_the_budget_reserves_memory_for_one_large_row(large_row_bytes: int, gives_back: Sequence[str]) -> None:
    budget, done = MemoryBudget(100), list[str]()
    budget.register(Owner("a", 60, done, large_row_bytes))
    budget.rebalance()
    assert done == gives_back


class CountedOwner(Owner):
    """Counts how often it is asked."""

    asked = 0

    @property
    def buffered(self) -> BufferedRows:
        CountedOwner.asked += 1
        return super().buffered


def test_a_write_asks_only_the_owner_that_grew_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedOwner, "asked", 0)
    budget = MemoryBudget(1 << 30)
    owners = [CountedOwner(str(number), 0, []) for number in range(500)]
    for owner in owners:
        budget.register(owner)
        owner.hold(10)
        budget.grew(owner)
        assert not budget.needs_rebalance
        budget.rebalance()
    assert CountedOwner.asked == 2 * len(owners)


def test_flushing_many_small_owners_asks_each_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedOwner, "asked", 0)
    budget, done = MemoryBudget(1000), list[str]()
    for number in range(500):
        budget.register(CountedOwner(str(number), 10, done))
    budget.rebalance()
    assert len(done) == 400
    assert CountedOwner.asked < 4 * 500


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["grow", "grow large", "commit", "close"]), st.integers(1, 50)),
        max_size=30,
    )
)
def test_after_any_history_the_buffers_fit_and_nothing_is_flushed_that_fits(
    history: list[tuple[int, str, int]],
) -> None:
    budget, done = MemoryBudget(100), list[str]()
    owners = [Owner(str(number), 0, done) for number in range(5)]
    known = list(owners)  # of owners that hold the same, the first one to register is the first one to flush

    def fit(without: Sequence[Owner] = ()) -> bool:
        held = [owner.buffered for owner in owners if owner not in without]
        return sum(one.nbytes for one in held) + max([one.large_row_bytes for one in held], default=0) <= 100

    for owner in owners:
        budget.register(owner)
    for number, step, nbytes in history:
        owner = owners[number]
        if step.startswith("grow"):
            budget.register(owner)
            known += [] if owner in known else [owner]
            owner.hold(nbytes, nbytes if step == "grow large" else 0)
            budget.grew(owner)
        else:  # a commit releases the memory, without telling
            owner.buffered.clear()
            if step == "close":
                budget.unregister(owner)
                known = [one for one in known if one is not owner]
        largest = sorted(known, key=lambda one: one.buffered.nbytes, reverse=True)
        needed = next(count for count in range(6) if fit(largest[:count]))
        done.clear()
        budget.rebalance()
        assert done == [one.name for one in largest[:needed]]
        assert budget.held_bytes == sum(one.buffered.nbytes for one in owners) <= 100
