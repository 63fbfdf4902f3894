"""Concatenated JSON: objects of an Arrow array as one run of bytes, for a parser that reads object after object.

Values of an Arrow array lie side by side, and such a parser needs nothing in between. Where each value begins with {,
ends with } and has as many quotes that open a text as quotes that close one, no text goes on in the next value, and
outside of texts `}{` is never part of one object. So neighbours cannot run into each other; and where as many objects
are found as there are values, each value was one object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")


def split_rows(values: pa.Array, rows: NDArray[np.int64], rows_max: int, bytes_max: int) -> Iterator[NDArray[np.int64]]:
    """`rows` cut into runs of at most `rows_max` rows and, unless it is a single one, `bytes_max` bytes.

    Runs that are cut by their number of rows are equally long: a short one costs as much as hundreds of rows more.
    """
    if not len(rows):
        return
    positions, _ = layout(values)
    ends = positions[rows + 1]
    length = -(-len(rows) // -(-len(rows) // rows_max))
    begin = 0
    while begin < len(rows):
        by_bytes = int(np.searchsorted(ends, positions[rows[begin]] + bytes_max, "right"))
        end = max(begin + 1, min(begin + length, by_bytes))
        yield rows[begin:end]
        begin = end


def concatenate_objects(values: pa.Array, rows: NDArray[np.int64], prefix: bytes = b"") -> bytes | memoryview:
    """What stands in these rows, one after another; behind `prefix` and without the last brace, if there is one.

    values: binary, no nulls in `rows`. Copies nothing when the rows follow one another and there is no prefix.

    Raises ValueError when a value is not framed by braces, ends within a text, or does not begin with the prefix.
    """
    positions, data = layout(values)
    begins, ends = positions[rows], positions[rows + 1]
    octets = np.frombuffer(data, np.uint8)
    if np.any(begins >= ends) or np.any(octets[begins] != ord("{")) or np.any(octets[ends - 1] != ord("}")):
        raise ValueError("not one JSON object each, without blanks around it")
    if np.any(_ends_within_a_text(octets, begins, ends)):
        raise ValueError("a text that its value does not close")
    if not prefix and np.array_equal(begins[1:], ends[:-1]):
        return data[begins[0] : ends[-1]]
    found = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        value = data[begin:end].tobytes()  # compared as bytes: a memoryview compares octet by octet
        if prefix:
            if not value.startswith(prefix) or value[len(prefix)] != ord("{") or value[-2] != ord("}"):
                raise ValueError("another beginning, or more than one object behind it")
            value = value[len(prefix) : -1]
        found.append(value)
    return b"".join(found)


def _ends_within_a_text(
    octets: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Of the values octets[begins[i]:ends[i]], none empty: whether they have an odd number of quotes, escaped ones not
    counted.
    """
    if not len(begins):
        return np.zeros(0, np.bool_)
    first, last = int(begins.min()), int(ends.max())
    octets = octets[first:last]
    is_quote = octets == _QUOTE
    if (octets == _BACKSLASH).any():
        is_quote[_escaped(octets)] = False
    # By turns a value and what lies behind it. The end of all octets is no edge, so the last value lacks its brace.
    edges = np.minimum(np.stack([begins, ends], axis=1).ravel() - first, len(octets) - 1)
    is_odd: NDArray[np.bool_] = np.bitwise_xor.reduceat(is_quote.view(np.uint8), edges)[::2] != 0
    return is_odd


def _escaped(octets: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Where octets stand that a backslash escapes: behind runs of an odd number of them."""
    places = np.flatnonzero(octets == _BACKSLASH)
    is_first = np.append(True, np.diff(places) > 1)
    is_last = np.append(is_first[1:], True)
    lengths = np.diff(np.append(np.flatnonzero(is_first), len(places)))
    behind: NDArray[np.int64] = places[is_last][lengths % 2 == 1] + 1
    return behind  # a value ends with a brace, so something stands there


def layout(values: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """(n + 1 positions, data) of a binary array: value i lies at positions i to i + 1."""
    wide = pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    positions = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    return positions.astype(np.int64), memoryview(data if data is not None else b"")
