"""Derives the columns and the primary key of a new table from one record of its source table.

If the record has a schema, the column types follow Connect's types and Debezium's logical types. Without a schema all
columns are STRING, as in Paimon's own ingestion: the numbers in one record don't show the type of later ones.

Source: Paimon `cdc/format/debezium/DebeziumSchemaUtils.java`. It supports fewer of these types, and loses precision in
some cases (doubles become FLOAT, a decimal of unknown precision loses its scale). Here no precision is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import InferredTable
from tidelake.ingest.formats.connect_schema import SourceType, parse_connect_schema, source_type
from tidelake.ingest.formats.debezium.cells import has_cells, value_type
from tidelake.ingest.formats.debezium.debezium_envelope import (
    check_connector,
    image_schema,
    read_envelope,
    split_schema,
    unwrapped,
)
from tidelake.ingest.formats.debezium.record_key import key_members
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.types import (
    DataField,
    not_null,
)


def infer_table(batch: RawBatch, row: int) -> InferredTable:
    """Return the table that the record describes. Raises TableNotInferred for a record without a row image."""
    try:
        return inferred_table(_columns(batch.values[row].as_py() or b""), batch.keys[row].as_py())
    except BadValue as e:
        raise TableNotInferred.for_record(batch, row, str(e)) from None


def inferred_table(columns: Mapping[str, SourceType], key: bytes | None) -> InferredTable:
    """Return a table with these columns.

    columns: column name to its source type.
    key: the record's key in JSON; its columns become the primary key.
    """
    key_error, primary_key, outside = "", tuple[str, ...](), dict[str, SourceType]()
    if key is not None and unwrapped(key).strip() != b"null":
        try:
            names = key_members(key)
            primary_key = tuple(name for name in names if name in columns)
            outside = {name: _key_types(key).get(name, SourceType("string")) for name in names if name not in columns}
        except BadValue as error:
            key_error = str(error)
    fields = []
    for number, (name, source) in enumerate(columns.items()):
        column_type = inferred_type(source)
        nullability = not_null(column_type) if name in primary_key else column_type
        fields.append(DataField(number, name, nullability, source.doc))
    return InferredTable(tuple(fields), primary_key, columns, key_error, outside)


def _key_types(key: bytes) -> Mapping[str, SourceType]:
    """Return the types that the schema of a key declares; empty if it has none."""
    try:
        schema, _ = split_schema(key)
        fields = () if schema is None else parse_connect_schema(schema).fields
    except (BadValue, BadInput):
        return {}
    return {f.field: source_type(f) for f in fields if f.field is not None}


def _columns(value: bytes) -> Mapping[str, SourceType]:
    schema, payload = split_schema(value)
    envelope = read_envelope(payload)
    check_connector(envelope)
    if schema is not None:
        typed = value_type if has_cells(envelope.source.connector) else lambda source: source
        return {f.field: typed(source_type(f)) for f in image_schema(schema).fields if f.field is not None}
    for image in (envelope.after, envelope.before):
        if bytes(image) != b"null":
            return dict.fromkeys(read_object(image), SourceType("string"))
    raise BadValue("it has no row image")
