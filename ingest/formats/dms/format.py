"""The format `aws-dms-json`: records that AWS Database Migration Service writes to Kafka and Kinesis."""

from __future__ import annotations

from typing import ClassVar

from tidelake.ingest.formats.dms.envelope import DmsEnvelope, DmsOrigin
from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, origin_from


class DmsJson(EnvelopeFormat):
    """The format `aws-dms-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "aws-dms-json"
    ENVELOPE: ClassVar = DmsEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(DmsOrigin), members=(frozenset({"metadata", "data"}), frozenset({"metadata", "control"}))
    )
