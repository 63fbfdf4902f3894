"""The format `maxwell-json`: records of Maxwell's Daemon."""

from __future__ import annotations

from typing import ClassVar

from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, origin_from
from tidelake.ingest.formats.maxwell.envelope import MaxwellEnvelope, MaxwellOrigin


class MaxwellJson(EnvelopeFormat):
    """The format `maxwell-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "maxwell-json"
    ENVELOPE: ClassVar = MaxwellEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(MaxwellOrigin), members=(frozenset({"type", "data", "database", "table"}),)
    )
