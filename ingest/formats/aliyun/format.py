"""The format `aliyun-json`: records of Alibaba DataWorks' synchronization to Kafka."""

from __future__ import annotations

from typing import ClassVar

from tidelake.ingest.formats.aliyun.envelope import AliyunEnvelope, AliyunOrigin
from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, origin_from


class AliyunJson(EnvelopeFormat):
    """The format `aliyun-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "aliyun-json"
    ENVELOPE: ClassVar = AliyunEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(AliyunOrigin), members=(frozenset({"schema", "payload", "version"}),)
    )
