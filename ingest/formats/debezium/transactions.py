"""Reads Debezium's transaction metadata, which connectors send with `provide.transaction.metadata`.

It is in each record of a row change, and in the records of a separate topic. Rows of a snapshot have none.

Source: Debezium `pipeline/txmetadata`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelake.ingest.formats.debezium.envelope import SourceInfo, split_schema
from tidelake.ingest.formats.format_capabilities import TransactionEnd, TransactionRow
from tidelake.ingest.formats.values.json_text import BadValue


class _Transaction(msgspec.Struct, frozen=True):
    id: str
    data_collection_order: int = 0


class _Collection(msgspec.Struct, frozen=True):
    data_collection: str
    event_count: int


class _Record(msgspec.Struct, frozen=True):
    op: str | None = None
    source: SourceInfo = SourceInfo()
    transaction: _Transaction | None = None
    status: str | None = None
    id: str | None = None
    data_collections: list[_Collection] | None = None


_read: Final = msgspec.json.Decoder(_Record).decode


def transaction_of(value: bytes) -> TransactionRow | TransactionEnd | None:
    """Return the transaction of a record; None if the record is in no transaction, or doesn't name it."""
    try:
        record = _read(split_schema(value)[1])
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if record.op is None:
        if record.status != "END" or record.id is None:
            return None
        counts = {one.data_collection: one.event_count for one in record.data_collections or ()}
        return TransactionEnd(record.id, counts)
    if record.transaction is None:
        return None
    source = record.source
    parts = (source.db, source.schema, source.table)
    if source.connector == "postgresql":  # its END records name tables without the database
        parts = (None, source.schema, source.table)
    collection = ".".join(part for part in parts if part is not None)
    return TransactionRow(record.transaction.id, collection, record.transaction.data_collection_order)
