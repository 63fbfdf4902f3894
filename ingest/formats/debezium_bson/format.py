"""`debezium-bson`: the change records of Debezium's MongoDB connector."""

from __future__ import annotations

from typing import ClassVar

from ingest.formats.debezium_bson.envelope import BsonEnvelope
from ingest.formats.envelopes.format import EnvelopeFormat


class DebeziumBson(EnvelopeFormat):
    """See `ingest.formats.base.Format`."""

    NAME: ClassVar = "debezium-bson"
    ENVELOPE: ClassVar = BsonEnvelope
