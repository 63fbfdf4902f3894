"""Finds the row images in a writer's schema of Debezium's envelope, with their column types and a reader."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelake.ingest.formats.avro.change_records import ChangeSchema
from tidelake.ingest.formats.avro.writer_schema import connect_schema
from tidelake.ingest.formats.connect_schema import ConnectSchema, SemanticType, SourceType, source_type
from tidelake.ingest.formats.types.mysql_types import mysql_source_type
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.column_reader import ColumnReader, Wanted
from tidelake.storage.model.types import BOOLEAN

SOURCE_NAMES: Final = ("db", "schema", "table", "connector")
_IMAGES: Final = ("before", "after")
_TYPE: Final = "__debezium.source.column.type"
# Names of `Source` records whose connectors don't send MySQL's type names.
_OTHER_CONNECTORS: Final = ("postgresql", "oracle", "sqlserver", "db2", "informix", "vitess", "spanner", "cockroach")


def envelope_schema(type_: AvroType) -> ChangeSchema:
    """Return the change schema of a record type. It has no columns if the record has no row images."""
    images = {name: type_.fields[name].without_null for name in _IMAGES if name in type_.fields}
    image = images.get("after") or images.get("before")
    if image is None or image.kind != "record":
        return ChangeSchema(type_, type_, {}, None)
    has_mysql_types = not any(name in _source_name(type_) for name in _OTHER_CONNECTORS)
    columns = {f.field: _column(f, has_mysql_types) for f in connect_schema(image).fields if f.field is not None}
    is_change = "op" in type_.fields and all(found.kind == "record" for found in images.values())
    wanted: dict[str, Wanted] = {name: {inner: {} for inner in found.fields} for name, found in images.items()}
    wanted |= {"op": {}, "source": {inner: {} for inner in SOURCE_NAMES}}
    reader = ColumnReader(type_, wanted) if is_change and len(images) == len(_IMAGES) else None
    return ChangeSchema(type_, image, columns, reader)


def _source_name(type_: AvroType) -> str:
    source = type_.fields.get("source")
    properties = {} if source is None else source.without_null.properties
    return f"{properties.get('name', '')} {properties.get('connect.name', '')}"


def _column(schema: ConnectSchema, has_mysql_types: bool) -> SourceType:
    """Return a column's source type.

    If Connect's type is less precise than the column's MySQL type (column.propagate.source.type), such as a text for a
    DECIMAL, the MySQL type is used. TINYINT(1) does not become BOOLEAN, as its values need not be true or false.
    """
    source = source_type(schema)
    parameters = schema.parameters or {}
    is_mysql = has_mysql_types and _TYPE in parameters
    if not is_mysql or source.semantic_type is not SemanticType.PLAIN or source.name:
        return source
    length, scale = parameters.get(f"{_TYPE[:-4]}length", ""), parameters.get(f"{_TYPE[:-4]}scale", "")
    size = f"({','.join(filter(None, (length, scale)))})" if length else ""
    name, _, rest = parameters[_TYPE].partition(" ")
    column_type = mysql_source_type(f"{name}{size} {rest}".strip()).column_type
    if source.connect == "string" and column_type is not None:
        return replace(source, column_type=column_type)
    is_boolean = column_type == BOOLEAN and source.connect != "boolean"
    return source if is_boolean else replace(source, column_type=column_type)
