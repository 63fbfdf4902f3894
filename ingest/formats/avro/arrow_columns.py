"""Converts whole columns of Avro types to columns of a table, with the same results as the value decoders.

A converter must refuse (raise one of CONVERSION_ERRORS) a column with a value that it would read differently from the
value decoder. Its caller then decodes value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.formats.avro.value_reader import values_as_json
from tidelake.ingest.formats.connect_schema import (
    DOUBLE_WORDS,
    FLOAT_WORDS,
    PER_SECOND,
    UNDECLARED,
    ConnectorSettings,
    SemanticType,
    SourceType,
    completed,
)
from tidelake.ingest.formats.record_schema import RecordColumn
from tidelake.ingest.formats.values.column_decoders import Flags, rescaled, without
from tidelake.ingest.formats.values.decimal_columns import cast_via_decimal256, decimals_of_texts
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders, Placeholders
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn
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

Converter: TypeAlias = Callable[[pa.Array], tuple[pa.Array, Flags | None]]
"""Converts a column of an Avro type to one of the table's type and flags of placeholders; None if it has none."""

CONVERSION_ERRORS: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)
"""The errors with which a converter refuses a column."""

ColumnConverter: TypeAlias = Callable[[DecodedColumn], tuple[pa.Array, Flags | None]]

_PLAIN_NUMBERS: Final = frozenset({SemanticType.PLAIN, SemanticType.DATE, SemanticType.TIME, SemanticType.TIMESTAMP})
_UNSCALED_BYTES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class ConversionContext:
    """The properties of the records and the table's column on which a conversion depends.

    connector: the connector that sent the records.
    settings: the connector's settings.
    placeholders: the placeholders of values that did not change.
    rounds: whether digits that the column's type lacks are rounded off or cut.
    """

    connector: str
    settings: ConnectorSettings
    placeholders: Placeholders
    rounds: bool

    def completed(self, source: SourceType, target: DataType) -> SourceType:
        return completed(source, target, self.connector, self.settings)


def converter_for(
    kind: str, source: SourceType, target: DataType, placeholders: Placeholders, *, rounds: bool
) -> Converter | None:
    """Return the converter of a column; None if its values must be decoded one by one.

    kind: the kind of the Avro type.
    source: the source type after `completed`.
    """
    if not isinstance(target, AtomicType) or source.labels or source.flags:
        return None
    root, semantic_type = target.root, source.semantic_type
    match kind:
        case "null":
            return _unflagged(lambda column: pa.nulls(len(column), arrow_type(target)))
        case "boolean" if root is Root.BOOLEAN:
            return _unflagged(lambda column: column)
        case "int" | "long":
            return _integer_converter(source, target, rounds)
        case "float" if root is Root.FLOAT and source.connect in FLOAT_WORDS:
            return _unflagged(lambda column: column)
        case "double" if root is Root.DOUBLE and source.connect in DOUBLE_WORDS:
            return _unflagged(lambda column: column)
        case "string" if root in STRING_ROOTS and semantic_type is SemanticType.PLAIN:
            return lambda column: _texts(column, target, placeholders)
        case "string" if root is Root.DECIMAL and semantic_type is SemanticType.PLAIN:
            # Connectors send decimals this way with `decimal.handling.mode=string`.
            return _unflagged(lambda column: decimals_of_texts(column, arrow_type(target)))
        case "string" if root in TIMESTAMP_ROOTS and semantic_type is SemanticType.TIMESTAMP:
            return _unflagged(_instant_converter(target))
        case "bytes" | "fixed" if root in BINARY_ROOTS and semantic_type is SemanticType.BASE64:
            return lambda column: _octets(column, target, placeholders)
        case "bytes" | "fixed" if root is Root.DECIMAL and semantic_type is SemanticType.DECIMAL:
            return _unflagged(lambda column: _decimals(column, source.scale, target))
        case _:
            return None


def column_converter_for(
    type_: AvroType, source: SourceType, column: RecordColumn, context: ConversionContext
) -> ColumnConverter:
    """Return the fastest converter of a column. If it refuses a column, that column is decoded value by value.

    type_: the Avro type, without null.
    source: the type that the records or the configuration declare for the column.
    """
    fast: ColumnConverter | None = None
    target = column.type
    if type_.kind == "array" and type_.items is not None and isinstance(target, ArrayType):
        element = context.completed(source.element or UNDECLARED, target.element)
        inner = type_.items.without_null.kind
        convert = converter_for(inner, element, target.element, NoPlaceholders(), rounds=context.rounds)
        if convert is not None:
            fast = list_converter_for(target, convert, context.placeholders)
    else:
        convert = converter_for(
            type_.kind, context.completed(source, target), target, context.placeholders, rounds=context.rounds
        )
        if convert is not None:
            fast = partial(_converted, convert)

    def to_arrow(decoded: DecodedColumn) -> tuple[pa.Array, Flags | None]:
        if fast is not None:
            with suppress(*CONVERSION_ERRORS):
                return fast(decoded)
        return column.by_value.to_arrow(values_as_json(decoded))

    return to_arrow


def _converted(convert: Converter, decoded: DecodedColumn) -> tuple[pa.Array, Flags | None]:
    return convert(decoded.to_arrow())


def list_converter_for(
    target: ArrayType, convert: Converter, placeholders: Placeholders
) -> Callable[[DecodedColumn], tuple[pa.Array, Flags | None]]:
    """Return a converter of arrays. convert: the converter of their elements."""

    def to_arrow(decoded: DecodedColumn) -> tuple[pa.Array, Flags | None]:
        assert decoded.items is not None
        assert decoded.values is not None
        flags = placeholders.in_arrays(decoded.items.to_arrow(), decoded.values)
        elements, _ = convert(decoded.items.to_arrow())
        if elements.null_count and not target.element.nullable:
            raise BadValue("null elements")
        lists = decoded.lists_of(elements, arrow_type(target))
        if flags is None:
            return lists, None
        row_flags = np.zeros(len(decoded), np.bool_)
        row_flags[decoded.valid] = flags
        return without(lists, row_flags), row_flags

    return to_arrow


def _unflagged(convert: Callable[[pa.Array], pa.Array]) -> Converter:
    return lambda column: (convert(column), None)


def _integer_converter(source: SourceType, target: AtomicType, rounds: bool) -> Converter | None:
    root, semantic_type, in_memory = target.root, source.semantic_type, arrow_type(target)
    if root in INTEGER_ROOTS and semantic_type in _PLAIN_NUMBERS:
        return _unflagged(lambda column: column.cast(in_memory))
    if root is Root.DATE and semantic_type is SemanticType.DATE:
        return _unflagged(lambda column: column.cast(pa.int32()).view(pa.date32()))
    if root in TIMESTAMP_ROOTS and semantic_type is SemanticType.TIMESTAMP:
        unit = timestamp_unit(target.precision)
        return _unflagged(lambda column: rescaled(column, source.per_second, PER_SECOND[unit], rounds).view(in_memory))
    if root is Root.TIME and semantic_type is SemanticType.TIME:
        return _unflagged(lambda column: _times(column, source.per_second, rounds))
    if root is Root.DECIMAL and semantic_type is SemanticType.UNSIGNED and target.scale == 0:
        return _unflagged(lambda column: column.view(pa.uint64()).cast(pa.decimal128(20, 0)).cast(in_memory))
    return None


def _times(counts: pa.Array, per_second: int, rounds: bool) -> pa.Array:
    bounds = pc.min_max(counts)
    if (bounds["min"].as_py() or 0) < 0 or (bounds["max"].as_py() or 0) >= 86_400 * per_second:
        raise BadValue("a time outside one day")
    return rescaled(counts, per_second, PER_SECOND["ms"], rounds).cast(pa.int32()).view(pa.time32("ms"))


def _texts(texts: pa.Array, target: AtomicType, placeholders: Placeholders) -> tuple[pa.Array, Flags | None]:
    flags = placeholders.in_texts(texts)
    if flags is not None:
        texts = without(texts, flags)
    if target.length != MAX_LENGTH and (pc.max(pc.utf8_length(texts)).as_py() or 0) > target.length:
        raise BadValue(f"text too long for {target}")
    return texts, flags


def _octets(octets: pa.Array, target: AtomicType, placeholders: Placeholders) -> tuple[pa.Array, Flags | None]:
    flags = placeholders.in_octets(octets)
    if flags is not None:
        octets = without(octets, flags)
    if target.root is not Root.BLOB and (pc.max(pc.binary_length(octets)).as_py() or 0) > target.length:
        raise BadValue(f"bytes too long for {target}")
    return octets, flags


def _instant_converter(target: AtomicType) -> Callable[[pa.Array], pa.Array]:
    in_memory, unit = arrow_type(target), timestamp_unit(target.precision)

    def convert(texts: pa.Array) -> pa.Array:
        first = next((text.as_py() for text in texts if text.is_valid), "")
        zone = "UTC" if first.endswith("Z") else None  # Arrow requires that all texts have a zone, or none has
        return texts.cast(pa.timestamp(unit, zone)).view(in_memory)

    return convert


def _decimals(octets: pa.Array, scale: int, target: AtomicType) -> pa.Array:
    """Return decimals whose unscaled values are big-endian two's complement integers. scale: their scale."""
    lengths = pc.fill_null(pc.binary_length(octets), 1).to_numpy()
    if len(octets) and (lengths.min() < 1 or lengths.max() > _UNSCALED_BYTES_MAX):
        raise BadValue("no decimal, or one of more digits than fit")
    if not 0 <= scale <= 38 or target.scale - scale > 38:
        raise BadValue("a scale too far from the column's")
    _, positions, data = octets.buffers()
    ends = np.frombuffer(positions, np.int32)[octets.offset + 1 : octets.offset + len(octets) + 1].astype(np.int64)
    valid = octets.is_valid().to_numpy(zero_copy_only=False)
    given = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    words = np.zeros((len(octets), _UNSCALED_BYTES_MAX), np.uint8)
    for byte in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(valid & (lengths > byte))
        words[rows, byte] = given[ends[rows] - 1 - byte]
    signs = np.zeros(len(octets), np.uint8)
    present = np.flatnonzero(valid)
    signs[present] = np.where(given[ends[present] - lengths[present]] & 0x80, 0xFF, 0)
    words = np.where(np.arange(_UNSCALED_BYTES_MAX) < lengths[:, None], words, signs[:, None])
    buffers: Sequence[Any] = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(words)]
    column = pa.Array.from_buffers(pa.decimal128(38, scale), len(octets), buffers)
    column.validate(full=True)
    return column if column.type == arrow_type(target) else cast_via_decimal256(column, arrow_type(target))
