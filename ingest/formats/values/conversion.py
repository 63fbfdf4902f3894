"""The conversion of a source's values to a column's type: what its rules depend on, and the decoders that they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.values.json_text import ValueDecoder
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders, Placeholders
from tidelake.storage.model.types import AtomicType, DataType, arrow_type


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of a source's values to a column's type.

    source: the source type after `completed`.
    target: the column's type.
    rounds: whether digits that the column's type lacks are rounded off or cut.
    placeholders: the placeholders of values that did not change. Decoders of one value get no placeholders.
    """

    source: SourceType
    target: AtomicType
    rounds: bool = False
    placeholders: Placeholders = field(default_factory=NoPlaceholders)


Flags: TypeAlias = NDArray[np.bool_]
"""True where a value is a placeholder. The value in the array is null there."""


INTEGER_KINDS: Final = ("int", "long")
"""Avro's integer types."""

float_hook: Final = str.encode
"""For msgspec's decoder: turns a number's text into bytes. No other JSON value becomes bytes, so numbers stay distinct.

Decimal is not used: it takes four times as long, and pyarrow 26 makes wrong numbers of Decimals with some 39 digits or
more.
"""


@dataclass(frozen=True, slots=True)
class ColumnDecoder:
    """A decoder of whole columns of JSON values.

    It refuses (raises ValueError, TypeError or OverflowError) each value that it would read differently from the value
    decoder. Its caller then decodes value by value. So column decoders are short.

    json_type: the type into which msgspec decodes one value. A value that is null or missing is None. Under `Any`,
        a number with a fraction or an exponent is the result of `float_hook`.
    to_arrow: converts n such values to an array and its flags. The flags are None if no value is a placeholder.
    """

    json_type: Any
    to_arrow: Callable[[Sequence[Any]], tuple[pa.Array, Flags | None]]


ArrowConverter: TypeAlias = Callable[[pa.Array], tuple[pa.Array, Flags | None]]
"""Converts a column of an Avro type to one of the table's type and flags of placeholders; None if it has none.

It refuses (raises ValueError, TypeError, OverflowError or ArrowException) a column with a value that it would read
differently from the value decoder.
"""


@dataclass(frozen=True, slots=True)
class TypeRules:
    """The rules for a family of column types, for one value and for many. All accept a `Conversion`.

    value: for one JSON value. It defines which values are valid, and what they mean.
    column: for a column of JSON values; None if there is no faster way than value by value.
    arrow: for an Arrow column of an Avro type (its second argument: `int`, `bytes`, …); None as above.
    """

    value: Callable[[Conversion], ValueDecoder]
    column: Callable[[Conversion], ColumnDecoder | None]
    arrow: Callable[[Conversion, str], ArrowConverter | None]


def unflagged(json_type: Any, to_array: Callable[[Sequence[Any]], pa.Array]) -> ColumnDecoder:
    """Return a decoder for a type whose values are never placeholders. It refuses a column with a placeholder."""
    return ColumnDecoder(json_type, lambda values: (to_array(values), None))


def unflagged_arrow(convert: Callable[[pa.Array], pa.Array]) -> ArrowConverter:
    """Return a converter for a type whose values are never placeholders."""
    return lambda column: (convert(column), None)


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


def first_of(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def without(column: pa.Array, flags: Flags) -> pa.Array:
    return pc.if_else(pa.array(~flags), column, pa.scalar(None, column.type))
