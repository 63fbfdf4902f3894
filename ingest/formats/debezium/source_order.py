"""Reads the position of a Debezium record in its source's log, if all positions of the source can be compared.

PostgreSQL: `source.sequence` is `[position of the previous commit, position of the change]`. A connector sends changes
in the order of their transactions' commits, and the changes of a transaction in the order of their positions. So these
pairs never decrease (Debezium's `postgresql/SourceInfo.sequence`). The positions of changes alone may decrease if
transactions overlap.

MySQL, MariaDB: the result is always None. File and position are valid for one server only: after a failover they start
again, and rows of the first snapshot name no server.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelake.ingest.formats.debezium.envelope import SourceInfo, split_schema
from tidelake.ingest.formats.format_capabilities import SourceOrder
from tidelake.ingest.formats.values.json_text import BadValue


class _Source(SourceInfo, frozen=True):
    name: str = ""
    sequence: str | None = None


class _Envelope(msgspec.Struct):
    source: _Source | None = None


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_read_sequence: Final = msgspec.json.Decoder(tuple[str | None, str | None]).decode


def source_order(value: bytes) -> SourceOrder | None:
    """Return the source order of a record; None if the record doesn't contain it."""
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
