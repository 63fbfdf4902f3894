"""Where the change of a Debezium record comes from: its table and time, its transaction, its place in the source's log.

Source: Debezium 3.5 `AbstractSourceInfo`, `pipeline/txmetadata`, `postgresql/SourceInfo`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelake.ingest.formats.debezium.debezium_envelope import SourceInfo, split_schema
from tidelake.ingest.formats.format_capabilities import (
    RecordOrigin,
    SourceOrder,
    TransactionEnd,
    TransactionRow,
    origin_from,
)
from tidelake.ingest.formats.values.json_text import BadValue

# ---------------------------------------------------------------- table and time


class _NamedSource(SourceInfo, frozen=True):
    collection: str | None = None
    ts_ms: int | None = None


class _Named(msgspec.Struct, frozen=True):
    """A record with or without a schema.

    source: the member `source` of a record without a schema.
    payload: the payload of a record with a schema.
    """

    source: _NamedSource = _NamedSource()
    payload: _Named | None = None

    def origin(self) -> RecordOrigin:
        source = (self.payload or self).source
        return RecordOrigin(source.db, source.schema, source.table or source.collection, source.ts_ms)


origin_of: Final = origin_from(_Named)


# ---------------------------------------------------------------- transaction


class _Transaction(msgspec.Struct, frozen=True):
    id: str
    data_collection_order: int = 0


class _Collection(msgspec.Struct, frozen=True):
    data_collection: str
    event_count: int


class _InTransaction(msgspec.Struct, frozen=True):
    op: str | None = None
    source: SourceInfo = SourceInfo()
    transaction: _Transaction | None = None
    status: str | None = None
    id: str | None = None
    data_collections: list[_Collection] | None = None


_read_transaction: Final = msgspec.json.Decoder(_InTransaction).decode


def transaction_of(value: bytes) -> TransactionRow | TransactionEnd | None:
    """Return the transaction of a record; None if the record is in no transaction, or doesn't name it.

    Connectors send transactions with `provide.transaction.metadata`: in each record of a row change, and in the records
    of a separate topic. Rows of a snapshot are in no transaction.
    """
    try:
        record = _read_transaction(split_schema(value)[1])
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


# ---------------------------------------------------------------- place in the log


class _LoggedSource(SourceInfo, frozen=True):
    name: str = ""
    sequence: str | None = None


class _Logged(msgspec.Struct):
    source: _LoggedSource | None = None


_read_logged: Final = msgspec.json.Decoder(_Logged).decode
_read_sequence: Final = msgspec.json.Decoder(tuple[str | None, str | None]).decode


def source_order(value: bytes) -> SourceOrder | None:
    """Return the place of a record in its source's log; None unless all places in this log can be compared.

    PostgreSQL: `source.sequence` is `[position of the previous commit, position of the change]`. A connector sends
    changes in the order of their transactions' commits, and the changes of a transaction in the order of their
    positions. So these pairs never decrease. The positions of changes alone may decrease if transactions overlap.

    MySQL, MariaDB: the result is always None. File and position are valid for one server only: after a failover they
    start again, and rows of the first snapshot name no server.
    """
    try:
        source = _read_logged(split_schema(value)[1]).source
        if source is None or source.connector != "postgresql" or source.sequence is None:
            return None
        last_commit, own = _read_sequence(source.sequence)
        if own is None:
            return None
        return SourceOrder(f"{source.connector} {source.name} {source.db}", (int(last_commit or 0), int(own)))
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
