"""The formats of change records, by the name that `format` gives them.

A new format is a package beside `debezium` whose `format` module has a class that keeps `ingest.formats.base.Format`,
and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingest.formats.aliyun.format import AliyunJson
from ingest.formats.base import Format
from ingest.formats.canal.format import CanalJson
from ingest.formats.csv.format import Csv
from ingest.formats.debezium.format import DebeziumJson
from ingest.formats.debezium.source_order import source_order
from ingest.formats.debezium.transactions import transaction_of
from ingest.formats.debezium_avro.format import DebeziumAvro
from ingest.formats.debezium_bson.format import DebeziumBson
from ingest.formats.dms.format import DmsJson
from ingest.formats.maxwell.format import MaxwellJson
from ingest.formats.ogg.format import OggJson
from ingest.formats.plain_avro.format import PlainAvro
from ingest.formats.plain_json.format import PlainJson
from ingest.formats.source_order import SourceOrderOf
from ingest.formats.transactions import TransactionOf
from storage.errors import UnsupportedFeature
from storage.messages.suggestions import did_you_mean

_CLASSES: Final[tuple[type[Format], ...]] = (
    DebeziumJson,
    DebeziumAvro,
    DebeziumBson,
    CanalJson,
    MaxwellJson,
    OggJson,
    AliyunJson,
    DmsJson,
    PlainJson,
    PlainAvro,
    Csv,
)

_TRANSACTIONS: Final[Mapping[str, TransactionOf]] = {DebeziumJson.NAME: transaction_of}

_SOURCE_ORDERS: Final[Mapping[str, SourceOrderOf]] = {DebeziumJson.NAME: source_order}

FORMATS: Final[Mapping[str, type[Format]]] = {format.NAME: format for format in _CLASSES}


def source_order_of(name: str) -> SourceOrderOf | None:
    """None for a format whose records don't say where they stand in their source's log."""
    return _SOURCE_ORDERS.get(name)


def transaction_of_format(name: str) -> TransactionOf:
    """Raises UnsupportedFeature for a format whose records don't say which transaction they are of."""
    if name not in _TRANSACTIONS:
        raise UnsupportedFeature(
            "checkpoint.whole_transactions",
            f"records of {name} don't say which transaction they are of, as far as this release reads them",
            f"Leave it out, or read {', '.join(_TRANSACTIONS)}.",
        )
    return _TRANSACTIONS[name]


def open_format(name: str, options: Mapping[str, Any]) -> Format:
    """options: `format_options`.

    Raises UnsupportedFeature for a name that no format has, BadInput for the options.
    """
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS) or "."
        raise UnsupportedFeature(
            f"format = {name}",
            f"this release decodes {', '.join(FORMATS)}{hint.removesuffix('.')}",
            "Set one of them, or leave `format` out for the default.",
        )
    return FORMATS[name].with_options(options)
