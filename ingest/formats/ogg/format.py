"""The format `ogg-json`: records of Oracle GoldenGate's JSON formatter."""

from __future__ import annotations

from typing import ClassVar

from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, origin_from
from tidelake.ingest.formats.ogg.envelope import OggEnvelope, OggOrigin


class OggJson(EnvelopeFormat):
    """The format `ogg-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "ogg-json"
    ENVELOPE: ClassVar = OggEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(origin_from(OggOrigin), members=(frozenset({"op_type", "table"}),))
