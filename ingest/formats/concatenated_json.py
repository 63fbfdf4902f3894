"""Concatenated JSON: objects of an Arrow array as one run of bytes, for a parser that reads object after object.

Values of an Arrow array lie side by side, and such a parser needs nothing in between. Where each value begins with {
and ends with }, and no text goes on from one into the next, neighbours cannot run into each other: outside of texts
`}{` is never part of one object. So where as many objects are found as there are values, each value was one object.

Of a text that went on, the next quote would be the end, and no letter can follow that. So values that begin with { and
the quote and letter of a name need no look at the rest. Of others quotes are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_IN_NAMES: Final = np.zeros(256, np.bool_)
_IN_NAMES[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")] = True


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
    if not prefix and np.array_equal(begins[1:], ends[:-1]):
        together: bytes | memoryview = data[begins[0] : ends[-1]]
        starts = begins - begins[0]
    else:
        found = [
            _without_prefix(data[begin:end].tobytes(), prefix)
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        together = b"".join(found)
        starts = np.cumsum([0, *map(len, found[:-1])])
    octets = np.frombuffer(together, np.uint8)
    if not _all_begin_with_a_name(octets, starts) and np.any(_ends_within_a_text(octets, starts)):
        raise ValueError("a text that its value does not close")
    return together


def _all_begin_with_a_name(octets: NDArray[np.uint8], starts: NDArray[np.int64]) -> bool:
    """starts (n,): of values of two octets at least; so the last of them may end with the second."""
    firsts = octets[np.minimum(starts + 2, len(octets) - 1)]
    return bool(np.all(octets[starts + 1] == _QUOTE) and np.all(_IN_NAMES[firsts]))


def _without_prefix(value: bytes, prefix: bytes) -> bytes:
    """Compared as bytes: a memoryview compares octet by octet."""
    if not prefix:
        return value
    if not value.startswith(prefix) or value[len(prefix)] != ord("{") or value[-2] != ord("}"):
        raise ValueError("another beginning, or more than one object behind it")
    return value[len(prefix) : -1]


def _ends_within_a_text(octets: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of each value, whether it has an odd number of quotes, escaped ones not counted. The last octet of each is a
    brace, so nothing is escaped across values.

    starts (n,): where they begin, n > 0, each with some octets.
    """
    is_quote, is_backslash = octets == _QUOTE, octets == _BACKSLASH
    if is_backslash.any():
        if (is_backslash[1:] & is_backslash[:-1]).any():
            is_quote[_escaped(is_backslash)] = False
        else:
            is_quote[1:] &= ~is_backslash[:-1]
    is_odd: NDArray[np.bool_] = np.bitwise_xor.reduceat(is_quote.view(np.uint8), starts) != 0
    return is_odd


def _escaped(is_backslash: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which octets a backslash escapes: those behind runs of an odd number of them."""
    places = np.flatnonzero(is_backslash)
    is_first = np.append(True, np.diff(places) > 1)
    is_last = np.append(is_first[1:], True)
    lengths = np.diff(np.append(np.flatnonzero(is_first), len(places)))
    behind: NDArray[np.int64] = places[is_last][lengths % 2 == 1] + 1
    return behind


def layout(values: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """(n + 1 positions, data) of a binary array: value i is at positions i to i + 1."""
    wide = pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    positions = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    return positions.astype(np.int64), memoryview(data if data is not None else b"")
