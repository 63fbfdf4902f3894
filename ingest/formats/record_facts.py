"""What records of a format say beside their rows: where they come from, in which transaction, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

import msgspec

from ingest.formats.source_order import SourceOrderOf
from ingest.formats.transactions import TransactionOf


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """What a record says of its source. op_ts: epoch milliseconds."""

    database_name: str | None = None
    schema_name: str | None = None
    table_name: str | None = None
    op_ts: int | None = None


OriginOf: TypeAlias = Callable[[bytes], RecordOrigin]
"""Of the value, as JSON, of a record that was decoded."""


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Each None, or empty, where the format's records don't say it.

    origin_of: for metadata columns.
    transaction_of: for checkpoints that keep transactions whole.
    order_of: for what happens to a table as a whole while several partitions are read.
    members: sets of members, each of which no record of another format has: for messages about records that seem to be
        of another format than the configuration says. Of several that a record has, the largest tells.
    """

    origin_of: OriginOf | None = None
    transaction_of: TransactionOf | None = None
    order_of: SourceOrderOf | None = None
    members: tuple[frozenset[str], ...] = ()


class TellsOrigin(Protocol):
    """A struct."""

    def origin(self) -> RecordOrigin: ...


def origin_from(record: type[TellsOrigin]) -> OriginOf:
    """What a record decoded into this struct tells."""
    decode = msgspec.json.Decoder(record).decode

    def read(value: bytes) -> RecordOrigin:
        try:
            return decode(value).origin()
        except msgspec.MsgspecError:  # a member of another type than the format's: nothing is known
            return RecordOrigin()

    return read


def epoch_ms_of(text: str | None) -> int | None:
    """Times without a zone are of UTC."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000 // 1)
