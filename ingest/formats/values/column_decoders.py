"""Whole columns of decoded JSON values to Arrow: decoders for lists of values with the results of value decoders.

A column decoder must refuse (raise ValueError, TypeError or OverflowError) each value that it would read differently
from the value decoder. Its caller then decodes value by value. So column decoders are short, and the rules for values
are only in the value decoders.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.connect_schema import (
    DOUBLE_WORDS,
    FLOAT_WORDS,
    JSON_VALUE,
    PER_SECOND,
    SemanticType,
    SourceType,
)
from tidelake.ingest.formats.values.decimal_columns import cast_via_decimal256, decimals_of_digits
from tidelake.ingest.formats.values.json_text import BadValue, ValueDecoder
from tidelake.ingest.formats.values.numbers import rounds_twice
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INTEGER_ROOTS,
    MAX_LENGTH,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    Root,
    arrow_type,
    timestamp_unit,
)

Flags: TypeAlias = NDArray[np.bool_]
"""True where a value is a placeholder. The value in the array is null there."""


float_hook: Final = str.encode
"""For msgspec's decoder: turns a number's text into bytes. No other JSON value becomes bytes, so numbers stay distinct.

Decimal is not used: it takes four times as long, and pyarrow 26 makes wrong numbers of Decimals with some 39 digits or
more.
"""


_FLOATING_WORDS: Final = ("", JSON_VALUE.connect, *FLOAT_WORDS, *DOUBLE_WORDS)
_TEXT_WORDS: Final = ("", JSON_VALUE.connect, "string", "bytes")
_SPECIAL_FLOATS: Final = ("NaN", "Infinity", "-Infinity")
_SAFE_DIGITS: Final = 15  # a double keeps numbers of so many digits
_BOOLEANS: Final[Mapping[bool | int | str, bool]] = {True: True, False: False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class ColumnDecoder:
    """A decoder of whole columns.

    json_type: the type into which msgspec decodes one value. A value that is null or missing is None. Under `Any`,
        a number with a fraction or an exponent is the result of `float_hook`.
    to_arrow: converts n such values to an array and its flags. The flags are None if no value is a placeholder.
    """

    json_type: Any
    to_arrow: Callable[[Sequence[Any]], tuple[pa.Array, Flags | None]]


def value_by_value(decode: ValueDecoder, target: DataType, placeholders: Placeholders) -> ColumnDecoder:
    """Return a column decoder that decodes one value at a time, for a column of any type."""
    in_memory = arrow_type(target)

    def to_arrow(values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, Flags | None]:
        raws = [b"null" if value is None else bytes(value) for value in values]
        flags = np.fromiter(map(placeholders.is_placeholder, raws), np.bool_, len(raws))
        decoded = [
            None if flag or raw == b"null" else decode(raw) for raw, flag in zip(raws, flags.tolist(), strict=True)
        ]
        return pa.array(decoded, in_memory), flags if flags.any() else None

    return ColumnDecoder(msgspec.Raw, to_arrow)  # Raw accepts null; msgspec would ignore Raw in a union with None


def column_decoder_for(
    source: SourceType, target: DataType, placeholders: Placeholders, *, rounds: bool = False
) -> ColumnDecoder | None:
    """Return the column decoder for values of `source` in a column of type `target`; None if no short one exists.

    source: the source type after `completed`.
    rounds: as for value decoders. Decimals are never rounded here.
    """
    root, semantic_type = target.root, source.semantic_type
    if isinstance(target, ArrayType):
        return _list_decoder(source, target, placeholders)
    if not isinstance(target, AtomicType):
        return None
    if (source.labels or source.flags) and root not in INTEGER_ROOTS:
        return None
    match semantic_type:
        case SemanticType.PLAIN if root is Root.BOOLEAN:
            return _unflagged(bool | int | str | None, _booleans)
        case SemanticType.PLAIN if root is Root.DOUBLE and source.connect in _FLOATING_WORDS:
            return _unflagged(int | float | str | None, _doubles)
        case SemanticType.PLAIN if root is Root.FLOAT and source.connect in _FLOATING_WORDS:
            is_nearest = rounds or source.connect in FLOAT_WORDS
            return _unflagged(int | float | str | None, _float32s if is_nearest else _same_float32s)
        case SemanticType.PLAIN | SemanticType.BASE64 if root in STRING_ROOTS and source.connect in _TEXT_WORDS:
            return ColumnDecoder(str | None, _text_decoder(target, placeholders))
        case SemanticType.BASE64 | SemanticType.HEX | SemanticType.BITS | SemanticType.LATIN1 if root in BINARY_ROOTS:
            return ColumnDecoder(str | None, _binary_decoder(semantic_type, target, placeholders))
        case SemanticType.PLAIN | SemanticType.DECIMAL if root is Root.DECIMAL:
            return _unflagged(Any, _decimal_decoder(source, target))
        case SemanticType.UNSIGNED if root is Root.DECIMAL and target.scale == 0:
            return _unflagged(int | None, _unsigned_decoder(target))
        case SemanticType.PLAIN if root is Root.DATE and source.connect == JSON_VALUE.connect:
            return _unflagged(str | None, lambda values: pa.array(values, pa.string()).cast(pa.date32()))
        case SemanticType.PLAIN if root in TIMESTAMP_ROOTS and source.connect == JSON_VALUE.connect:
            return _unflagged(str | None, _timestamp_decoder(source, target, rounds))
        case SemanticType.DATE if root is Root.DATE:
            return _unflagged(int | str | None, _dates)
        case SemanticType.TIME if root is Root.TIME:
            return _unflagged(int | None, _time_decoder(source, rounds))
        case SemanticType.TIMESTAMP if root in TIMESTAMP_ROOTS:
            return _unflagged(int | str | None, _timestamp_decoder(source, target, rounds))
        case SemanticType.PLAIN | SemanticType.DATE | SemanticType.TIME | SemanticType.TIMESTAMP if (
            root in INTEGER_ROOTS
        ):
            return _unflagged(int | str | None, _integer_decoder(target))
        case _:
            return None


def _unflagged(json_type: Any, to_array: Callable[[Sequence[Any]], pa.Array]) -> ColumnDecoder:
    """Return a decoder for a type whose values are never placeholders. It refuses a column with a placeholder."""
    return ColumnDecoder(json_type, lambda values: (to_array(values), None))


def _first(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)


# ---------------------------------------------------------------- texts, bytes, lists


def _text_decoder(target: AtomicType, placeholders: Placeholders) -> Callable[..., tuple[pa.Array, Flags | None]]:
    def to_arrow(values: Sequence[str | None]) -> tuple[pa.Array, Flags | None]:
        column = pa.array(values, pa.string())
        flags = placeholders.in_texts(column)
        if flags is not None:
            column = without(column, flags)
        if target.length != MAX_LENGTH and (pc.max(pc.utf8_length(column)).as_py() or 0) > target.length:
            raise BadValue(f"text too long for {target}")
        return column, flags

    return to_arrow


def _binary_decoder(
    semantic_type: SemanticType, target: AtomicType, placeholders: Placeholders
) -> Callable[..., tuple[pa.Array, Flags | None]]:
    read = {SemanticType.HEX: binascii.a2b_hex, SemanticType.LATIN1: _latin1}.get(semantic_type, _strict_base64)

    def to_arrow(values: Sequence[str | None]) -> tuple[pa.Array, Flags | None]:
        flags = placeholders.in_texts(pa.array(values, pa.string()))
        if flags is not None:
            values = [None if flag else value for value, flag in zip(values, flags.tolist(), strict=True)]
        data = [None if value is None else read(value) for value in values]
        if semantic_type is SemanticType.BITS:
            data = [None if value is None else value[::-1] for value in data]
        column = pa.array(data, pa.binary())
        if target.root is not Root.BLOB and (pc.max(pc.binary_length(column)).as_py() or 0) > target.length:
            raise BadValue(f"bytes too long for {target}")
        return column, flags

    return to_arrow


def _latin1(text: str) -> bytes:
    return text.encode("latin-1")


def _strict_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_PLAIN_ELEMENTS: Final = {
    Root.BOOLEAN: (bool, ("", "boolean")),
    **dict.fromkeys(INTEGER_ROOTS, (int, ("", "int8", "int16", "int32", "int64"))),
    Root.VARCHAR: (str, ("", "string")),
}


def _list_decoder(source: SourceType, target: ArrayType, placeholders: Placeholders) -> ColumnDecoder | None:
    """Return a decoder of lists whose elements need no conversion between JSON and Arrow; None for other lists."""
    element = target.element
    plain: tuple[Any, tuple[str, ...]] = _PLAIN_ELEMENTS.get(element.root, (None, ()))
    python_type, declared = plain
    inner = source.element
    if inner is not None and (inner.semantic_type is not SemanticType.PLAIN or inner.connect not in declared):
        return None
    if python_type is None or not element.nullable or getattr(element, "length", 0) not in (0, MAX_LENGTH):
        return None
    in_memory = arrow_type(target)

    def to_arrow(values: Sequence[list[Any] | None]) -> tuple[pa.Array, Flags | None]:
        flags = placeholders.in_lists(values)
        if flags is not None:
            values = [None if flag else value for value, flag in zip(values, flags.tolist(), strict=True)]
        return pa.array(values, in_memory), flags

    json_type: Any = list[python_type | None]  # type: ignore[valid-type]
    return ColumnDecoder(json_type | None, to_arrow)


def without(column: pa.Array, flags: Flags) -> pa.Array:
    return pc.if_else(pa.array(~flags), column, pa.scalar(None, column.type))


# ---------------------------------------------------------------- numbers


def _booleans(values: Sequence[bool | int | str | None]) -> pa.Array:
    """Return an array of booleans. A number or text that is not in `_BOOLEANS` stays as it is, and Arrow refuses it."""
    if set(map(type, values)) <= {bool, type(None)}:
        return pa.array(values, pa.bool_())
    return pa.array([None if value is None else _BOOLEANS.get(value, value) for value in values], pa.bool_())


def _integer_decoder(target: AtomicType) -> Callable[[Sequence[Any]], pa.Array]:
    in_memory = arrow_type(target)

    def to_array(values: Sequence[int | str | None]) -> pa.Array:
        if not isinstance(_first(values), str):
            return pa.array(values, in_memory)
        texts = pa.array(values, pa.string())
        _check_characters(b"-0123456789", texts)  # Arrow's cast would accept 0x1F, too
        return texts.cast(in_memory)

    return to_array


def _check_characters(allowed: bytes, texts: pa.Array) -> None:
    _, positions, data = texts.buffers()
    end = np.frombuffer(positions, np.int32)[len(texts)]
    if end and data.to_pybytes()[:end].translate(None, allowed):
        raise BadValue("texts that are no digits")


def _doubles(values: Sequence[Any]) -> pa.Array:
    """Return an array of doubles from numbers, or from texts of numbers."""
    if set(map(type, values)) <= {str, type(None)}:
        texts = pa.array(values, pa.string())
        if (pc.max(pc.binary_length(texts)).as_py() or 0) <= _SAFE_DIGITS:
            with suppress(ValueError):  # a text with other characters, or one that Arrow can't read
                _check_characters(b"-.0123456789", texts)
                return pc.add(texts.cast(pa.float64()), 0.0)  # the text -0 is an integer, so it must give 0.0
        return pa.array([None if value is None else _float_of_text(value) for value in values], pa.float64())
    return _float64s(values)


def _float64s(values: Sequence[float | str | None]) -> pa.Array:
    """Return an array of doubles. Arrow refuses integers above 2**53, which may have more digits than a double."""
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # texts among them: NaN and the infinities
        return pa.array([_special_float(v) if type(v) is str else v for v in values], pa.float64())


def _float_of_text(text: str) -> float:
    """Return the double of a number's text if the double keeps all digits. Raises BadValue for any other text."""
    if text in _SPECIAL_FLOATS:
        return float(text)
    if not text.isascii() or text.strip("+-.0123456789"):
        raise BadValue(f"text {text!r} is left to the value decoder")
    value = float(text) + 0.0  # the text -0 is an integer, so it must give 0.0
    if len(text) > _SAFE_DIGITS and repr(value) != text:
        raise BadValue(f"text {text!r} is left to the value decoder")
    return value


def _special_float(text: str) -> float:
    if text not in _SPECIAL_FLOATS:
        raise BadValue(f"text {text!r} is left to the value decoder")
    return float(text)


def _same_float32s(values: Sequence[float | str | None]) -> pa.Array:
    """Return an array of floats. Refuses a double that equals neither its float nor the number that it prints."""
    wide = _float64s(values)
    with np.errstate(over="ignore"):
        column = wide.cast(pa.float32(), safe=False)
    back = column.cast(pa.float64())
    differs = pc.and_(pc.not_equal(back, wide), pc.invert(pc.is_nan(wide)))
    if pc.any(differs).as_py():
        number, float_ = wide.filter(differs), column.filter(differs)
        if pc.any(pc.not_equal(float_.cast(pa.string()).cast(pa.float64()), number)).as_py():
            raise BadValue("numbers with more digits than a float keeps")
    return column


def _float32s(values: Sequence[float | str | None]) -> pa.Array:
    wide = _float64s(values)
    doubles: NDArray[np.float64] = wide.fill_null(0).to_numpy()
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    overflowed = np.isinf(floats) & np.isfinite(doubles)
    if overflowed.any() or rounds_twice(doubles).any():
        raise BadValue("values that need their digits to round right, or are out of range")
    # A number with a fraction, such as 16777217.0, may become the nearest float. An integer must keep all its digits.
    inexact = np.flatnonzero((np.abs(doubles) > 2**24) & (floats != doubles))
    if any(type(values[at]) is int for at in inexact.tolist()):
        raise BadValue("integers that are no float")
    return pc.if_else(wide.is_valid(), pa.array(floats), pa.scalar(None, pa.float32()))


def _decimal_decoder(source: SourceType, target: AtomicType) -> Callable[[Sequence[Any]], pa.Array]:
    in_memory = arrow_type(target)

    def to_array(values: Sequence[str | bytes | int | None]) -> pa.Array:
        first = _first(values)
        if (
            source.semantic_type is SemanticType.DECIMAL
            and not isinstance(first, str)
            and str in set(map(type, values))
        ):
            raise BadValue("bytes among numbers")
        if source.semantic_type is not SemanticType.DECIMAL or not isinstance(first, str):
            texts = values if isinstance(first, str) else _with_integer_texts(values)
            return decimals_of_digits(texts, in_memory)
        if set(map(type, values)) - {str, type(None)}:
            raise BadValue("numbers among bytes")
        if target.scale - source.scale > 38:
            raise BadValue("a scale too far from the column's")
        return cast_via_decimal256(_unscaled_decimals(values, source.scale), in_memory)

    return to_array


def _with_integer_texts(values: Sequence[Any]) -> Sequence[Any]:
    if int not in (types := set(map(type, values))):
        return values
    if bool in types:
        raise BadValue("no number")
    return [str(value) if type(value) is int else value for value in values]


def _unsigned_decoder(target: AtomicType) -> Callable[[Sequence[Any]], pa.Array]:
    in_memory = arrow_type(target)
    return lambda values: pa.array([v + 2**64 if v is not None and v < 0 else v for v in values], in_memory)


def _unscaled_decimals(values: Sequence[Any], scale: int) -> pa.Array:
    """Return decimals of base64 texts of big-endian integers. Refuses integers above 38 digits, and empty texts."""
    given = pa.array(values, pa.string())
    if pc.min(pc.binary_length(given)).as_py() == 0:
        raise BadValue("an empty text is no decimal")
    words = (b"" if v is None else _strict_base64(v) for v in values)
    data = b"".join(int.from_bytes(w, "big", signed=True).to_bytes(16, "little", signed=True) for w in words)
    buffers = [given.buffers()[0], pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.decimal128(38, scale), len(values), buffers)
    column.validate(full=True)
    return column


# ---------------------------------------------------------------- dates and times


def _dates(values: Sequence[int | str | None]) -> pa.Array:
    if isinstance(_first(values), str):
        return pa.array(values, pa.string()).cast(pa.date32())
    return pa.array(values, pa.int32()).view(pa.date32())


def _time_decoder(source: SourceType, rounds: bool) -> Callable[[Sequence[Any]], pa.Array]:
    day = 86_400 * source.per_second

    def to_array(values: Sequence[int | None]) -> pa.Array:
        counts = pa.array(values, pa.int64())
        bounds = pc.min_max(counts)
        if (bounds["min"].as_py() or 0) < 0 or (bounds["max"].as_py() or 0) >= day:
            raise BadValue("a time outside one day")
        return rescaled(counts, source.per_second, PER_SECOND["ms"], rounds).cast(pa.int32()).view(pa.time32("ms"))

    return to_array


def _timestamp_decoder(source: SourceType, target: AtomicType, rounds: bool) -> Callable[[Sequence[Any]], pa.Array]:
    in_memory = arrow_type(target)
    unit = timestamp_unit(target.precision)

    def to_array(values: Sequence[int | str | None]) -> pa.Array:
        first = _first(values)
        if first is None:
            return pa.nulls(len(values), in_memory)
        if not isinstance(first, str):
            counts = pa.array(values, pa.int64())
            return rescaled(counts, source.per_second, PER_SECOND[unit], rounds).view(in_memory)
        texts = pa.array(values, pa.string())
        zone = "UTC" if first.endswith("Z") else None  # Arrow requires that all texts have a zone, or none has
        return texts.cast(pa.timestamp(unit, zone)).view(in_memory)

    return to_array


def rescaled(counts: pa.Array, per_second: int, wanted: int, rounds: bool) -> pa.Array:
    """Return counts in another unit.

    per_second: the unit of `counts`.
    wanted: the new unit, per second.
    rounds: whether a count may be rounded down, also before 1970.

    Raises ValueError for a count that would have to be rounded without `rounds`, and for one that exceeds 64 bits.
    """
    if wanted >= per_second:
        return counts if wanted == per_second else pc.multiply_checked(counts, wanted // per_second)
    whole, finer = np.divmod(counts.fill_null(0).to_numpy(), per_second // wanted)
    if finer.any() and not rounds:
        raise BadValue("counts of a finer unit")
    return pc.if_else(counts.is_valid(), pa.array(whole), pa.scalar(None, pa.int64()))
