"""Finds equal values of a column, including nested ones, by assigning codes to them.

Values are compared like Java's boxed values and generated equalisers: null equals null, NaN equals NaN, -0.0 is not
0.0.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NULL = -1


def value_codes(values: pa.Array) -> NDArray[np.int64]:
    """(n,): a code for each value, NULL for null. Equal values have equal codes; a code has no other meaning.

    Nested values are converted to Python objects.
    """
    kind = values.type
    if pa.types.is_nested(kind):
        known: dict[Hashable, int] = {}
        valid = values.is_valid().to_pylist()
        codes = [known.setdefault(k, len(known)) if v else NULL for k, v in zip(_keys(values), valid, strict=True)]
        return np.array(codes, np.int64)
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)  # NaN has many bit patterns
    indices: NDArray[np.int64] = values.dictionary_encode().indices.fill_null(NULL).to_numpy().astype(np.int64)
    return indices


def _keys(values: pa.Array) -> list[Hashable]:
    """Return for each value the codes of its parts. The result for a null is arbitrary."""
    kind = values.type
    if pa.types.is_struct(kind):
        return list(zip(*(value_codes(part).tolist() for part in values.flatten()), strict=True))
    if pa.types.is_map(kind):
        entries = list(zip(value_codes(values.keys).tolist(), value_codes(values.items).tolist(), strict=True))
        return [frozenset(entries[a:b]) for a, b in pairwise(values.offsets.to_pylist())]
    if pa.types.is_fixed_size_list(kind):
        values = values.cast(pa.list_(kind.value_field))
    elements = value_codes(values.values).tolist()
    return [tuple(elements[a:b]) for a, b in pairwise(values.offsets.to_pylist())]
