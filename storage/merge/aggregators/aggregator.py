"""The interface of all aggregate functions.

A function aggregates the rows of a key, oldest first, into an accumulator that starts as null. Java does this row by
row. Here the input is a whole column, and the output is one value for each group of rows. The effect of a row is its
*step*:

    AGG            acc = agg(acc, x)
    AGG_REVERSED   like AGG, for a row that is older than the accumulator (partial-update: an older sequence)
    RETRACT        acc = retract(acc, x): the row retracts the value of an earlier row
    SET            acc = x, for any acc: a delete that removes the record, or a retract that fills an empty row
    SKIP           acc is unchanged: the row doesn't count for this column

Source: Java `mergetree/compact/aggregate/FieldAggregator.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups, Mask


class Step(IntEnum):
    AGG = 0
    AGG_REVERSED = 1
    RETRACT = 2
    SET = 3
    SKIP = 4


Steps: TypeAlias = NDArray[np.int8]  # (n,) a Step for each position of Groups.rows


class Aggregator(Protocol):
    """An aggregate function for one column. Immutable and thread-safe."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        """Return one value for each group, of the same type as `values`.

        steps: the step of each row; None means AGG for every row.

        Raises BadInput, with the name of the column, for an arithmetic overflow, and for a retract that the function
        does not support.
        """
        ...


@dataclass(frozen=True, slots=True)
class IgnoreRetract:
    """A function that skips retracts (`fields.<column>.ignore-retract`). Source: Java `FieldIgnoreRetractAgg.java`."""

    function: Aggregator

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is not None:
            steps = np.where(steps == Step.RETRACT, np.int8(Step.SKIP), steps)
        return self.function.aggregate(values, groups, steps)


@dataclass(frozen=True, slots=True)
class WithoutRetract:
    """A function that does not support retracts, and refuses them.

    Like Java, it also refuses a retract that a later SET would undo.
    """

    function: Aggregator
    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if steps is not None and (steps == Step.RETRACT).any():
            column, name = self.aggregation.field.name, self.aggregation.function
            raise BadInput(
                f"column {column!r}: aggregate function {name} can't retract values, which -U and -D rows require; "
                f"set fields.{column}.ignore-retract = true to ignore such rows, or don't send them"
            )
        return self.function.aggregate(values, groups, steps)


@dataclass(frozen=True, slots=True)
class RowByRow:
    """A function that works row by row in Python. Groups that are a single SET bypass it, as they don't change."""

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
    """(n,): which positions have a value that is not null."""
    if not values.null_count:
        return np.ones(len(groups.rows), np.bool_)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)[groups.rows]
    return valid


def since_last_set(groups: Groups, steps: Steps | None) -> Steps | None:
    """Replace SET, so that functions on numbers need not support it.

    Steps before the last SET of a group become SKIP, and that SET becomes AGG, as it is the first row that counts.

    Returns None if only AGG is left.
    """
    if steps is None:
        return None
    is_set = steps == Step.SET
    rest = np.where(is_set, np.int8(Step.AGG), steps)
    if np.count_nonzero(is_set) > np.count_nonzero(is_set[groups.starts]):  # some are not at the start of a group
        rest[np.arange(len(steps)) < groups.broadcast(groups.last(is_set))] = Step.SKIP
    return rest if rest.any() else None
