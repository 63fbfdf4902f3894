"""Expressions of `pyarrow.compute` as filters: which columns one reads, whether it is a condition, which rows match.

Arrow exposes only two things of an expression: its text and its serialized bytes.
"""

from __future__ import annotations

import pickle
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput

CALLS_MAX: Final = 10_000  # Arrow binds calls recursively: a chain of about 30,000 calls crashes the process

_CALLS_IN_BYTES: Final = 2  # how often the serialized expression names each call: once in a header, once in a footer


_FILTERS_ALL_ROWS: Final = int(pa.__version__.split(".")[0]) >= 21  # before, a batch could not lose all of its rows


def matching_rows(batch: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
    """Return the rows for which the condition is true."""
    if _FILTERS_ALL_ROWS:
        return batch.filter(condition)
    kept = pa.Table.from_batches([batch]).filter(condition)
    return kept.combine_chunks().to_batches()[0] if kept.num_rows else batch.slice(0, 0)


def columns_read(expression: pc.Expression, schema: pa.Schema) -> frozenset[str]:
    """Return the names of the columns. Raises BadInput if the expression is not a condition on rows of this schema."""
    _check_references(expression)
    text = str(expression)
    mentioned = [field for field in schema if field.name in text]
    if _misfit(expression, pa.schema(mentioned)) is not None:  # Arrow doesn't list an expression's columns: use all
        mentioned = list(schema)
        misfit = _misfit(expression, schema)
        if misfit is not None:
            raise BadInput(f"the filter {_short(text)} does not fit the table: {misfit}")
    return frozenset(field.name for field in mentioned)


def _check_references(expression: pc.Expression) -> None:
    """Raise BadInput if a column is named by its position, or if the expression makes too many calls.

    A position refers to the columns that are read, which may not be those that the caller meant. Arrow can't serialize
    an expression with positions.
    """
    try:
        calls = pickle.dumps(expression).count(b"call\0") // _CALLS_IN_BYTES
    except pa.ArrowNotImplementedError:
        text = str(expression)
        if "FieldPath(" in text:
            raise BadInput(
                f"the filter {_short(text)} names a column by its position, which depends on the columns read; name "
                "it: pyarrow.compute.field('name'), or tidelake.col('name')"
            ) from None
        return
    if calls > CALLS_MAX:
        raise BadInput(
            f"the filter makes {calls:,} calls; at most {CALLS_MAX:,} are allowed. Compare a column with many values "
            "by isin([...])"
        )


def _misfit(expression: pc.Expression, schema: pa.Schema) -> str | None:
    """Return why the expression can't filter rows of this schema; None if it can."""
    try:
        pa.Table.from_batches([], schema).filter(expression)
    except (pa.ArrowException, TypeError, ValueError) as e:
        return (str(e).splitlines() or [type(e).__name__])[0]
    return None


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
