"""Reads the origin of Debezium's records for metadata columns."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelake.ingest.formats.debezium.envelope import SourceInfo
from tidelake.ingest.formats.format_capabilities import RecordOrigin, origin_from


class _Source(SourceInfo, frozen=True):
    collection: str | None = None
    ts_ms: int | None = None


class _Record(msgspec.Struct, frozen=True):
    """A record with or without a schema.

    source: the member `source` of a record without a schema.
    payload: the payload of a record with a schema.
    """

    source: _Source = _Source()
    payload: _Record | None = None

    def origin(self) -> RecordOrigin:
        source = (self.payload or self).source
        return RecordOrigin(source.db, source.schema, source.table or source.collection, source.ts_ms)


origin_of: Final = origin_from(_Record)
