"""Applies a column function to Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.aggregate_functions import aggregator_of, column_aggregation
from tidelake.storage.merge.aggregators.aggregator import Aggregator, Step
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types import DataField, DataType, arrow_type, parse_type

COLUMN = "c"


def function(name: str, column: str | DataType, options: Mapping[str, str] | None = None) -> Aggregator:
    """options: without their `fields.c.`."""
    data_type = parse_type(column) if isinstance(column, str) else column
    of_column = {f"fields.{COLUMN}.{key}": value for key, value in (options or {}).items()}
    return aggregator_of(column_aggregation(name, DataField(0, COLUMN, data_type), TableOptions(of_column)))


def fold(aggregator: Aggregator, column: str | DataType, groups: Sequence[Sequence[tuple[Step, Any]]]) -> list[Any]:
    """groups: the (step, value) of each row, oldest first, for each key."""
    data_type = parse_type(column) if isinstance(column, str) else column
    rows = [row for group in groups for row in group]
    ends = np.cumsum([len(group) for group in groups], dtype=np.intp)
    values = pa.array([value for _, value in rows], arrow_type(data_type))
    starts = ends - np.array([len(group) for group in groups], np.intp)
    steps = np.array([step for step, _ in rows], np.int8)
    folded = aggregator.aggregate(values, Groups(np.arange(len(rows)), starts), steps)
    assert folded.type == values.type
    folded.validate(full=not pa.types.is_decimal(values.type))  # sums may outgrow their declared digits, as in Java
    result: list[Any] = folded.to_pylist()
    return result
