"""The format `debezium-flattened-avro`: rows that the transformation `ExtractNewRecordState` leaves of Avro records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.avro.change_records import ChangeSchema
from tidelake.ingest.formats.avro.column_images import Changes, ops_of
from tidelake.ingest.formats.avro.debezium_avro_decoder import DebeziumAvroDecoder
from tidelake.ingest.formats.avro.framing import KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER
from tidelake.ingest.formats.avro.plain_avro import Rows, row_schema
from tidelake.ingest.formats.avro.registry_options import REGISTRY_OPTIONS, RegistryOptions, with_underscores
from tidelake.ingest.formats.avro.schema_cache import SchemaCache
from tidelake.ingest.formats.avro.schema_registry import FormatWithRegistry, SchemaRegistry
from tidelake.ingest.formats.avro.snapshot_marks import avro_snapshot_marks
from tidelake.ingest.formats.avro.value_reader import object_of, values_as_json
from tidelake.ingest.formats.base import Decoder, InferredTable, TargetOf
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json import DebeziumOptions
from tidelake.ingest.formats.debezium.flattened_decoder import FlattenedDecoder
from tidelake.ingest.formats.debezium.flattened_json import tombstones_option
from tidelake.ingest.formats.debezium.flattened_records import (
    DELETED_FIELD,
    METADATA_FIELDS,
    OP_FIELD,
    PREFIX,
    SNAPSHOT_FIELDS,
    Enveloped,
    flattened_origin_of,
    op_of,
    without_metadata,
)
from tidelake.ingest.formats.debezium.table_inference import inferred_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, SnapshotMarks
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn

_METADATA = frozenset(PREFIX + name for name in METADATA_FIELDS)


class FlattenedRows(Rows):
    """The structure of flattened records (see `ChangeRecords`). Deletes are read one by one."""

    ARE_KEYED: ClassVar = True

    def schema_of(self, type_: AvroType) -> ChangeSchema:
        return row_schema(type_)

    def changes(
        self, rows: NDArray[np.int64], schema: ChangeSchema, columns: Mapping[str, DecodedColumn]
    ) -> tuple[Changes, list[DecodedColumn | None]]:
        changes, source_columns = super().changes(rows, schema, columns)
        ops = np.full(len(rows), ord("u"), np.uint8)
        if (op := columns.get(PREFIX + OP_FIELD)) is not None:
            ops = np.where(op.valid, ops_of(op), ops).astype(np.uint8)
        if (deleted := columns.get(PREFIX + DELETED_FIELD)) is not None:
            is_deleted = [raw in (b"true", b'"true"') for raw in values_as_json(deleted)]
            ops[np.array(is_deleted, np.bool_)] = ord("d")
        return Changes(rows, ops, changes.before, changes.after), source_columns

    def payload(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        op = op_of(members)
        return {"op": op, "before" if op == b'"d"' else "after": object_of(members)}


@dataclass(frozen=True)
class FlattenedAvro(FormatWithRegistry):
    """The format `debezium-flattened-avro`. See `tidelake.ingest.formats.base.Format`.

    registry: options of the schema registry.
    options: options of all Debezium formats.
    tombstones_delete: whether a tombstone deletes the row of its key.
    """

    NAME: ClassVar = "debezium-flattened-avro"
    KEPT_HEADERS: ClassVar = frozenset({OLD_KEY_HEADER, NEW_KEY_HEADER, KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER})
    DECODING_BLOCKS: ClassVar = True
    CAPABILITIES: ClassVar = FormatCapabilities(
        flattened_origin_of, snapshot_marks_of=lambda options: FlattenedAvro.with_options(options).snapshot_marks()
    )

    registry: RegistryOptions = field(default_factory=RegistryOptions)
    options: DebeziumOptions = field(default_factory=DebeziumOptions)
    tombstones_delete: bool = True

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> FlattenedAvro:
        """Return the format with its options: `tombstones`, and those of `debezium-avro`."""
        options = with_underscores(options)
        registry = {name: value for name, value in options.items() if name in REGISTRY_OPTIONS}
        others = {n: value for n, value in options.items() if n not in REGISTRY_OPTIONS and n != "tombstones"}
        return cls(
            RegistryOptions.parsed(cls.NAME, registry),
            DebeziumOptions.parsed(cls.NAME, others, ("tombstones", *REGISTRY_OPTIONS)),
            tombstones_option(cls.NAME, options) == "delete",
        )

    def decoder(self, target_of: TargetOf) -> Decoder:
        options = self.options

        def make(target_of: TargetOf) -> DebeziumAvroDecoder:
            return DebeziumAvroDecoder(
                target_of,
                self._schemas(),
                options.connector,
                options.truncates,
                options.inexact_values,
                records=FlattenedRows(),
                tombstones_delete=self.tombstones_delete,
            )

        return FlattenedDecoder(make, target_of, lambda batch: Enveloped(batch, _METADATA))

    def snapshot_marks(self) -> SnapshotMarks:
        def snapshot_of(fields: Mapping[str, bytes]) -> bytes | None:
            return next((fields[name] for name in SNAPSHOT_FIELDS if name in fields), None)

        return avro_snapshot_marks(self._schemas(), PREFIX + OP_FIELD, snapshot_of)

    def _schemas(self) -> SchemaCache:
        return SchemaCache(SchemaRegistry(self.registry))

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        schemas = self._schemas()
        headers = batch.headers.get(row, ())
        try:
            type_, _ = schemas.record(batch.values[row].as_py() or b"", headers, VALUE_SCHEMA_HEADER)
            key = schemas.key_as_json(batch.keys[row].as_py(), headers)
            return without_metadata(inferred_table(row_schema(type_).columns, key))
        except BadValue as e:
            raise TableNotInferred.for_record(batch, row, str(e)) from None
