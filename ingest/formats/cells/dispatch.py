"""Which cell reads a column: by what the values mean at the source, then by the column's type."""

from __future__ import annotations

from dataclasses import replace

from ingest.formats.cells.binaries import binary_cell
from ingest.formats.cells.decimals import decimal_cell
from ingest.formats.cells.json_text import Cell
from ingest.formats.cells.nested import array_cell, map_cell, row_cell, vector_cell
from ingest.formats.cells.numbers import boolean_cell, floating_cell, integer_cell
from ingest.formats.cells.temporals import date_cell, time_cell, timestamp_cell
from ingest.formats.cells.texts import text_cell
from ingest.formats.connect_schema import UNDECLARED, ConnectorSettings, SourceType, completed
from storage.errors import UnsupportedFeature
from storage.types import ArrayType, AtomicType, DataType, MapType, Root, RowType, VectorType


def cell_for(
    source: SourceType, target: DataType, connector: str, settings: ConnectorSettings, *, rounds: bool = False
) -> Cell:
    """The cell for values of `source` in a column of type `target`. Raises UnsupportedFeature for MULTISET, VARIANT.

    rounds: digits that the type lacks are rounded off or cut; else it raises TooNarrow.
    """

    def inner(inner_source: SourceType | None, inner_target: DataType) -> Cell:
        return cell_for(inner_source or UNDECLARED, inner_target, connector, settings, rounds=rounds)

    source = completed(source, target, connector, settings)
    match target:
        case AtomicType():
            return _atomic_cell(source, target, rounds)
        case ArrayType():
            return array_cell(target, inner(source.element, target.element))
        case VectorType():
            return vector_cell(target, inner(source.element, target.element))
        case MapType():
            return map_cell(target, inner(source.key, target.key), inner(source.value, target.value))
        case RowType():
            # The connector's binary mode is for columns; inside its structs (geometries) bytes are always base64.
            settings = replace(settings, binary_handling_mode="base64")
            return row_cell(target, {f.name: inner(source.fields.get(f.name), f.type) for f in target.fields})
        case _:
            raise _unsupported(target)


def _atomic_cell(source: SourceType, target: AtomicType, rounds: bool) -> Cell:
    match target.root:
        case Root.BOOLEAN:
            return boolean_cell()
        case Root.TINYINT | Root.SMALLINT | Root.INT | Root.BIGINT:
            return integer_cell(source, target)
        case Root.FLOAT | Root.DOUBLE:
            return floating_cell(source, target, rounds)
        case Root.CHAR | Root.VARCHAR:
            return text_cell(source, target)
        case Root.BINARY | Root.VARBINARY | Root.BLOB:
            return binary_cell(source, target)
        case Root.DECIMAL:
            return decimal_cell(source, target, rounds)
        case Root.DATE:
            return date_cell(source, target)
        case Root.TIME:
            return time_cell(source, target, rounds)
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            return timestamp_cell(source, target, rounds)
        case _:
            raise _unsupported(target)


def _unsupported(target: DataType) -> UnsupportedFeature:
    return UnsupportedFeature(str(target.root), "change records can't be decoded into it", "Use STRING for this column")
