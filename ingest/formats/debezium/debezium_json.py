"""The format `debezium-json`: Debezium's change records as Connect's JSON converter writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import InferredTable, TargetOf
from tidelake.ingest.formats.connect_schema import ConnectorSettings
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder, InexactValues, Truncates
from tidelake.ingest.formats.debezium.origin import origin_of, source_order, transaction_of
from tidelake.ingest.formats.debezium.table_inference import infer_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, snapshot_marks
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.messages import did_you_mean

_CONNECTOR_OPTIONS: Final = tuple(field.name for field in fields(ConnectorSettings))


@dataclass(frozen=True)
class DebeziumOptions:
    """The options that all formats of Debezium's records share.

    connector: settings of the connector that its records don't contain.
    truncates: see `DebeziumJsonDecoder`.
    inexact_values: see `DebeziumJsonDecoder`.
    """

    connector: ConnectorSettings = field(default_factory=ConnectorSettings)
    truncates: Truncates = "apply"
    inexact_values: InexactValues = "fail"

    @classmethod
    def parsed(cls, format_: str, options: Mapping[str, Any], others: Collection[str] = ()) -> DebeziumOptions:
        """Return the parsed options.

        format_: the format's name, for messages.
        options: `truncates`, `inexact_values`, and settings of the connector by name.
        others: names of the format's other options, for messages.

        Raises BadInput for an unknown option and for an invalid value.
        """
        known = (*_CONNECTOR_OPTIONS, "truncates", "inexact_values", *others)
        for name, value in options.items():
            if name not in known:
                hint = did_you_mean(name, known) or "."
                raise BadInput(
                    f"`format_options`: {format_} has no option {name!r}{hint} Its options are {', '.join(known)}"
                )
            if not isinstance(value, str):
                raise BadInput(f"{name} of {format_} must be a string, not {value!r}")
        truncates = options.get("truncates", "apply")
        if truncates not in ("apply", "fail", "skip"):
            raise BadInput(f"truncates of {format_} must be apply, fail or skip, not {truncates!r}")
        inexact_values = options.get("inexact_values", "fail")
        if inexact_values not in ("fail", "round"):
            raise BadInput(f"inexact_values of {format_} must be fail or round, not {inexact_values!r}")
        connector = ConnectorSettings(**{name: options[name] for name in _CONNECTOR_OPTIONS if name in options})
        return cls(connector, truncates, inexact_values)


@dataclass(frozen=True)
class DebeziumJson:
    """The format `debezium-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "debezium-json"
    KEPT_HEADERS: ClassVar = frozenset({OLD_KEY_HEADER, NEW_KEY_HEADER})
    DECODING_BLOCKS: ClassVar = False
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_of,
        transaction_of,
        source_order,
        (
            frozenset({"op", "source", "before"}),
            frozenset({"op", "source", "after"}),
            frozenset({"schema", "payload"}),
        ),
        connector_settings_of=lambda options: DebeziumOptions.parsed("debezium-json", options).connector,
        snapshot_marks_of=snapshot_marks("op", "r", "snapshot"),
    )

    options: DebeziumOptions = field(default_factory=DebeziumOptions)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> DebeziumJson:
        """Return the format with its options. See `DebeziumOptions.parsed`."""
        return cls(DebeziumOptions.parsed(cls.NAME, options))

    def decoder(self, target_of: TargetOf) -> DebeziumJsonDecoder:
        options = self.options
        return DebeziumJsonDecoder(target_of, options.connector, options.truncates, options.inexact_values)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        return infer_table(batch, row)
