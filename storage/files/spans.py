"""The smallest and largest value of a column, found with Arrow's kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Span:
    """From the smallest to the largest value, both exact, as valid scalars of the column's in-memory type."""

    minimum: pa.Scalar
    maximum: pa.Scalar


Spans: TypeAlias = Mapping[str, Span]
"""By column. One that is missing has no values, or its bounds are not known."""


def has_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py() is True


def span_of(column: pa.Array | pa.ChunkedArray) -> Span | None:
    """None without values, and with a NaN among them: Arrow passes over NaN, but to Java it is the largest value."""
    if len(column) == column.null_count or has_nan(column):
        return None
    found = pc.min_max(column)
    return _zeros_apart(Span(found["min"], found["max"]))


def widened(spans: Iterable[Span]) -> Span | None:
    """What holds all of them; None for none."""
    return reduce(_union, spans, None)


def _union(known: Span | None, more: Span) -> Span:
    if known is None:
        return more
    lower = pc.less(more.minimum, known.minimum).as_py()  # (min_element_wise can't compare times with a zone)
    higher = pc.greater(more.maximum, known.maximum).as_py()
    return Span(more.minimum if lower else known.minimum, more.maximum if higher else known.maximum)


def _zeros_apart(span: Span) -> Span:
    """To Arrow 0.0 equals -0.0, to Java it is larger."""
    if not pa.types.is_floating(span.minimum.type):
        return span
    minimum = pa.scalar(-0.0, span.minimum.type) if span.minimum.as_py() == 0 else span.minimum
    maximum = pa.scalar(0.0, span.maximum.type) if span.maximum.as_py() == 0 else span.maximum
    return Span(minimum, maximum)


class SpanCollector:
    """Spans of the rows of a file, batch by batch; a column with a NaN drops out."""

    def __init__(self, columns: Collection[str]) -> None:
        self._columns = sorted(columns)
        self._spans: dict[str, Span] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for name in list(self._columns):
            column = batch.column(name)
            if has_nan(column):
                self._columns.remove(name)
                self._spans.pop(name, None)
            elif (span := span_of(column)) is not None:
                self._spans[name] = _union(self._spans.get(name), span)

    def spans(self) -> Spans:
        return self._spans
