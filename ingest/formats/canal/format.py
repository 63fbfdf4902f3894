"""`canal-json`: the flat messages of Alibaba Canal."""

from __future__ import annotations

from typing import ClassVar

from ingest.formats.canal.envelope import CanalEnvelope
from ingest.formats.envelopes.format import EnvelopeFormat


class CanalJson(EnvelopeFormat):
    """See `ingest.formats.base.Format`."""

    NAME: ClassVar = "canal-json"
    ENVELOPE: ClassVar = CanalEnvelope
