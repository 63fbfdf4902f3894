"""Conditions as masks of a batch: which of its rows fulfil them, without Arrow's engine for queries.

The functions are those that the engine would call, so the results are the same. But the engine takes milliseconds for
each batch before it looks at a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.read.predicate import And, Compare, IsNull, Not, Or, Predicate

RowMask: TypeAlias = Callable[[pa.RecordBatch], pa.Array]
"""Returns whether each row of a batch fulfils a condition: true, false or null."""

_MASKS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def row_mask(condition: Predicate, schema: pa.Schema) -> RowMask | None:
    """Return the condition as a function; None for one that only Arrow's engine can evaluate."""
    match condition:
        case Compare() if not condition.is_of_part:
            operator, value = condition.in_type_of_column(schema)
            return partial(_compared, condition.column, _MASKS[operator], value)
        case IsNull() if not condition.is_of_part:
            return partial(_is_null, condition.column)
        case Not():
            inner = row_mask(condition.inner, schema)
            return None if inner is None else partial(_inverted, inner)
        case And() | Or():
            masks = [row_mask(part, schema) for part in condition.parts]
            combined = pc.and_kleene if isinstance(condition, And) else pc.or_kleene
            found = [mask for mask in masks if mask is not None]
            return partial(_combined, combined, found) if found and len(found) == len(masks) else None
    return None


def _compared(column: str, compare: Callable[[Any, Any], Any], value: pa.Scalar, batch: pa.RecordBatch) -> pa.Array:
    return compare(batch.column(column), value)


def _is_null(column: str, batch: pa.RecordBatch) -> pa.Array:
    return pc.is_null(batch.column(column))


def _inverted(mask: RowMask, batch: pa.RecordBatch) -> pa.Array:
    return pc.invert(mask(batch))


def _combined(combine: Callable[[Any, Any], Any], masks: Sequence[RowMask], batch: pa.RecordBatch) -> pa.Array:
    return reduce(combine, [mask(batch) for mask in masks])
