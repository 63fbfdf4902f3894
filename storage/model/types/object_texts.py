"""Prints columns of numbers and times as Java's `toString()` does. `partition_text` does the same for one value.

Arrow prints common values as Java does; a mask marks them. The other values are printed one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.model.types.arrow_buffers import to_single_array
from tidelake.storage.model.types.data_types import TIMESTAMP_ROOTS, DataType, Root
from tidelake.storage.model.types.partition_text import partition_text

_DECIMAL_FROM, _DECIMAL_BELOW = 1e-3, 1e7  # in between, Java and Arrow print floats with a point, the fewest digits
_YEARS_PRINTED: Final = (np.datetime64("0001-01-01"), np.datetime64("10000-01-01"))
_TRAILING_ZEROS: Final = (r"(\.\d{6})000$", r"(\.\d{3})000$", r"()\.000$")


def object_texts_of_numbers(column: pa.Array, data_type: DataType) -> pa.Array:
    """Return the texts of FLOAT, DOUBLE, DECIMAL and timestamps. Null stays null.

    Raises UnsupportedFeature for other types.
    """
    root = data_type.root
    if root in (Root.FLOAT, Root.DOUBLE):
        texts, is_common = _float_texts(column)
    elif root in TIMESTAMP_ROOTS:
        texts, is_common = _timestamp_texts(column)
    elif root is Root.DECIMAL:
        texts = column.cast(pa.string())
        is_common = pc.invert(pc.match_substring(texts, "E"))
    else:
        texts, is_common = pa.nulls(len(column), pa.string()), pa.array(np.zeros(len(column), np.bool_))
    others = pc.and_(pc.is_valid(column), pc.invert(pc.fill_null(is_common, False)))
    if not pc.any(others).as_py():
        return texts
    encoded = column.filter(others).dictionary_encode()
    printed = pa.array([partition_text(value, data_type, legacy=True) for value in encoded.dictionary], pa.string())
    return to_single_array(pc.replace_with_mask(texts, others, printed.take(encoded.indices)))


def _float_texts(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, "0", "."))
    size = pc.abs(column)
    return texts, pc.and_(pc.greater_equal(size, _DECIMAL_FROM), pc.less(size, _DECIMAL_BELOW))


def _timestamp_texts(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return texts as `LocalDateTime.toString`: seconds only if needed, fractions of 3, 6 or 9 digits."""
    unit = column.type.unit
    local = column.cast(pa.timestamp(unit))
    texts = pc.replace_substring(local.cast(pa.string()), " ", "T")
    for zeros in _TRAILING_ZEROS:
        texts = pc.replace_substring_regex(texts, zeros, r"\1")
    texts = pc.replace_substring_regex(texts, r"(T\d\d:\d\d):00$", r"\1")
    if unit == "ns":  # 1677 to 2262
        return texts, pc.is_valid(local)
    first, behind = (pa.scalar(int(year.astype(f"M8[{unit}]").astype(np.int64)), local.type) for year in _YEARS_PRINTED)
    return texts, pc.and_(pc.greater_equal(local, first), pc.less(local, behind))
