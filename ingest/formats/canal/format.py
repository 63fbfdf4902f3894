"""The format `canal-json`: flat messages of Alibaba Canal."""

from __future__ import annotations

from typing import ClassVar, Final

from tidelake.ingest.formats.canal.envelope import CanalEnvelope, CanalOrigin
from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, origin_from

_NAMES: Final = ("database", "table")  # Maxwell's records have these members, too


class CanalJson(EnvelopeFormat):
    """The format `canal-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "canal-json"
    ENVELOPE: ClassVar = CanalEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(CanalOrigin),
        members=tuple(
            frozenset({"type", "data", own, *names}) for own in ("isDdl", "mysqlType") for names in ((), _NAMES)
        ),
    )
