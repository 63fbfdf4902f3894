"""The format `debezium-bson`: change records of Debezium's MongoDB connector."""

from __future__ import annotations

from typing import ClassVar

from tidelake.ingest.formats.debezium.origin import origin_of
from tidelake.ingest.formats.debezium_bson.envelope import BsonEnvelope
from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities


class DebeziumBson(EnvelopeFormat):
    """The format `debezium-bson`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "debezium-bson"
    ENVELOPE: ClassVar = BsonEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(origin_of)
