"""Chooses the value decoder of a column by the source's type and the column's type."""

from __future__ import annotations

from dataclasses import replace

from tidelake.ingest.formats.connect_schema import UNDECLARED, ConnectorSettings, SourceType, completed
from tidelake.ingest.formats.values.binaries import binary_decoder
from tidelake.ingest.formats.values.decimals import decimal_decoder
from tidelake.ingest.formats.values.json_text import ValueDecoder
from tidelake.ingest.formats.values.nested import array_decoder, map_decoder, row_decoder, vector_decoder
from tidelake.ingest.formats.values.numbers import boolean_decoder, by_name, floating_decoder, integer_decoder
from tidelake.ingest.formats.values.temporals import date_decoder, time_decoder, timestamp_decoder
from tidelake.ingest.formats.values.texts import text_decoder
from tidelake.storage.base.errors import UnsupportedFeature
from tidelake.storage.model.types import (
    INTEGER_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
    VectorType,
)


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
    source = completed(source, target, connector, settings)
    match target:
        case AtomicType():
            return _atomic_decoder(source, target, rounds)
        case ArrayType():
            return array_decoder(target, inner(source.element, target.element))
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


def _atomic_decoder(source: SourceType, target: AtomicType, rounds: bool) -> ValueDecoder:
    match target.root:
        case Root.BOOLEAN:
            return boolean_decoder()
        case Root.TINYINT | Root.SMALLINT | Root.INT | Root.BIGINT:
            return integer_decoder(source, target)
        case Root.FLOAT | Root.DOUBLE:
            return floating_decoder(source, target, rounds)
        case Root.CHAR | Root.VARCHAR:
            return text_decoder(source, target)
        case Root.BINARY | Root.VARBINARY | Root.BLOB:
            return binary_decoder(source, target)
        case Root.DECIMAL:
            return decimal_decoder(source, target, rounds)
        case Root.DATE:
            return date_decoder(source, target)
        case Root.TIME:
            return time_decoder(source, target, rounds)
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            return timestamp_decoder(source, target, rounds)
        case _:
            raise _unsupported(target)


def _unsupported(target: DataType) -> UnsupportedFeature:
    return UnsupportedFeature(str(target.root), "change records can't be decoded into it", "Use STRING for this column")
