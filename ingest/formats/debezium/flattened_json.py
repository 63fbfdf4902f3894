"""The format `debezium-flattened-json`: rows that the transformation `ExtractNewRecordState` leaves of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import Decoder, InferredTable, TargetOf
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json import DebeziumOptions
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder
from tidelake.ingest.formats.debezium.flattened_decoder import FlattenedDecoder
from tidelake.ingest.formats.debezium.flattened_records import (
    enveloped,
    flattened_origin_of,
    flattened_snapshot_marks,
    without_metadata,
)
from tidelake.ingest.formats.debezium.table_inference import infer_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.raw_batch import RawBatch

TOMBSTONES: Final = ("delete", "skip")


@dataclass(frozen=True)
class FlattenedJson:
    """The format `debezium-flattened-json`. See `tidelake.ingest.formats.base.Format`.

    tombstones_delete: whether a tombstone deletes the row of its key.
    """

    NAME: ClassVar = "debezium-flattened-json"
    KEPT_HEADERS: ClassVar = frozenset({OLD_KEY_HEADER, NEW_KEY_HEADER})
    DECODING_BLOCKS: ClassVar = False
    CAPABILITIES: ClassVar = FormatCapabilities(
        flattened_origin_of,
        members=(frozenset({"__deleted"}), frozenset({"__op"})),
        snapshot_marks_of=flattened_snapshot_marks,
    )

    options: DebeziumOptions = field(default_factory=DebeziumOptions)
    tombstones_delete: bool = True

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> FlattenedJson:
        """Return the format with its options: `tombstones`, and those of `debezium-json`."""
        others = {name: value for name, value in options.items() if name != "tombstones"}
        parsed = DebeziumOptions.parsed(cls.NAME, others, ("tombstones",))
        return cls(parsed, tombstones_option(cls.NAME, options) == "delete")

    def decoder(self, target_of: TargetOf) -> Decoder:
        options = self.options

        def make(target_of: TargetOf) -> DebeziumJsonDecoder:
            return DebeziumJsonDecoder(target_of, options.connector, options.truncates, options.inexact_values)

        return FlattenedDecoder(make, target_of, partial(enveloped, tombstones_delete=self.tombstones_delete))

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        try:
            return without_metadata(infer_table(enveloped(batch.slice(row, row + 1), tombstones_delete=True).batch, 0))
        except TableNotInferred as error:
            raise TableNotInferred(batch, row, error.reason) from None


def tombstones_option(format_: str, options: Mapping[str, Any]) -> str:
    """Return the value of the option `tombstones`. Raises BadInput for an invalid one."""
    found = options.get("tombstones", "delete")
    if found not in TOMBSTONES:
        raise BadInput(f"tombstones of {format_} must be {' or '.join(TOMBSTONES)}, not {found!r}")
    return str(found)
