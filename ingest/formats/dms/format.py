"""`aws-dms-json`: what AWS Database Migration Service writes to Kafka and Kinesis."""

from __future__ import annotations

from typing import ClassVar

from ingest.formats.dms.envelope import DmsEnvelope
from ingest.formats.envelopes.format import EnvelopeFormat


class DmsJson(EnvelopeFormat):
    """See `ingest.formats.base.Format`."""

    NAME: ClassVar = "aws-dms-json"
    ENVELOPE: ClassVar = DmsEnvelope
