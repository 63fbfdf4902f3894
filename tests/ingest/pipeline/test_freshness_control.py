"""A promised freshness is kept without oscillation: a pipeline is simulated whose load changes in steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake.ingest.pipeline.freshness_control import (
    BUFFER_BYTES_MIN,
    INTERVAL_MS_MIN,
    SETTLES_AFTER,
    Binding,
    CheckpointSample,
    FreshnessGoal,
    FreshnessState,
    Pace,
    decided,
    least_target_ms,
)

MIB: Final = 1 << 20
GOAL: Final = FreshnessGoal(5_000, 512 * MIB, 256 * MIB)
STEP_MS: Final = 5.0


@dataclass(frozen=True)
class Load:
    """The world around a pipeline, for some checkpoints.

    rate: bytes of records that appear in a millisecond.
    store_ms: how long a checkpoint waits for the store.
    flush_ms: processor time of a checkpoint for a MiB.
    write_ms: processor time for decoding and writing a MiB.
    compaction_ms: how long a checkpoint waits for compactions.
    delay_ms: age of records when they reach the pipeline.
    price: of the requests of a checkpoint.
    """

    checkpoints: int
    rate: float = 100
    store_ms: float = 100
    flush_ms: float = 50
    write_ms: float = 100
    compaction_ms: float = 0
    delay_ms: float = 20
    price: float = 0


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of the simulation. reached_ms: age of its oldest record at its end."""

    state: FreshnessState
    reached_ms: float
    sample: CheckpointSample


class Simulation:
    """A pipeline that commits when its state says so. Records appear all the time, and are written in their order."""

    def __init__(self, goal: FreshnessGoal = GOAL) -> None:
        self.goal = goal
        self.state = goal.first_state(goal.target_ms * 3 // 4)
        self._now_ms = self._begun_ms = self._written_ms = 0.0  # all records that appeared before are written

    def run(self, loads: Sequence[Load]) -> list[list[Checkpoint]]:
        return [[self._checkpoint(load) for _ in range(load.checkpoints)] for load in loads]

    def _checkpoint(self, load: Load) -> Checkpoint:
        started_ms, oldest_ms, nbytes, reader_wait_ms = self._now_ms, self._written_ms, 0.0, 0.0
        while not self._is_due(started_ms, nbytes):
            possible = STEP_MS * MIB / load.write_ms
            present = (self._now_ms - load.delay_ms - self._written_ms) * load.rate
            reader_wait_ms += STEP_MS * (present > possible)
            taken = max(0.0, min(possible, present))
            self._written_ms += taken / load.rate
            nbytes += taken
            self._now_ms += STEP_MS
        self._begun_ms = self._now_ms
        cpu_ms = nbytes * load.flush_ms / MIB
        took_ms = cpu_ms + load.store_ms + load.compaction_ms
        self._now_ms += took_ms
        sample = CheckpointSample(
            span_ms=round(self._begun_ms - started_ms),
            took_ms=round(took_ms),
            cpu_ms=round(cpu_ms),
            compaction_wait_ms=round(load.compaction_ms),
            reader_wait_ms=round(reader_wait_ms + took_ms * (reader_wait_ms > 0)),
            upstream_ms=round(max(load.delay_ms, started_ms - oldest_ms)),
            nbytes=round(nbytes),
            held_bytes=round(2 * nbytes),
            price=load.price,
        )
        self.state = decided(self.state, sample, self.goal)
        return Checkpoint(self.state, self._now_ms - oldest_ms, sample)

    def _is_due(self, started_ms: float, nbytes: float) -> bool:
        interval_ms = self.state.interval_ms
        due_ms = max(self._begun_ms + interval_ms, started_ms + interval_ms / 2)
        return nbytes > 0 and (self._now_ms >= due_ms or nbytes >= self.state.buffer_bytes)


def turns(phase: Sequence[Checkpoint], before_ms: int) -> int:
    """How often the interval changed its direction."""
    intervals = [before_ms, *(one.state.interval_ms for one in phase)]
    signs = [1 if b > a else -1 for a, b in pairwise(intervals) if a != b]
    return sum(a != b for a, b in pairwise(signs))


@dataclass(frozen=True)
class Step:
    """A change of the load. reached: of the target, at the end; None: it can't be kept."""

    load: Load
    binds: Binding
    reached: float | None = 1.0
    goal: FreshnessGoal = GOAL
    pace: Pace = Pace.FULL


CALM: Final = Load(SETTLES_AFTER)
STEPS: Final = {
    "nothing changes": Step(Load(60), Binding.NOTHING),
    "ten times the rate": Step(Load(60, rate=1_000), Binding.NOTHING),
    "a tenth of the rate": Step(Load(60, rate=10), Binding.NOTHING),
    "a slower store": Step(Load(60, store_ms=900), Binding.NOTHING),
    "a store at the limit of the target": Step(Load(60, store_ms=1_500), Binding.STORE),
    "a store that is too slow for the target": Step(Load(60, store_ms=4_000), Binding.STORE, None),
    "a flush that takes all processors": Step(Load(60, rate=1_000, flush_ms=600), Binding.CPU, None),
    "more records than processors can write": Step(Load(60, write_ms=20_000), Binding.CPU, None, pace=Pace.HALF),
    "compactions that writers wait for": Step(Load(60, compaction_ms=2_500), Binding.COMPACTION, None),
    "a source that delivers late": Step(Load(60, delay_ms=2_000), Binding.NOTHING),
    "a source that delivers too late": Step(Load(60, delay_ms=8_000), Binding.SOURCE, None),
    "a price limit that allows the target": Step(
        Load(60, price=0.0001), Binding.NOTHING, goal=replace(GOAL, price_an_hour_max=1.0)
    ),
    "a price limit that is too low for the target": Step(
        Load(60, price=0.01), Binding.COST, None, goal=replace(GOAL, price_an_hour_max=4.0)
    ),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_after_a_step_of_the_load_the_interval_settles_and_does_not_oscillate(step: Step) -> None:
    simulation = Simulation(step.goal)
    (calm, phase) = simulation.run([CALM, step.load])
    settled = phase[SETTLES_AFTER:]
    assert len({one.state.interval_ms for one in settled}) == 1, [one.state.interval_ms for one in phase]
    assert turns(phase, calm[-1].state.interval_ms) <= 1
    assert {one.state.binds for one in settled} == {step.binds}
    assert settled[-1].state.pace is step.pace
    if step.reached is not None:
        assert max(one.reached_ms for one in settled) <= step.reached * step.goal.target_ms
    else:
        assert max(one.reached_ms for one in settled) > step.goal.target_ms


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_after_the_load_has_gone_the_target_is_kept_again_with_the_interval_of_before(step: Step) -> None:
    calm = replace(CALM, price=step.load.price) if step.binds is Binding.NOTHING else CALM
    before, _, after = Simulation(step.goal).run([calm, step.load, replace(calm, checkpoints=200)])
    settled = after[-SETTLES_AFTER:]
    assert {one.state.binds for one in settled} == {Binding.NOTHING}
    assert {one.state.pace for one in settled} == {Pace.FULL}
    assert max(one.reached_ms for one in settled) <= step.goal.target_ms
    assert settled[-1].state.interval_ms == pytest.approx(before[-1].state.interval_ms, rel=0.25)


def test_a_sudden_rate_is_committed_early_by_its_bytes() -> None:
    simulation = Simulation()
    simulation.run([CALM])
    ((first,),) = simulation.run([Load(1, rate=5_000)])
    assert first.sample.span_ms < simulation.state.interval_ms / 2
    assert first.sample.took_ms < 500


def test_rows_that_would_not_fit_into_memory_are_committed_before() -> None:
    goal = FreshnessGoal(600_000, 512 * MIB, 64 * MIB)
    (phase,) = Simulation(goal).run([Load(30, rate=1_000)])
    assert {round(one.state.buffer_bytes / MIB) for one in phase[3:]} == {32}


def test_a_price_limit_holds_against_bytes() -> None:
    goal = replace(GOAL, price_an_hour_max=1.0)
    (phase,) = Simulation(goal).run([Load(60, rate=1_000, price=0.002)])
    assert {one.state.buffer_bytes for one in phase[3:]} == {128 * MIB}  # as much as the memory holds
    an_hour = 0.002 * 3_600_000 / phase[-1].state.interval_ms
    assert an_hour <= 1.1


def test_compaction_stays_at_full_pace_after_a_writer_waited() -> None:
    overload, waiting = Load(5, write_ms=20_000), Load(1, write_ms=20_000, compaction_ms=3_000)
    simulation = Simulation()
    paces = []
    for _ in range(3):
        (phase,) = simulation.run([replace(overload, checkpoints=200)])
        paces.append(next(n for n, one in enumerate(phase) if one.state.pace is Pace.HALF))
        simulation.run([waiting])
        assert simulation.state.pace is Pace.FULL
    assert paces[0] < 10
    assert paces[0] + 20 < paces[1] < paces[2]


def test_records_without_a_time_change_nothing() -> None:
    state = decided(GOAL.first_state(3_750), CheckpointSample(3_750, 100, upstream_ms=None), GOAL)
    assert (state.upstream_ms, state.interval_ms) == ((), 3_750)


@pytest.mark.parametrize(
    ("checkpoint_ms", "least_ms"), [(0, 112), (100, 334), (1_000, 3_334)], ids=["a disk", "a store", "a far store"]
)
def test_the_least_target_is_what_a_checkpoint_allows(checkpoint_ms: int, least_ms: int) -> None:
    assert least_target_ms(checkpoint_ms) == least_ms


samples = st.builds(
    CheckpointSample,
    span_ms=st.integers(1, 1_000_000),
    took_ms=st.integers(0, 100_000),
    cpu_ms=st.integers(0, 200_000),
    compaction_wait_ms=st.integers(0, 200_000),
    reader_wait_ms=st.integers(0, 1_000_000),
    upstream_ms=st.one_of(st.none(), st.integers(-1_000, 10**12)),
    nbytes=st.integers(0, 1 << 40),
    held_bytes=st.integers(0, 1 << 40),
    price=st.floats(0, 100),
)
goals = st.builds(
    FreshnessGoal,
    target_ms=st.integers(200, 86_400_000),
    buffer_bytes_max=st.integers(1, 1 << 36),
    memory_bytes=st.integers(1, 1 << 36),
    price_an_hour_max=st.one_of(st.none(), st.floats(0.001, 1_000)),
)


@settings(max_examples=examples(2_000))
@given(goals, st.lists(samples, max_size=12))
def test_whatever_is_measured_the_decisions_stay_within_their_bounds(
    goal: FreshnessGoal, measured: Sequence[CheckpointSample]
) -> None:
    state = goal.first_state(goal.target_ms * 3 // 4)
    longest_ms = float(state.interval_ms)
    for sample in measured:
        state = decided(state, sample, goal)
        floors = [2.0 * goal.target_ms, INTERVAL_MS_MIN]
        if goal.price_an_hour_max is not None and state.price is not None:
            floors.append(state.price * 3_600_000 / goal.price_an_hour_max)
        longest_ms = max(longest_ms, *floors)
        assert INTERVAL_MS_MIN <= state.interval_ms <= longest_ms + 1
        assert min(BUFFER_BYTES_MIN, goal.buffer_bytes_max) <= state.buffer_bytes <= goal.buffer_bytes_max


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.floats(1, 2_000), st.floats(1, 1_400), st.floats(1, 1_500)), min_size=1, max_size=4))
@example(steps=[(984.0, 996.0, 1246.0)])  # checkpoints of half an interval, during which the reader waits
def test_any_steps_of_a_load_that_allows_the_target_settle(steps: Sequence[tuple[float, float, float]]) -> None:
    loads = [Load(2 * SETTLES_AFTER, rate=rate, store_ms=store, delay_ms=delay) for rate, store, delay in steps]
    for phase in Simulation().run(loads):
        settled = phase[SETTLES_AFTER:]
        assert turns(settled, settled[0].state.interval_ms) == 0
        assert len({one.state.interval_ms for one in settled}) == 1


def test_a_store_that_is_slow_at_every_fifth_checkpoint_makes_no_interval_swing() -> None:
    loads = [Load(4), Load(1, store_ms=1_200)] * 20
    intervals = [one.state.interval_ms for phase in Simulation().run(loads) for one in phase]
    assert len(set(intervals[SETTLES_AFTER:])) == 1, intervals


@pytest.mark.parametrize(("checkpoints", "binds"), [(2, Binding.NOTHING), (3, Binding.STORE)], ids=["two", "three"])
def test_only_three_checkpoints_in_a_row_say_that_something_binds(checkpoints: int, binds: Binding) -> None:
    simulation = Simulation()
    simulation.run([CALM, Load(checkpoints, store_ms=4_000)])
    assert simulation.state.binds is binds


def test_the_wait_for_the_checkpoint_before_is_no_delay_of_the_source() -> None:
    state = decided(GOAL.first_state(3_750), CheckpointSample(3_750, 400, upstream_ms=20), GOAL)
    assert decided(state, CheckpointSample(3_350, 400, upstream_ms=420), GOAL).upstream_ms == (20, 20)
