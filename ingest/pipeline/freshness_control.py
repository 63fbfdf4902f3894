"""Decides how a pipeline keeps the freshness that was promised: the pace of checkpoints, the size of their buffer, and
how much compaction is allowed beside them. It does no I/O, and reads no clock.

The record that waits longest arrives when a checkpoint has just begun. It is written after that checkpoint, and becomes
visible at the end of the next one. So the interval, which is counted from start to start, is what the target leaves
after the next checkpoint and the way of the record to the pipeline (`upstream_ms`):

    interval = 90 % of the target - duration of a checkpoint - upstream

It has three floors: twice the duration of a checkpoint, so that half of the time is left for records (but never more
than two targets, as the duration may grow with the interval); what the price
limit allows; and a quarter of the target if the records arrive so late that no interval would help. If records come
faster than they are written, frequent checkpoints would make it worse: then the interval grows to eight durations.

Nothing oscillates, for four reasons. Each step goes only half of the way, because a shorter interval has a shorter
checkpoint, which would allow a longer interval. Differences of 10 % are left as they are. An interval grows only after
three checkpoints that all allow it. And a duration counts for as long as it is the longest of the last three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

SETTLES_AFTER: Final = 20
"""Checkpoints after a change of load until the interval stays as it is."""

INTERVAL_MS_MIN: Final = 100
BUFFER_BYTES_MIN: Final = 1 << 20
_HOUR_MS: Final = 3_600_000
_RESERVE: Final = 0.1  # of the target, for what varies
_REMEMBERED: Final = 3  # checkpoints
_SAME: Final = 0.1  # relative difference of intervals that is not worth a change
_SHARE_OF_CHECKPOINTS: Final = 1 / 2  # of the time, at most
_SHARE_WHILE_BEHIND: Final = 1 / 8
_SHARE_WHILE_LATE: Final = 1 / 4  # of the target, for the interval
_LONGEST: Final = 2  # targets; a longer interval would only have longer checkpoints, and grow without end
_BEHIND: Final = 1 / 4  # of the target: records that are written later than this after their time are behind
_BUFFERED_INTERVALS: Final = 2
_SAME_BUFFER: Final = 1.5  # factor between buffers that is not worth a change
_PRICE_WEIGHT: Final = 0.2  # of the newest checkpoint: a compaction makes some more expensive than others
_FULL_PACE_MIN: Final = 30  # checkpoints at full pace after a writer had to wait for a compaction


def least_target_ms(checkpoint_ms: float) -> int:
    """Return the smallest target that checkpoints of this duration can keep."""
    interval_ms = max(INTERVAL_MS_MIN, checkpoint_ms / _SHARE_OF_CHECKPOINTS)
    return math.ceil((interval_ms + checkpoint_ms) / (1 - _RESERVE))


class Binding(StrEnum):
    """What keeps a target from being reached, or the interval from being shorter."""

    NOTHING = "nothing"
    SOURCE = "source"
    CPU = "cpu"
    STORE = "store"
    COMPACTION = "compaction"
    COST = "cost"


class Pace(StrEnum):
    """How compaction runs beside the writing.

    FULL: whenever a compaction is due.
    HALF: compactions begin only in the second half of an interval, unless a writer waits for one.
    """

    FULL = "full"
    HALF = "half"


@dataclass(frozen=True, slots=True)
class FreshnessGoal:
    """What is promised, and the limits.

    target_ms: the age of a record when its row becomes visible, at most.
    buffer_bytes_max: bytes of source records of one checkpoint.
    memory_bytes: memory of the write buffers.
    price_an_hour_max: what the requests of an hour may cost; None: anything.
    """

    target_ms: int
    buffer_bytes_max: int
    memory_bytes: int
    price_an_hour_max: float | None = None

    def first_state(self, interval_ms: int) -> FreshnessState:
        """Return the state before the first checkpoint."""
        return FreshnessState(interval_ms, self.buffer_bytes_max)


@dataclass(frozen=True, slots=True)
class CheckpointSample:
    """What was measured of one checkpoint, with the time in which its records were written. Durations in ms.

    span_ms: from the first record that was written to the start of the checkpoint.
    took_ms: of the checkpoint itself.
    cpu_ms: processor time of the process in it.
    compaction_wait_ms: how long writers waited for compactions, in span and checkpoint.
    reader_wait_ms: how long the reader waited until its records were taken, in span and checkpoint.
    upstream_ms: age of the oldest record when it was written; None if no record of a table with this target has a time.
    nbytes: bytes of its records.
    held_bytes: memory of its rows.
    price: of the requests since the last checkpoint.
    """

    span_ms: int
    took_ms: int
    cpu_ms: int = 0
    compaction_wait_ms: int = 0
    reader_wait_ms: int = 0
    upstream_ms: int | None = 0
    nbytes: int = 0
    held_bytes: int = 0
    price: float = 0.0

    @property
    def all_ms(self) -> int:
        return max(1, self.span_ms + self.took_ms)

    @property
    def idle_ms(self) -> int:
        """How long the checkpoint waited for something other than a processor or a compaction."""
        return max(0, self.took_ms - self.cpu_ms - self.compaction_wait_ms)


@dataclass(frozen=True, slots=True)
class FreshnessState:
    """The decisions, and what they are made from. It changes only by `decided`.

    interval_ms: from the start of one checkpoint to the start of the next.
    buffer_bytes: bytes of records after which a checkpoint is due earlier.
    pace: of compaction.
    binds: what limits the freshness.
    reason: of `interval_ms` and `binds`, for people.
    took_ms: duration of the last checkpoints.
    upstream_ms: of the last checkpoints.
    price: of the requests of one checkpoint, smoothed; None before the first.
    longer: checkpoints in a row that allowed a longer interval.
    smaller: the same for a smaller buffer.
    bound: what the last checkpoints found to bind, and how many of them did so in a row.
    calm: checkpoints since a writer waited for a compaction.
    full_pace: checkpoints without such a wait until `HALF` is allowed.
    """

    interval_ms: int
    buffer_bytes: int
    pace: Pace = Pace.FULL
    binds: Binding = Binding.NOTHING
    reason: str = "no checkpoint yet"
    took_ms: tuple[int, ...] = ()
    upstream_ms: tuple[int, ...] = ()
    price: float | None = None
    longer: int = 0
    smaller: int = 0
    bound: tuple[Binding, int] = (Binding.NOTHING, 0)
    calm: int = 0
    full_pace: int = _REMEMBERED


def decided(before: FreshnessState, sample: CheckpointSample, goal: FreshnessGoal) -> FreshnessState:
    """Return the state after a checkpoint."""
    upstream = before.upstream_ms
    if sample.upstream_ms is not None:
        # The interval contains the checkpoint before, which the record waited for.
        waited_ms = before.took_ms[-1] if before.took_ms else 0
        upstream = (*upstream, max(0, sample.upstream_ms - waited_ms))
    learnt = replace(
        before,
        took_ms=(*before.took_ms, sample.took_ms)[-_REMEMBERED:],
        upstream_ms=upstream[-_REMEMBERED:],
        price=sample.price if before.price is None else before.price + _PRICE_WEIGHT * (sample.price - before.price),
    )
    wanted_ms, binds, reason = _wanted_interval(learnt, sample, goal)
    state = _with_interval(learnt, wanted_ms, reason)
    state = _with_binding(state, binds, reason)
    state = _with_buffer(state, sample, goal, is_behind=_is_behind(learnt, goal))
    return _with_pace(state, sample, is_bound_by_cpu=binds is Binding.CPU and _is_behind(learnt, goal))


# ---------------------------------------------------------------- interval


def _typical(values: tuple[int, ...]) -> int:
    return sorted(values)[len(values) // 2] if values else 0


def _is_behind(state: FreshnessState, goal: FreshnessGoal) -> bool:
    return _typical(state.upstream_ms) > _BEHIND * goal.target_ms


def _wanted_interval(state: FreshnessState, sample: CheckpointSample, goal: FreshnessGoal) -> tuple[int, Binding, str]:
    """Return the interval that the newest measurements ask for, what binds, and why."""
    took_ms, upstream_ms = max(state.took_ms), _typical(state.upstream_ms)
    aim_ms = goal.target_ms * (1 - _RESERVE)
    left_ms = aim_ms - took_ms - upstream_ms
    half_ms = min(took_ms / _SHARE_OF_CHECKPOINTS, _LONGEST * goal.target_ms)
    longest_ms = max(aim_ms - took_ms, half_ms, INTERVAL_MS_MIN)
    floors: list[tuple[float, Binding, str]] = [(INTERVAL_MS_MIN, Binding.NOTHING, "no interval is shorter")]
    floors.append((half_ms, _slowest(sample), f"a checkpoint takes {_text(took_ms)}"))
    if goal.price_an_hour_max is not None and state.price:
        floor_ms = state.price * _HOUR_MS / goal.price_an_hour_max
        floors.append((floor_ms, Binding.COST, "the price limit allows no more requests"))
        longest_ms = max(longest_ms, floor_ms)
    if _is_behind(state, goal):
        late = f"records are written {_text(upstream_ms)} after their time"
        binds = _bottleneck(sample)
        if binds is Binding.SOURCE:
            floors.append((_SHARE_WHILE_LATE * goal.target_ms, binds, late))
        else:
            floor_ms = took_ms / _SHARE_WHILE_BEHIND
            floors.append((min(longest_ms, max(floor_ms, aim_ms / 2)), binds, late))
    floor_ms, binds, why = max(floors, key=lambda floor: floor[0])
    if left_ms >= floor_ms:
        parts = f"a checkpoint takes {_text(took_ms)}" + (
            f", records arrive after {_text(upstream_ms)}" * bool(upstream_ms)
        )
        return round(min(left_ms, longest_ms)), Binding.NOTHING, parts
    return round(min(floor_ms, longest_ms)), binds, why


def _bottleneck(sample: CheckpointSample) -> Binding:
    """Return what delays records before they are written."""
    # A long checkpoint lets the reader wait, too. Counting that would make the answer depend on the interval.
    if max(0, sample.reader_wait_ms - sample.took_ms) < sample.span_ms / 2:
        return Binding.SOURCE
    if sample.compaction_wait_ms >= sample.all_ms / 4:
        return Binding.COMPACTION
    return Binding.STORE if sample.idle_ms >= sample.all_ms / 2 else Binding.CPU


def _slowest(sample: CheckpointSample) -> Binding:
    """Return what makes a checkpoint long."""
    if sample.compaction_wait_ms >= sample.took_ms / 2:
        return Binding.COMPACTION
    return Binding.STORE if sample.idle_ms >= sample.took_ms / 2 else Binding.CPU


def _with_interval(state: FreshnessState, wanted_ms: int, reason: str) -> FreshnessState:
    interval_ms = state.interval_ms
    if abs(wanted_ms - interval_ms) <= _SAME * interval_ms:
        return replace(state, longer=0)
    if wanted_ms > interval_ms and state.longer + 1 < _REMEMBERED:
        return replace(state, longer=state.longer + 1)
    half_way = (interval_ms + wanted_ms) // 2
    return replace(
        state,
        interval_ms=max(INTERVAL_MS_MIN, half_way),
        longer=state.longer * (wanted_ms > interval_ms),
        reason=reason,
    )


def _with_binding(state: FreshnessState, binds: Binding, reason: str) -> FreshnessState:
    """Return the state with what binds, once three checkpoints in a row agree."""
    found, times = state.bound
    times = times + 1 if found is binds else 1
    state = replace(state, bound=(binds, min(times, _REMEMBERED)))
    if times < _REMEMBERED or binds is state.binds:
        return state
    return replace(state, binds=binds, reason=reason)


# ---------------------------------------------------------------- buffer and compaction


def _with_buffer(
    state: FreshnessState, sample: CheckpointSample, goal: FreshnessGoal, *, is_behind: bool
) -> FreshnessState:
    """Return the state with a buffer for twice what an interval brings: if records suddenly come faster, a checkpoint
    comes earlier, and doesn't take much longer than the last ones.
    """
    most = goal.buffer_bytes_max
    if sample.nbytes and sample.held_bytes > sample.nbytes:
        most = min(most, round(goal.memory_bytes * sample.nbytes / sample.held_bytes))
    wanted = most
    if not is_behind and goal.price_an_hour_max is None:
        rate = sample.nbytes / max(1, sample.span_ms)
        wanted = min(most, round(_BUFFERED_INTERVALS * rate * state.interval_ms))
    wanted = min(goal.buffer_bytes_max, max(BUFFER_BYTES_MIN, wanted))
    if wanted > state.buffer_bytes * _SAME_BUFFER or (wanted > state.buffer_bytes and wanted == goal.buffer_bytes_max):
        return replace(state, buffer_bytes=wanted, smaller=0)
    if wanted * _SAME_BUFFER >= state.buffer_bytes:
        return replace(state, smaller=0)
    if state.smaller + 1 < _REMEMBERED:
        return replace(state, smaller=state.smaller + 1)
    return replace(state, buffer_bytes=wanted, smaller=0)


def _with_pace(state: FreshnessState, sample: CheckpointSample, *, is_bound_by_cpu: bool) -> FreshnessState:
    """Return the state with half of the pace of compaction while only processors are missing.

    Once a writer had to wait for a compaction, it stays full for a while, and each time for twice as long.
    """
    if sample.compaction_wait_ms >= _SAME * sample.all_ms:
        doubled = max(_FULL_PACE_MIN, 2 * state.full_pace)
        full_pace = doubled if state.pace is Pace.HALF else max(_FULL_PACE_MIN, state.full_pace)
        return replace(state, pace=Pace.FULL, calm=0, full_pace=full_pace)
    calm = state.calm + 1
    if state.pace is Pace.FULL and is_bound_by_cpu and state.binds is Binding.CPU and calm >= state.full_pace:
        return replace(state, pace=Pace.HALF, calm=calm)
    if state.pace is Pace.HALF and state.binds is not Binding.CPU:
        return replace(state, pace=Pace.FULL, calm=calm)
    return replace(state, calm=calm)


def _text(duration_ms: float) -> str:
    return f"{duration_ms:,.0f} ms" if duration_ms < 1_000 else f"{duration_ms / 1_000:,.1f} s"
