"""The formats of change records by their names in the option `format`.

To add a format, write a class that implements `tidelake.ingest.formats.base.Format`, and add one line here. A pipeline
uses one format, so the modules of a format are imported only if the configuration names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any, Final

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.formats.base import Format
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, TransactionOf
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.storage.model.messages import did_you_mean

FORMATS: Final[Mapping[str, str]] = {
    "debezium-json": "tidelake.ingest.formats.debezium.debezium_json:DebeziumJson",
    "debezium-avro": "tidelake.ingest.formats.avro.debezium_avro:DebeziumAvro",
    "debezium-flattened-json": "tidelake.ingest.formats.debezium.flattened_json:FlattenedJson",
    "debezium-flattened-avro": "tidelake.ingest.formats.avro.flattened_avro:FlattenedAvro",
    "debezium-bson": "tidelake.ingest.formats.envelopes.debezium_bson:DebeziumBson",
    "debezium-cloudevents": "tidelake.ingest.formats.debezium.cloud_events:DebeziumCloudEvents",
    "debezium-outbox": "tidelake.ingest.formats.envelopes.debezium_outbox:DebeziumOutbox",
    "canal-json": "tidelake.ingest.formats.envelopes.canal:CanalJson",
    "maxwell-json": "tidelake.ingest.formats.envelopes.maxwell:MaxwellJson",
    "ogg-json": "tidelake.ingest.formats.envelopes.ogg:OggJson",
    "aliyun-json": "tidelake.ingest.formats.envelopes.aliyun:AliyunJson",
    "aws-dms-json": "tidelake.ingest.formats.envelopes.dms:DmsJson",
    "json": "tidelake.ingest.formats.envelopes.plain_json:PlainJson",
    "avro": "tidelake.ingest.formats.avro.plain_avro:PlainAvro",
    "protobuf": "tidelake.ingest.formats.protobuf.plain_protobuf:PlainProtobuf",
    "csv": "tidelake.ingest.formats.envelopes.plain_csv:Csv",
}
"""Format name to module and class."""


_FRAME_BYTES: Final = 5  # before records that refer to their schema
# Source: AWS Glue Schema Registry's `AWSSchemaRegistryConstants`: version, compression, the schema version's UUID
GLUE_MAGIC: Final = 3
GLUE_COMPRESSIONS: Final = (0, 5)
GLUE_FRAME_BYTES: Final = 18


def capabilities_of(name: str) -> FormatCapabilities:
    """Return the capabilities of a format; none if no format has this name."""
    return format_class(name).CAPABILITIES if name in FORMATS else FormatCapabilities()


def transaction_of_format(name: str) -> TransactionOf:
    """Return the function that reads the transaction of a record.

    Raises UnsupportedFeature for a format whose records don't name their transaction.
    """
    found = capabilities_of(name).transaction_of
    if found is None:
        others = [other for other in FORMATS if capabilities_of(other).transaction_of is not None]
        raise UnsupportedFeature(
            "checkpoint.whole_transactions",
            f"this release can't tell the transactions of records of {name}",
            f"Leave it out, or use one of the formats {', '.join(others)}.",
        )
    return found


def format_like(members: Collection[str]) -> str | None:
    """Return the format whose records have these JSON members; None if no format matches."""
    found = set(members)
    sizes = {
        name: max((len(wanted) for wanted in capabilities_of(name).members if wanted <= found), default=0)
        for name in FORMATS
    }
    best = max(sizes, key=lambda name: sizes[name])
    return best if sizes[best] else None


def other_format_hint(value: bytes, format_: str) -> str:
    """Return the end of a message about a record that is not in `format_`; "" if no other format matches.

    It is only a hint: no record is decoded by a guess.
    """
    if value[:1] == b"\0" and value[_FRAME_BYTES : _FRAME_BYTES + 1] == b"{":
        return (
            ". It looks like JSON in Confluent's frame: rows are read with `format: json` and `format_options: "
            "{framing: confluent}`"
        )
    if len(value) >= GLUE_FRAME_BYTES and value[0] == GLUE_MAGIC and value[1] in GLUE_COMPRESSIONS:
        return (
            ". Its frame is that of AWS Glue Schema Registry, which is not read. Let the producer write records "
            "without a registry, or to one with Confluent's interface"
        )
    if value[:1] == b"\0":
        return ". It looks like Avro in Confluent's wire format: set `format` to debezium-avro or avro"
    try:
        found = format_like(read_object(value).keys())
    except BadValue:
        return ""
    return "" if found in (None, format_) else f". It looks like {found}: set `format` to the format of the topic"


def omitted_columns_text(name: str, options: Mapping[str, Any]) -> str:
    """Return what a column is that an update leaves out, if the format has the option `omitted`; else ""."""
    default = getattr(getattr(format_class(name), "ENVELOPE", None), "OMITTED", None)
    if default is None:
        return ""
    meaning = {"null": "NULL", "unchanged": "unchanged"}[options.get("omitted", default)]
    why = "`omitted` in `format_options`" if "omitted" in options else f"`omitted`, by default of {name}"
    return f"columns that an update leaves out are {meaning} ({why}), unless the record proves the opposite"


def open_format(name: str, options: Mapping[str, Any]) -> Format:
    """Return a format with its options.

    options: `format_options`.

    Raises UnsupportedFeature for an unknown format, and BadInput for invalid options.
    """
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS) or "."
        raise UnsupportedFeature(
            f"format = {name}",
            f"this release can decode {', '.join(FORMATS)}{hint.removesuffix('.')}",
            "Set one of them, or leave `format` out for the default.",
        )
    return format_class(name).with_options(options)


def format_class(name: str) -> type[Format]:
    """Return the class of a format. name: one of `FORMATS`."""
    module, _, class_name = FORMATS[name].partition(":")
    found: type[Format] = getattr(import_module(module), class_name)
    return found
