"""Sizes and positions in a BinaryRow and a BinaryArray."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.model.types import DataType, Root

ARITY_PREFIX_BYTES: Final = 4
MAX_INLINE_BYTES: Final = 7  # longer strings and bytes are stored after the slots
INLINE_MARK: Final = 0x80  # highest byte of a slot that holds the bytes themselves, or-ed with their length
COMPACT_DECIMAL_PRECISION: Final = 18  # up to this precision, the unscaled value fits into a slot
COMPACT_TIMESTAMP_PRECISION: Final = 3  # up to this precision, a timestamp is its milliseconds

# Bytes of the types whose slot is the value itself. In an array, elements have this width; of all other types 8.
FIXED_WIDTH: Final = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.FLOAT: 4,
    Root.BIGINT: 8,
    Root.DOUBLE: 8,
}


def header_words(arity: int) -> int:
    """Return the number of 8-byte words for row kind and null bits, before the slots of a row."""
    return (arity + 8 + 63) // 64


def element_width(data_type: DataType) -> int:
    return FIXED_WIDTH.get(data_type.root, 8)


def array_header_bytes(count: Any) -> Any:
    """Return the number of bytes for count and null bits, before the elements of an array.

    count: one number, or an array of numbers.
    """
    return 4 + 4 * ((count + 31) // 32)


def ramp(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, … count - 1 for each count in turn."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
