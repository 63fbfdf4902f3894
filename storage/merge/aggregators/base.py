"""What every aggregate function can do.

A function aggregates the rows of a key, oldest first, into an accumulator that starts as null. Java does it a row at a
time; here whole columns go in, and one value for each group of rows comes out. What a row does is its *step*:

    AGG            acc = agg(acc, x)
    AGG_REVERSED   acc = the same for a row older than the accumulator (partial-update: an older sequence)
    RETRACT        acc = retract(acc, x): the row takes back what an earlier one gave
    SET            acc = x, whatever it was: a delete that removes the record, a retract that fills an empty row
    SKIP           nothing: the row doesn't count for this column

Source: Java `mergetree/compact/aggregate/FieldAggregator.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import BadInput
from storage.merge.aggregate_functions import ColumnAggregation
from storage.merge.equal_keys import Groups, Mask


class Step(IntEnum):
    AGG = 0
    AGG_REVERSED = 1
    RETRACT = 2
    SET = 3
    SKIP = 4


Steps: TypeAlias = NDArray[np.int8]  # (n,) a Step for each position of Groups.rows


class Aggregator(Protocol):
    """One function for one column. Immutable, safe to use from several threads."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        """One value for each group, of the same type as `values`.

        steps: None means AGG for every row.

        Raises BadInput naming the column: arithmetic overflow, a retract where the function has none.
        """
        ...


@dataclass(frozen=True, slots=True)
class IgnoreRetract:
    """`fields.<column>.ignore-retract`. Source: Java `FieldIgnoreRetractAgg.java`."""

    function: Aggregator

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is not None:
            steps = np.where(steps == Step.RETRACT, np.int8(Step.SKIP), steps)
        return self.function.aggregate(values, groups, steps)


@dataclass(frozen=True, slots=True)
class WithoutRetract:
    """A function that can't take values back says so; a retract that a later SET would undo counts too, as in Java."""

    function: Aggregator
    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is not None and (steps == Step.RETRACT).any():
            column, name = self.aggregation.field.name, self.aggregation.function
            raise BadInput(
                f"column {column!r}: aggregate function {name} can't take a value back, and a row -U or -D asks for "
                f"it; set fields.{column}.ignore-retract = true to pass over such rows, or don't send them"
            )
        return self.function.aggregate(values, groups, steps)


@dataclass(frozen=True, slots=True)
class RowByRow:
    """A function that works in Python, without the groups that are one row as it stands: a SET alone."""

    function: Aggregator

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is None or not len(groups):
            return self.function.aggregate(values, groups, steps) if len(groups) else values.slice(0, 0)
        alone = (groups.lengths == 1) & (steps[groups.starts] == Step.SET)
        if not alone.any():
            return self.function.aggregate(values, groups, steps)
        several, positions = groups.select(~alone)
        kept = values.take(pa.array(groups.rows[groups.starts[alone]]))
        aggregated = self.function.aggregate(values, several, steps[positions]) if len(several) else kept.slice(0, 0)
        place = np.empty(len(groups), np.intp)
        place[alone] = np.arange(len(kept))
        place[~alone] = len(kept) + np.arange(len(aggregated))
        return pa.concat_arrays([kept, aggregated]).take(pa.array(place))


def valid_rows(values: pa.Array, groups: Groups) -> Mask:
    """(n,): which positions hold a value."""
    if not values.null_count:
        return np.ones(len(groups.rows), np.bool_)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)[groups.rows]
    return valid


def since_last_set(groups: Groups, steps: Steps | None) -> Steps | None:
    """Steps in which what a later SET undoes is SKIP, and SET is AGG: then it is the first row of its group, or alone.

    So numbers and extremes need not know SET. None: nothing but AGG is left.
    """
    if steps is None:
        return None
    is_set = steps == Step.SET
    rest = np.where(is_set, np.int8(Step.AGG), steps)
    if np.count_nonzero(is_set) > np.count_nonzero(is_set[groups.starts]):  # some are not where a group begins
        rest[np.arange(len(steps)) < groups.spread(groups.last(is_set))] = Step.SKIP
    return rest if rest.any() else None
