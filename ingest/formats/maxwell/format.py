"""`maxwell-json`: what Maxwell's Daemon writes."""

from __future__ import annotations

from typing import ClassVar

from ingest.formats.envelopes.format import EnvelopeFormat
from ingest.formats.maxwell.envelope import MaxwellEnvelope, MaxwellOrigin
from ingest.formats.record_facts import RecordFacts, origin_from


class MaxwellJson(EnvelopeFormat):
    """See `ingest.formats.base.Format`."""

    NAME: ClassVar = "maxwell-json"
    ENVELOPE: ClassVar = MaxwellEnvelope
    FACTS: ClassVar = RecordFacts(
        origin_from(MaxwellOrigin), members=(frozenset({"type", "data", "database", "table"}),)
    )
