"""The format `protobuf`: each record is a row in Protobuf, in Confluent's wire format, with a schema in a registry.

It is inserted, or replaces the row with its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.avro.framing import VALUE_SCHEMA_HEADER
from tidelake.ingest.formats.avro.registry_options import REGISTRY_OPTIONS, RegistryOptions, with_underscores
from tidelake.ingest.formats.avro.schema_registry import FormatWithRegistry, SchemaRegistry
from tidelake.ingest.formats.base import Decoder, InferredTable, TargetOf
from tidelake.ingest.formats.connect_schema import source_type
from tidelake.ingest.formats.debezium.debezium_json_decoder import InexactValues
from tidelake.ingest.formats.debezium.table_inference import inferred_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.messages import did_you_mean

if TYPE_CHECKING:
    from tidelake.ingest.formats.protobuf.protobuf_decoder import ProtobufRows

_OPTIONS: Final = ("inexact_values", *REGISTRY_OPTIONS)


@dataclass(frozen=True)
class PlainProtobuf(FormatWithRegistry):
    """The format `protobuf`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "protobuf"
    KEPT_HEADERS: ClassVar = frozenset({VALUE_SCHEMA_HEADER})
    DECODING_BLOCKS: ClassVar = True
    CAPABILITIES: ClassVar = FormatCapabilities()

    registry: RegistryOptions = field(default_factory=RegistryOptions)
    inexact_values: InexactValues = "fail"

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> PlainProtobuf:
        """Return the format with its options: `inexact_values`, and those of the schema registry."""
        options = with_underscores(options)
        for name in options:
            if name not in _OPTIONS:
                hint = did_you_mean(name, _OPTIONS) or "."
                raise BadInput(
                    f"`format_options`: protobuf has no option {name!r}{hint} Its options are {', '.join(_OPTIONS)}"
                )
        inexact_values = options.get("inexact_values", "fail")
        if inexact_values not in ("fail", "round"):
            raise BadInput(f"inexact_values of protobuf must be fail or round, not {inexact_values!r}")
        registry = RegistryOptions.parsed(
            cls.NAME, {name: value for name, value in options.items() if name in REGISTRY_OPTIONS}
        )
        return cls(registry, inexact_values)

    def decoder(self, target_of: TargetOf) -> Decoder:
        rows = self._rows()
        from tidelake.ingest.formats.protobuf.protobuf_decoder import protobuf_decoder  # noqa: PLC0415 - see `_rows`

        return protobuf_decoder(target_of, rows, self.inexact_values)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        try:
            columns = self._rows().columns(batch.values[row].as_py() or b"", batch.headers.get(row, ()))
        except BadValue as error:
            raise TableNotInferred.for_record(batch, row, str(error)) from None
        return inferred_table({one.field: source_type(one) for one in columns if one.field is not None}, None)

    def _rows(self) -> ProtobufRows:
        """Return what converts records. Raises BadInput without the optional packages: only this needs them."""
        try:
            from tidelake.ingest.formats.protobuf.protobuf_decoder import ProtobufRows  # noqa: PLC0415
        except ImportError as error:
            raise BadInput(
                "`format: protobuf` needs the packages protobuf and grpcio-tools: `pip install 'tidelake[protobuf]'`"
            ) from error
        return ProtobufRows(SchemaRegistry(self.registry, kind="PROTOBUF"))
