"""The place of a Debezium record in its source's log, where records say it so that any two compare.

PostgreSQL: `source.sequence` is `[position of the last commit before, own position]`. Changes come in the order of
their transactions' commits, and within one in that of their positions: so these pairs never fall in what a connector
sends (Debezium's `postgresql/SourceInfo.sequence`). Positions alone do, where transactions overlap.

MySQL, MariaDB: file and position say it for one server only; after a failover they begin again, and rows of the first
snapshot name no server. They have no order.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ingest.formats.debezium.envelope import SourceInfo, split_schema
from ingest.formats.source_order import SourceOrder
from ingest.formats.values.json_text import BadValue


class _Source(SourceInfo, frozen=True):
    name: str = ""
    sequence: str | None = None


class _Envelope(msgspec.Struct):
    source: _Source | None = None


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_read_sequence: Final = msgspec.json.Decoder(tuple[str | None, str | None]).decode


def source_order(value: bytes) -> SourceOrder | None:
    """None for a record that doesn't say it."""
    try:
        source = _read_envelope(split_schema(value)[1]).source
        if source is None or source.connector != "postgresql" or source.sequence is None:
            return None
        last_commit, own = _read_sequence(source.sequence)
        if own is None:
            return None
        return SourceOrder(f"{source.connector} {source.name} {source.db}", (int(last_commit or 0), int(own)))
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
