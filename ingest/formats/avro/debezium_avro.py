"""The format `debezium-avro`: Debezium's change records as Confluent's Avro converter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.avro.debezium_avro_decoder import DebeziumAvroDecoder
from tidelake.ingest.formats.avro.debezium_envelope_schema import envelope_schema
from tidelake.ingest.formats.avro.framing import KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER
from tidelake.ingest.formats.avro.registry_options import REGISTRY_OPTIONS, RegistryOptions, with_underscores
from tidelake.ingest.formats.avro.schema_cache import SchemaCache
from tidelake.ingest.formats.avro.schema_registry import FormatWithRegistry, SchemaRegistry
from tidelake.ingest.formats.avro.snapshot_marks import avro_snapshot_marks, snapshot_in_source
from tidelake.ingest.formats.base import InferredTable, TargetOf
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json import DebeziumOptions
from tidelake.ingest.formats.debezium.origin import origin_of
from tidelake.ingest.formats.debezium.table_inference import inferred_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, SnapshotMarks
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch


@dataclass(frozen=True)
class DebeziumAvro(FormatWithRegistry):
    """The format `debezium-avro`. See `tidelake.ingest.formats.base.Format`.

    registry: options of the schema registry.
    options: options of all Debezium formats.
    """

    NAME: ClassVar = "debezium-avro"
    KEPT_HEADERS: ClassVar = frozenset({OLD_KEY_HEADER, NEW_KEY_HEADER, KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER})
    DECODING_BLOCKS: ClassVar = True
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_of, snapshot_marks_of=lambda options: DebeziumAvro.with_options(options).snapshot_marks()
    )

    registry: RegistryOptions = field(default_factory=RegistryOptions)
    options: DebeziumOptions = field(default_factory=DebeziumOptions)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> DebeziumAvro:
        """Return the format with its options. options: those of `debezium-json` and of the schema registry."""
        options = with_underscores(options)
        registry = {name: value for name, value in options.items() if name in REGISTRY_OPTIONS}
        others = {name: value for name, value in options.items() if name not in REGISTRY_OPTIONS}
        return cls(
            RegistryOptions.parsed(cls.NAME, registry), DebeziumOptions.parsed(cls.NAME, others, REGISTRY_OPTIONS)
        )

    def decoder(self, target_of: TargetOf) -> DebeziumAvroDecoder:
        options = self.options
        return DebeziumAvroDecoder(
            target_of, self._schemas(), options.connector, options.truncates, options.inexact_values
        )

    def snapshot_marks(self) -> SnapshotMarks:
        return avro_snapshot_marks(self._schemas(), "op", snapshot_in_source)

    def _schemas(self) -> SchemaCache:
        return SchemaCache(SchemaRegistry(self.registry))

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        schemas = self._schemas()
        headers = batch.headers.get(row, ())
        try:
            type_, _ = schemas.record(batch.values[row].as_py() or b"", headers, VALUE_SCHEMA_HEADER)
            columns = envelope_schema(type_).columns
            if not columns:
                raise BadValue("it has no row image")
            return inferred_table(columns, schemas.key_as_json(batch.keys[row].as_py(), headers))
        except BadValue as e:
            raise TableNotInferred.for_record(batch, row, str(e)) from None
