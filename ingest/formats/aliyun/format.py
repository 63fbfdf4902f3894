"""`aliyun-json`: what Alibaba DataWorks' synchronization to Kafka writes."""

from __future__ import annotations

from typing import ClassVar

from ingest.formats.aliyun.envelope import AliyunEnvelope
from ingest.formats.envelopes.format import EnvelopeFormat


class AliyunJson(EnvelopeFormat):
    """See `ingest.formats.base.Format`."""

    NAME: ClassVar = "aliyun-json"
    ENVELOPE: ClassVar = AliyunEnvelope
