"""The format `avro`: each record is a row in Avro. It is inserted, or replaces the row with its key.

Records have Confluent's framing, or no frame and a configured schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.avro.change_records import ChangeSchema
from tidelake.ingest.formats.avro.column_images import Changes
from tidelake.ingest.formats.avro.debezium_avro_decoder import DebeziumAvroDecoder
from tidelake.ingest.formats.avro.framing import (
    CONFIGURED,
    VALUE_SCHEMA_HEADER,
    BareRecords,
    ConfluentFraming,
)
from tidelake.ingest.formats.avro.registry_options import REGISTRY_OPTIONS, RegistryOptions, with_underscores
from tidelake.ingest.formats.avro.schema_cache import SchemaCache
from tidelake.ingest.formats.avro.schema_registry import FormatWithRegistry, SchemaRegistry
from tidelake.ingest.formats.avro.value_reader import object_of
from tidelake.ingest.formats.avro.writer_schema import connect_schema, parse_avro_schema
from tidelake.ingest.formats.base import Decoder, InferredTable, TargetOf
from tidelake.ingest.formats.connect_schema import source_type
from tidelake.ingest.formats.debezium.debezium_json_decoder import InexactValues
from tidelake.ingest.formats.debezium.table_inference import inferred_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.avro.avro_type import NULL, AvroType
from tidelake.storage.model.avro.column_reader import ColumnReader, Wanted
from tidelake.storage.model.avro.decoded_columns import DecodedColumn
from tidelake.storage.model.messages import did_you_mean

_NOTHING: Final = AvroType(NULL)


class Rows:
    """The structure of records that are rows (see `ChangeRecords`).

    Each is handled like a Debezium record with op `c`. Only the topic names the source table.
    """

    ARE_KEYED: ClassVar = False

    def schema_of(self, type_: AvroType) -> ChangeSchema:
        """Return the schema of rows of this type. Raises BadValue for Debezium's envelope: it is no row."""
        refuse_envelope(type_)
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


def refuse_envelope(type_: AvroType) -> None:
    """Raise BadValue for a record type that looks like the envelope of `debezium-avro`."""
    if {"op", "source"} <= type_.fields.keys() and {"before", "after"} & type_.fields.keys():
        raise BadValue("not a row: it looks like debezium-avro. Set `format` to the format of the topic")


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
    wanted: Wanted = {name: {} for name in type_.fields}
    return ChangeSchema(type_, type_, columns, ColumnReader(type_, wanted) if wanted else None)


_OPTIONS: Final = ("schema", "schema_file", "inexact_values", *REGISTRY_OPTIONS)


@dataclass(frozen=True)
class PlainAvro(FormatWithRegistry):
    """The format `avro`. See `tidelake.ingest.formats.base.Format`.

    schema: the schema of records without a frame, as JSON; "" if records contain the id of their schema.
    """

    NAME: ClassVar = "avro"
    KEPT_HEADERS: ClassVar = frozenset({VALUE_SCHEMA_HEADER})
    DECODING_BLOCKS: ClassVar = True
    CAPABILITIES: ClassVar = FormatCapabilities()

    registry: RegistryOptions = field(default_factory=RegistryOptions)
    schema: str = ""
    inexact_values: InexactValues = "fail"

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> PlainAvro:
        """Return the format with its options.

        options: `inexact_values`, and those of the schema registry (`REGISTRY_OPTIONS`). For records without a frame,
            `schema` (JSON) or `schema_file` instead of a registry.
        """
        options = with_underscores(options)
        for name in options:
            if name not in _OPTIONS:
                hint = did_you_mean(name, _OPTIONS) or "."
                raise BadInput(
                    f"`format_options`: avro has no option {name!r}{hint} Its options are {', '.join(_OPTIONS)}"
                )
        registry_options = {name: value for name, value in options.items() if name in REGISTRY_OPTIONS}
        inexact_values = options.get("inexact_values", "fail")
        if inexact_values not in ("fail", "round"):
            raise BadInput(f"inexact_values of avro must be fail or round, not {inexact_values!r}")
        registry = RegistryOptions.parsed(cls.NAME, registry_options)
        schema = _configured_schema(options)
        if schema and registry.urls:
            raise BadInput(
                "avro: set schema_registry_url if records refer to their schemas, or schema if all records have the "
                "same one, but not both"
            )
        return cls(registry, schema, inexact_values)

    def decoder(self, target_of: TargetOf) -> Decoder:
        return row_decoder(target_of, self._schemas(), self._framing(), self.inexact_values)

    def _framing(self) -> ConfluentFraming:
        return BareRecords() if self.schema else ConfluentFraming()

    def _schemas(self) -> SchemaCache:
        if not self.schema:
            return SchemaCache(SchemaRegistry(self.registry))
        return SchemaCache(None, {CONFIGURED: parse_avro_schema(self.schema)})

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        try:
            id_, _ = self._framing().unframed(batch.values[row].as_py() or b"", batch.headers.get(row, ()))
            type_ = self._schemas().type_of(id_)
        except BadValue as e:
            raise TableNotInferred.for_record(batch, row, str(e)) from None
        try:
            refuse_envelope(type_)
        except BadValue as e:  # not TableNotInferred: a tolerance would make dead letters of the whole topic
            raise BadInput(f"topic {batch.topic}, partition {batch.partition}: {e}") from None
        return inferred_table(row_schema(type_).columns, None)


def _configured_schema(options: Mapping[str, Any]) -> str:
    given = [name for name in ("schema", "schema_file") if options.get(name)]
    if not given:
        return ""
    if len(given) > 1 or not all(isinstance(options[name], str) for name in given):
        raise BadInput("avro: set either schema, an Avro schema in JSON, or schema_file, the path of a file with one")
    text = str(options[given[0]])
    if given == ["schema_file"]:
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise BadInput(f"schema_file of avro: {text}: {e}") from None
    try:
        if parse_avro_schema(text).kind != "record":
            raise BadInput("schema of avro: the type must be a record")
    except BadValue as e:
        raise BadInput(f"{given[0]} of avro: {e}") from None
    return text
