"""Decodes Avro records that are rows. Each row is inserted, or replaces the row with its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from tidelake.ingest.formats.avro.avro_schema import NULL, AvroType, connect_schema
from tidelake.ingest.formats.avro.change_records import ChangeSchema
from tidelake.ingest.formats.avro.column_images import Changes
from tidelake.ingest.formats.avro.column_reader import ColumnReader
from tidelake.ingest.formats.avro.decoded_columns import DecodedColumn
from tidelake.ingest.formats.avro.framing import ConfluentFraming
from tidelake.ingest.formats.avro.schema_cache import SchemaCache
from tidelake.ingest.formats.avro.value_reader import object_of
from tidelake.ingest.formats.base import TargetOf
from tidelake.ingest.formats.connect_schema import source_type
from tidelake.ingest.formats.debezium.decoder import InexactValues
from tidelake.ingest.formats.debezium_avro.decoder import DebeziumAvroDecoder
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders

_NOTHING: Final = AvroType(NULL)


class Rows:
    """The structure of records that are rows (see `ChangeRecords`).

    Each is handled like a Debezium record with op `c`. Only the topic names the source table.
    """

    ARE_KEYED: ClassVar = False

    def schema_of(self, type_: AvroType) -> ChangeSchema:
        return row_schema(type_)

    def changes(
        self, rows: NDArray[np.int64], schema: ChangeSchema, columns: Mapping[str, DecodedColumn]
    ) -> tuple[Changes, list[DecodedColumn | None]]:
        none = np.empty(0, np.int64)
        octets = next(iter(columns.values())).octets if columns else np.empty(0, np.uint8)
        before = DecodedColumn(_NOTHING, octets, np.zeros(len(rows), np.bool_), none, none)
        all_rows, places = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.int64)
        after = DecodedColumn(schema.image, octets, all_rows, places, places, None, columns)
        return Changes(rows, np.full(len(rows), ord("c"), np.uint8), before, after), []

    def payload(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {"op": b'"c"', "after": object_of(members)}


def row_decoder(
    target_of: TargetOf, schemas: SchemaCache, framing: ConfluentFraming, inexact_values: InexactValues
) -> DebeziumAvroDecoder:
    return DebeziumAvroDecoder(
        target_of,
        schemas,
        inexact_values=inexact_values,
        framing=framing,
        records=Rows(),
        placeholders=NoPlaceholders(),
    )


def row_schema(type_: AvroType) -> ChangeSchema:
    """Return the schema of records that are rows."""
    columns = {f.field: source_type(f) for f in connect_schema(type_).fields if f.field is not None}
    return ChangeSchema(type_, type_, columns, ColumnReader(type_, type_.fields) if type_.fields else None)
