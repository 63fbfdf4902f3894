"""Concatenates JSON objects of an Arrow array, for a parser that reads consecutive objects from one block of bytes.

The values of an Arrow array are adjacent in memory, and such a parser needs no separator. Two conditions are checked:
each value begins with { and ends with }, and no string continues from one value into the next. Then a value can't merge
with the next one, because outside of strings `}{` never occurs within one object. So if the parser finds as many
objects as there are values, each value is exactly one object.

The second condition is cheap to check if each value begins with {, a quote and a letter, as with a member's name. If a
string of the previous value were still open, that quote would close it, and no letter may follow a closing quote. The
parser would refuse this. For other values the quotes are counted.
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
    """Yield `rows` in runs of at most `rows_max` rows and `bytes_max` bytes. A single larger row is a run by itself.

    Runs that only `rows_max` limits have equal lengths: the fixed cost of a short run equals that of hundreds of rows.
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
    """Return the concatenated values of these rows. Copies nothing if the rows are adjacent and the prefix is empty.

    Without a prefix, no Python object is made for a value: Arrow moves rows that aren't adjacent together.

    values: binary, without nulls in `rows`.
    prefix: if not empty, each value must begin with it. The prefix and the value's last brace are removed.

    Raises ValueError if a value is not enclosed in braces, ends within a string, or does not begin with the prefix.
    """
    if not prefix and not np.all(np.diff(rows) == 1):
        values, rows = values.take(pa.array(rows)), np.arange(len(rows))
    positions, data = layout(values)
    begins, ends = positions[rows], positions[rows + 1]
    octets = np.frombuffer(data, np.uint8)
    if np.any(begins >= ends) or np.any(octets[begins] != ord("{")) or np.any(octets[ends - 1] != ord("}")):
        raise ValueError("not one JSON object each, without blanks around it")
    if not prefix:
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
    if not _all_begin_with_member_name(octets, starts) and np.any(_ends_inside_string(octets, starts)):
        raise ValueError("a text that its value does not close")
    return together


def _all_begin_with_member_name(octets: NDArray[np.uint8], starts: NDArray[np.int64]) -> bool:
    """Return whether each value begins with {, a quote and a character of a name.

    starts (n,): where the values begin. Each has at least two octets, so the last one may end before its third octet.
    """
    firsts = octets[np.minimum(starts + 2, len(octets) - 1)]
    return bool(np.all(octets[starts + 1] == _QUOTE) and np.all(_IN_NAMES[firsts]))


def _without_prefix(value: bytes, prefix: bytes) -> bytes:
    """Return the value without the prefix and the last brace. It is bytes, as a memoryview compares octet by octet."""
    if not value.startswith(prefix) or value[len(prefix)] != ord("{") or value[-2] != ord("}"):
        raise ValueError("another beginning, or more than one object behind it")
    return value[len(prefix) : -1]


def _ends_inside_string(octets: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each value whether it has an odd number of quotes, without escaped ones.

    The last octet of each value is a brace, so a backslash never escapes an octet of the next value.

    starts (n,): where the values begin; n > 0, and no value is empty.
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
    """Return the positions of octets that a backslash escapes: those after an odd number of backslashes."""
    places = np.flatnonzero(is_backslash)
    is_first = np.append(True, np.diff(places) > 1)
    is_last = np.append(is_first[1:], True)
    lengths = np.diff(np.append(np.flatnonzero(is_first), len(places)))
    behind: NDArray[np.int64] = places[is_last][lengths % 2 == 1] + 1
    return behind


def layout(values: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """Return (n + 1 positions, data) of a binary array. Value i is `data[positions[i]:positions[i + 1]]`."""
    wide = pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    positions = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    return positions.astype(np.int64), memoryview(data if data is not None else b"")
