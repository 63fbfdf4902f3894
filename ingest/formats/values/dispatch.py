"""Chooses the decoders of a column by the source's type and the column's type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.formats.connect_schema import UNDECLARED, ConnectorSettings, SemanticType, SourceType, completed
from tidelake.ingest.formats.values.binaries import BINARY_RULES
from tidelake.ingest.formats.values.conversion import (
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    TypeRules,
    unflagged_arrow,
    value_by_value,
)
from tidelake.ingest.formats.values.decimals import DECIMAL_RULES
from tidelake.ingest.formats.values.floats import FLOATING_RULES
from tidelake.ingest.formats.values.integers import BOOLEAN_RULES, INTEGER_RULES
from tidelake.ingest.formats.values.json_text import ValueDecoder
from tidelake.ingest.formats.values.nested import (
    array_decoder,
    list_column_decoder,
    map_decoder,
    row_decoder,
    vector_decoder,
)
from tidelake.ingest.formats.values.temporals import DATE_RULES, TIME_RULES, TIMESTAMP_RULES
from tidelake.ingest.formats.values.texts import TEXT_RULES, by_name, label_only, raw_text_column_decoder
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
    VectorType,
    arrow_type,
)

_RULES: Final[Mapping[Root, TypeRules]] = {
    Root.BOOLEAN: BOOLEAN_RULES,
    **dict.fromkeys(INTEGER_ROOTS, INTEGER_RULES),
    **dict.fromkeys((Root.FLOAT, Root.DOUBLE), FLOATING_RULES),
    Root.DECIMAL: DECIMAL_RULES,
    **dict.fromkeys(STRING_ROOTS, TEXT_RULES),
    **dict.fromkeys(BINARY_ROOTS, BINARY_RULES),
    Root.DATE: DATE_RULES,
    Root.TIME: TIME_RULES,
    **dict.fromkeys(TIMESTAMP_ROOTS, TIMESTAMP_RULES),
}


def value_decoder_for(
    source: SourceType, target: DataType, connector: str, settings: ConnectorSettings, *, rounds: bool = False
) -> ValueDecoder:
    """Return the decoder for values of `source` in a column of type `target`.

    rounds: whether digits that the type lacks are rounded off or cut. If not, and always for keys of a MAP, the decoder
        raises TooNarrow for such values.

    Raises UnsupportedFeature for MULTISET and VARIANT.
    """

    def inner(inner_source: SourceType | None, inner_target: DataType, *, rounds: bool = rounds) -> ValueDecoder:
        return value_decoder_for(inner_source or UNDECLARED, inner_target, connector, settings, rounds=rounds)

    if (source.labels or source.flags) and target.root not in INTEGER_ROOTS:
        named = replace(source, labels=(), flags=())
        return by_name(source, value_decoder_for(named, target, connector, settings, rounds=rounds))
    if source.semantic_type is SemanticType.NUMBERED_LABEL:
        plain = SemanticType.SET if target.root is Root.ARRAY else SemanticType.PLAIN
        decode = value_decoder_for(replace(source, semantic_type=plain), target, connector, settings, rounds=rounds)
        return decode if target.root in INTEGER_ROOTS else label_only(decode)
    source = completed(source, target, connector, settings)
    match target:
        case AtomicType() if (rules := _RULES.get(target.root)) is not None:
            return rules.value(Conversion(source, target, rounds))
        case ArrayType():
            is_set = source.semantic_type is SemanticType.SET
            return array_decoder(target, inner(source.element, target.element), is_set=is_set)
        case VectorType():
            return vector_decoder(target, inner(source.element, target.element))
        case MapType():
            key = inner(source.key, target.key, rounds=False)  # rounding could make two keys equal
            return map_decoder(target, key, inner(source.value, target.value))
        case RowType():
            # The connector's binary mode applies to columns. Inside its structs (geometries) bytes are always base64.
            settings = replace(settings, binary_handling_mode="base64")
            return row_decoder(target, {f.name: inner(source.fields.get(f.name), f.type) for f in target.fields})
        case _:
            raise _unsupported(target)


def _unsupported(target: DataType) -> UnsupportedFeature:
    return UnsupportedFeature(str(target.root), "change records can't be decoded into it", "Use STRING for this column")


def column_decoder_for(
    source: SourceType, target: DataType, placeholders: Placeholders, *, rounds: bool = False
) -> ColumnDecoder | None:
    """Return the column decoder for values of `source` in a column of type `target`; None if no short one exists.

    source: the source type after `completed`.
    rounds: as for value decoders. Decimals are never rounded here.
    """
    if isinstance(target, ArrayType):
        return list_column_decoder(source, target, placeholders)
    if not isinstance(target, AtomicType) or (rules := _RULES.get(target.root)) is None:
        return None
    if (source.labels or source.flags) and target.root not in INTEGER_ROOTS:
        return None
    if source.semantic_type is SemanticType.NUMBERED_LABEL:
        return None
    return rules.column(Conversion(source, target, rounds, placeholders))


def any_value_decoder(
    source: SourceType, decode: ValueDecoder, target: DataType, placeholders: Placeholders
) -> ColumnDecoder:
    """Return a column decoder that reads all values that `decode` reads. It exists for any column.

    source: the source type after `completed`.
    decode: the value decoder of `source` in `target`.
    """
    decode_each = value_by_value(decode, target, placeholders)
    if not isinstance(target, AtomicType) or target.root not in STRING_ROOTS:
        return decode_each
    if source.semantic_type is not SemanticType.PLAIN or source.labels or source.flags:
        return decode_each
    return raw_text_column_decoder(Conversion(source, target, placeholders=placeholders), decode_each)


def arrow_converter_for(
    kind: str, source: SourceType, target: DataType, placeholders: Placeholders, *, rounds: bool
) -> ArrowConverter | None:
    """Return the converter of an Arrow column; None if its values must be decoded one by one.

    kind: the kind of the Avro type.
    source: the source type after `completed`.
    """
    if not isinstance(target, AtomicType) or source.labels or source.flags:
        return None
    if kind == "null":
        return unflagged_arrow(lambda column: pa.nulls(len(column), arrow_type(target)))
    rules = _RULES.get(target.root)
    return None if rules is None else rules.arrow(Conversion(source, target, rounds, placeholders), kind)
