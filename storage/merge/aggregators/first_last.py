"""Functions whose result is the unchanged value of one row: last, first, the key.

They work on positions, so they support all column types, and copy values only once.

Source: Java `FieldLastValueAgg`, `FieldLastNonNullValueAgg`, `FieldFirstValueAgg`, `FieldFirstNonNullValueAgg`,
`FieldPrimaryKeyAgg`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.aggregators.aggregator import Step, Steps, valid_rows
from tidelake.storage.merge.aggregators.row_aggregator import SimpleRowAggregator
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.normalized_keys import RowIndices


def take_positions(values: pa.Array, groups: Groups, positions: RowIndices) -> pa.Array:
    """Return the values at the positions, and null for -1."""
    missing = positions < 0
    rows = groups.rows[positions]
    return values.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))


class PrimaryKey:
    """The value of a key column, or of a column with the function `primary-key`.

    All rows of a group have the same key, so the rows of retracts can be used, too.
    """

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is None:
            return take_positions(values, groups, groups.ends - 1)
        # agg(x, acc) is acc: an older row changes nothing
        return take_positions(values, groups, groups.last((steps != Step.SKIP) & (steps != Step.AGG_REVERSED)))


class LastValue:
    """The value of the newest row, which may be null. A retract sets null."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is None:
            return take_positions(values, groups, groups.ends - 1)
        newest = groups.last((steps != Step.SKIP) & (steps != Step.AGG_REVERSED))
        return take_positions(values, groups, np.where((newest >= 0) & (steps[newest] == Step.RETRACT), -1, newest))


class LastNonNullValue:
    """The newest value that is not null. A retract with any value other than null sets null."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        valid = valid_rows(values, groups)
        if steps is None:
            return take_positions(values, groups, groups.last(valid))
        counts = valid & (steps != Step.SKIP)
        is_older = steps == Step.AGG_REVERSED
        newest = groups.last((counts & ~is_older) | (steps == Step.SET))
        newest_known = (newest >= 0) & (steps[newest] != Step.RETRACT) & valid[newest]
        if not is_older.any():
            return take_positions(values, groups, np.where(newest_known, newest, -1))
        # an older row sets the value if it is null at that time
        after = np.arange(len(valid)) > groups.broadcast(newest)
        return take_positions(values, groups, np.where(newest_known, newest, groups.first(counts & is_older & after)))


class FirstValue:
    """The value of the oldest row, which may be null."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is None:
            return take_positions(values, groups, groups.starts)
        return _first(_FirstPosition(), values, groups, steps, groups.first(steps == Step.AGG))


class FirstNonNullValue:
    """The oldest value that is not null."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        valid = valid_rows(values, groups)
        if steps is None:
            return take_positions(values, groups, groups.first(valid))
        return _first(_FirstKnownPosition(valid), values, groups, steps, groups.first(valid & (steps == Step.AGG)))


def _first(
    aggregator: SimpleRowAggregator[int], values: pa.Array, groups: Groups, steps: Steps, without_others: RowIndices
) -> pa.Array:
    """Return the first value of each group.

    aggregator: finds the position in groups with SET or AGG_REVERSED.
    without_others (g,): the positions for all other groups.
    """
    others = (steps == Step.SET) | (steps == Step.AGG_REVERSED)
    in_steps: Mask = groups.any(others) if others.any() else np.zeros(len(groups), np.bool_)
    positions = without_others
    if in_steps.any():
        chosen, at = groups.select(in_steps)
        found = aggregator.aggregate(at.tolist(), chosen, steps[at])
        positions = positions.copy()
        positions[in_steps] = [-1 if position is None else position for position in found]
    return take_positions(values, groups, positions)


class _FirstPosition(SimpleRowAggregator[int]):
    """Aggregates positions instead of values.

    Whether a value was seen is a separate state, which a SET does not change, as in Java.
    """

    def __init__(self) -> None:
        self._called = False

    def reset(self) -> None:
        self._called = False

    def agg(self, acc: int | None, item: int | None) -> int | None:
        if self._called:
            return acc
        self._called = True
        return item


class _FirstKnownPosition(_FirstPosition):
    def __init__(self, valid: Mask) -> None:
        super().__init__()
        self._valid = valid

    def agg(self, acc: int | None, item: int | None) -> int | None:
        known = item is not None and bool(self._valid[item])
        return super().agg(acc, item) if known else acc
