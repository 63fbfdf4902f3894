"""Truncates the bounds of long values: mode `truncate(n)` of `metadata.stats-mode`.

Source: Java `statistics/TruncateSimpleColStatsCollector.java`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)  # code points that UTF-8 can't encode


def truncate_bounds(minimum: pa.Scalar, maximum: pa.Scalar, length: int) -> tuple[pa.Scalar, pa.Scalar]:
    """Returns bounds of at most `length` characters (code points) or bytes, which include the given bounds.

    Only strings and bytes change. Both bounds are null (unknown) if one is given as null, or if no short upper bound is
    large enough.
    """
    if not (minimum.is_valid and maximum.is_valid):
        return _null(minimum), _null(maximum)
    kind = minimum.type
    lower: str | bytes
    upper: str | bytes | None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lower, upper = minimum.as_py()[:length], _truncate_text_up(maximum.as_py(), length)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        lower, upper = minimum.as_py()[:length], _truncate_bytes_up(maximum.as_py(), length)
    else:
        return minimum, maximum
    if upper is None:
        return _null(minimum), _null(maximum)
    return pa.scalar(lower, kind), pa.scalar(upper, kind)


def _null(value: pa.Scalar) -> pa.Scalar:
    return pa.scalar(None, value.type)


def _truncate_text_up(text: str, length: int) -> str | None:
    """Truncates a text, and increments its last character that can be incremented. None if no character can."""
    if len(text) <= length:
        return text
    for end in range(length, 0, -1):
        successor = ord(text[end - 1]) + 1
        if successor in _SURROGATES:
            successor = _SURROGATES.stop  # Java writes "?" for a lone surrogate, which is not an upper bound
        if successor <= _LAST_CODE_POINT:
            return text[: end - 1] + chr(successor)
    return None


def _truncate_bytes_up(value: bytes, length: int) -> bytes | None:
    if len(value) <= length:
        return value
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
