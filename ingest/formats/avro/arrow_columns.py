"""Converts whole columns of Avro types to columns of a table, with the same results as the value decoders.

The rules of the types are in `tidelake.ingest.formats.values`. If a column has a value that its converter would read
differently from the value decoder, the converter refuses it, and the column is decoded value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.avro.value_reader import values_as_json
from tidelake.ingest.formats.connect_schema import UNDECLARED, ConnectorSettings, SourceType, completed
from tidelake.ingest.formats.record_schema import RecordColumn
from tidelake.ingest.formats.values.conversion import ArrowConverter, Flags, without
from tidelake.ingest.formats.values.dispatch import arrow_converter_for
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders, Placeholders
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn
from tidelake.storage.model.types import ArrayType, DataType, arrow_type

CONVERSION_ERRORS: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)
"""The errors with which a converter refuses a column."""

ColumnConverter: TypeAlias = Callable[[DecodedColumn], tuple[pa.Array, Flags | None]]


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
        convert = arrow_converter_for(inner, element, target.element, NoPlaceholders(), rounds=context.rounds)
        if convert is not None:
            fast = _list_converter(target, convert, context.placeholders)
    else:
        convert = arrow_converter_for(
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


def _converted(convert: ArrowConverter, decoded: DecodedColumn) -> tuple[pa.Array, Flags | None]:
    return convert(decoded.to_arrow())


def _list_converter(
    target: ArrayType, convert: ArrowConverter, placeholders: Placeholders
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
